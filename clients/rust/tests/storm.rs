//! Thousands of drops, cuts and leader kills on a real cluster: no key stays stuck, no task is left.
//!
//! `TICKETING_ROUNDS` and `TICKETING_SEED` ask for another run. What is drawn comes from the seed; when things happen
//! is up to the machine, so a seed is a kind of weather, not a transcript.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Cluster, PATIENCE, Proxy, Random};
use ticketing::{Ticket, TicketBroker, TicketErrorKind};
use tokio::runtime::Handle;

const CALLERS: u64 = 24;
const KEYS: u64 = 6;
const LEASE: Duration = Duration::from_secs(200);
const SECOND: Duration = Duration::from_secs(1);

/// What the callers have seen of one another.
#[derive(Default)]
struct Seen {
    holders: Mutex<HashMap<String, u64>>,
    tokens: Mutex<HashMap<String, u64>>,
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    done: AtomicU64,
}

impl Seen {
    fn count(&self, what: &'static str) {
        *self.outcomes.lock().unwrap().entry(what).or_default() += 1;
    }

    /// Nobody else may hold the key, and tokens only grow.
    fn begin(&self, ticket: &Ticket) {
        let key = ticket.key().to_owned();
        let other = self.holders.lock().unwrap().insert(key.clone(), ticket.token());
        assert_eq!(other, None, "{key} is held by {other:?} and {}", ticket.token());
        let before = self.tokens.lock().unwrap().insert(key, ticket.token()).unwrap_or(0);
        assert!(ticket.token() > before, "{} after {before}", ticket.token());
    }

    /// Its release is about to be invoked.
    fn end(&self, ticket: &Ticket) {
        assert_eq!(self.holders.lock().unwrap().remove(ticket.key()), Some(ticket.token()));
    }
}

/// Drops a future after so many microseconds, if it is not done by then.
async fn dropped_after<T>(micros: u64, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_micros(micros), work).await.ok()
}

async fn caller(broker: TicketBroker, seen: Arc<Seen>, rounds: u64, mut random: Random) {
    for _ in 0..rounds {
        let key = format!("seat/{}", random.below(KEYS));
        let wait = if random.below(8) == 0 { Duration::ZERO } else { 3 * SECOND };
        let acquire = broker.acquire(&key, wait, LEASE, Duration::ZERO);
        let asked = match random.below(3) {
            0 => Some(acquire.await),
            1 => dropped_after(random.below(400), acquire).await,
            _ => dropped_after(random.below(20_000), acquire).await,
        };
        match asked {
            None => seen.count("dropped"),
            Some(Err(error)) => {
                let fine = matches!(
                    error.kind(),
                    TicketErrorKind::Timeout
                        | TicketErrorKind::Indeterminate
                        | TicketErrorKind::NotConnected
                        | TicketErrorKind::Busy
                );
                assert!(fine, "{error}");
                seen.count(error.kind().as_str());
            }
            Some(Ok(ticket)) => {
                seen.begin(&ticket);
                for _ in 0..random.below(4) {
                    tokio::task::yield_now().await;
                }
                if random.below(6) == 0 {
                    // Dropped or not: it goes on in the background.
                    drop(dropped_after(random.below(1_000), ticket.extend(None)).await);
                }
                seen.end(&ticket);
                give_back(ticket, &mut random, &seen).await;
            }
        }
        seen.done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn give_back(ticket: Ticket, random: &mut Random, seen: &Seen) {
    match random.below(4) {
        0 => drop(ticket),
        1 => {
            // Begun, dropped, begun again.
            drop(dropped_after(random.below(500), ticket.release()).await);
            seen.count(if ticket.release().await.is_ok() { "held" } else { "unanswered" });
        }
        _ => seen.count(if ticket.release().await.is_ok() { "held" } else { "unanswered" }),
    }
}

/// Connections are cut all the time, and a leader dies after each of so many rounds.
struct Weather {
    calm: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<(Cluster, Vec<Proxy>)>>,
}

impl Weather {
    fn begin(
        mut cluster: Cluster,
        proxies: Vec<Proxy>,
        seen: Arc<Seen>,
        mut kills: Vec<u64>,
        mut random: Random,
    ) -> Self {
        let calm = Arc::new(AtomicBool::new(false));
        let over = calm.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) || !kills.is_empty() {
                std::thread::sleep(Duration::from_millis(random.below(200)));
                let proxy = random.below(proxies.len() as u64) as usize;
                proxies[proxy].cut(random.below(1_000));
                if kills.last().is_some_and(|at| seen.done.load(Ordering::Relaxed) >= *at) {
                    kills.pop();
                    cluster.leader().kill();
                }
            }
            (cluster, proxies)
        });
        Self { calm, thread: Some(thread) }
    }

    fn end(mut self) -> (Cluster, Vec<Proxy>) {
        self.calm.store(true, Ordering::Relaxed);
        self.thread.take().expect("it was begun").join().expect("no fault in the weather")
    }
}

impl Drop for Weather {
    fn drop(&mut self) {
        self.calm.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A test that fails ends its nodes as well.
            thread.join().ok();
        }
    }
}

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number is wanted")))
}

#[test]
fn thousands_of_drops_cuts_and_leader_kills_leave_no_key_stuck_and_no_task_behind() {
    let Some(cluster) = Cluster::start(5, &[]) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(storm(cluster, asked("TICKETING_ROUNDS", 4_000), asked("TICKETING_SEED", 1)));
}

async fn storm(cluster: Cluster, rounds: u64, seed: u64) {
    let random = Random(seed);
    // Several ways to each node, so that another session is there when one is cut.
    let ways = cluster.addresses().into_iter().cycle().take(3 * cluster.nodes.len());
    let proxies: Vec<Proxy> = ways.map(Proxy::start).collect();
    let before = Handle::current().metrics().num_alive_tasks();
    let addresses = proxies.iter().map(|proxy| proxy.address.clone());
    let broker = TicketBroker::builder().addrs(addresses).token(&*cluster.token).connect().expect("a broker");
    assert!(broker.wait_ready(PATIENCE).await, "{}", cluster.logs());

    let seen = Arc::new(Seen::default());
    let each = rounds / CALLERS;
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let draws = Random(seed.wrapping_mul(1_000).wrapping_add(number));
            tokio::spawn(caller(broker.clone(), seen.clone(), each, draws))
        })
        .collect();
    let kills = vec![2 * each * CALLERS / 3, each * CALLERS / 3];
    let weather = Weather::begin(cluster, proxies, seen.clone(), kills, random);
    for caller in callers {
        caller.await.expect("a caller that saw no fault");
    }
    let (cluster, _proxies) = weather.end();

    // Only while there is no leader can it take longer than the tries of one errand have.
    assert!(broker.settled(7 * SECOND).await || broker.settled(7 * SECOND).await);
    broker.close().await;
    // A task ends a moment after it has told so.
    for _ in 0..1_000 {
        if Handle::current().metrics().num_alive_tasks() <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before, "tasks are left");

    // Judged by another client: whatever was held is free long before a lease could have ended.
    let addresses = cluster.addresses();
    let judge = TicketBroker::builder().addrs(addresses).token(&*cluster.token).connect().expect("a broker");
    assert!(judge.wait_ready(PATIENCE).await, "{}", cluster.logs());
    for key in 0..KEYS {
        let key = format!("seat/{key}");
        let ticket =
            judge.acquire(&key, 5 * SECOND, SECOND, Duration::ZERO).await.expect("a key that is not stuck");
        assert_eq!(ticket.release().await, Ok(true));
    }
    judge.close().await;
    let outcomes = seen.outcomes.lock().unwrap();
    println!("{rounds} rounds, seed {seed}: {outcomes:?}");
    for what in ["dropped", "held", "indeterminate"] {
        assert!(outcomes.contains_key(what), "{outcomes:?}");
    }
}
