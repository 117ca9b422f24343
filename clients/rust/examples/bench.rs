//! Pairs of acquire and release, for `python -m benchmarks.rust`.
//!
//! Arguments: worker threads of the runtime, token, addresses. Each line of its input is `<tasks> <pairs a task>`; each
//! line of its output what that took: CPU nanoseconds of this process, nanoseconds, pairs, the median of a pair in
//! nanoseconds.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use ticketing::{TicketBroker, TicketError};

const WAIT: Duration = Duration::from_secs(255);
const LEASE: Duration = Duration::from_secs(30);
const BUDGET: Duration = Duration::from_secs(2);

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

async fn work(broker: TicketBroker, key: String, pairs: usize) -> Result<Vec<Duration>, TicketError> {
    let mut took = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let began = Instant::now();
        let ticket = broker.acquire(&key, WAIT, LEASE, BUDGET).await?;
        ticket.release().await?;
        took.push(began.elapsed());
    }
    Ok(took)
}

async fn turn(broker: &TicketBroker, tasks: usize, pairs: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let running: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(work(broker.clone(), format!("rust-{task}"), pairs))).collect();
    let mut took = Vec::with_capacity(tasks * pairs);
    for task in running {
        took.extend(task.await??);
    }
    let (cpu, elapsed) = (cpu() - cpu_began, began.elapsed());
    took.sort_unstable();
    println!("{} {} {} {}", cpu.as_nanos(), elapsed.as_nanos(), took.len(), took[took.len() / 2].as_nanos());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: usize = arguments.next().ok_or("worker threads, token and addresses are wanted")?.parse()?;
    let token = arguments.next().ok_or("token and addresses are wanted")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let broker = TicketBroker::builder().addrs(arguments).token(token).connect()?;
        if !broker.wait_ready(Duration::from_secs(10)).await {
            return Err("no session within ten seconds".into());
        }
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            let mut words = line.split_whitespace().map(str::parse);
            let (Some(tasks), Some(pairs)) = (words.next(), words.next()) else {
                return Err("a line is <tasks> <pairs a task>".into());
            };
            turn(&broker, tasks?, pairs?).await?;
        }
        broker.close().await;
        Ok(())
    })
}
