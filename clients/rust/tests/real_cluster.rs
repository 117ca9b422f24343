//! The library on real nodes: the document's example, a leader that dies or stops, tokens, TLS.

mod support;

use std::process::Command;
use std::time::Duration;

use support::{Cluster, PATIENCE};
use ticketing::{TicketBroker, TicketError, TicketErrorKind, TlsMode};

const SECOND: Duration = Duration::from_secs(1);

fn broker(cluster: &Cluster) -> TicketBroker {
    TicketBroker::builder().addrs(cluster.addresses()).token(&*cluster.token).connect().expect("a broker")
}

#[test]
fn the_documents_example_runs_as_printed() {
    // It has no token: such nodes serve loopback alone.
    let without_token = |config: String| {
        let lines = config
            .lines()
            .map(|line| if line.starts_with("client_tokens = ") { "client_tokens = []" } else { line });
        lines.collect::<Vec<_>>().join("\n")
    };
    let Some(cluster) = Cluster::start_with(1, &[], without_token) else { return };
    let own = std::env::current_exe().expect("the path of this test");
    let example = own.ancestors().nth(2).expect("the folder of the build").join("examples/document");
    let done = Command::new(example).arg(&cluster.nodes[0].address).output().expect("the example");
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stderr), cluster.logs());
    assert!(told.trim().parse::<u64>().is_ok_and(|token| token > 0), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_or_stops_takes_no_grant_along() {
    let Some(mut cluster) = Cluster::start(3, &[]) else { return };
    let broker = broker(&cluster);
    assert!(broker.wait_ready(PATIENCE).await, "{}", cluster.logs());
    let kept = broker.acquire("kept", SECOND, 200 * SECOND, SECOND).await.expect("it is free");
    assert!(kept.domain().is_some_and(|name| Some(name.to_owned()) == broker.domain()));

    cluster.leader().kill();
    // Nobody gets it meanwhile, and the survivors hand out larger tokens.
    let other = acquired(&broker, "other").await;
    assert!(other.token() > kept.token());
    let held = broker.acquire("kept", Duration::ZERO, SECOND, Duration::ZERO).await.expect_err("it is held");
    assert_eq!(held.kind(), TicketErrorKind::Timeout, "{held}");
    assert_eq!(other.release().await, Ok(true));
    assert_eq!(kept.extend(None).await, Ok(true));
    assert!(!kept.lost() && kept.conservative_remaining() > 190 * SECOND);
    assert_eq!(kept.release().await, Ok(true));
    assert_eq!(kept.release().await, Ok(true));
    assert!(!kept.wait_lost().await);
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_gives_its_requests_facts() {
    let Some(mut cluster) = Cluster::start(3, &[]) else { return };
    let broker = broker(&cluster);
    assert!(broker.wait_ready(PATIENCE).await, "{}", cluster.logs());
    let holder = broker.acquire("queue", SECOND, 100 * SECOND, SECOND).await.expect("it is free");
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move {
                let ticket = broker.acquire("queue", 60 * SECOND, 30 * SECOND, SECOND).await?;
                ticket.release().await
            })
        })
        .collect();
    let stopping = cluster.leader().address.clone();
    cluster.leader().terminate();
    while cluster.leader().address == stopping {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Nobody who waits has an entry in flight while the key is held: each is told so, and asks the new leader.
    assert_eq!(holder.release().await, Ok(true));
    for waiter in waiting {
        assert_eq!(waiter.await.expect("no panic"), Ok(true));
    }
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_ca_and_tokens() {
    let Some(cluster) = Cluster::start(1, &["--tls"]) else { return };
    let made =
        |token: &str, tls| TicketBroker::builder().addrs(cluster.addresses()).token(token).tls(tls).connect();
    let ours = made(&cluster.token, TlsMode::Ca(cluster.ca())).expect("a broker");
    assert!(ours.wait_ready(PATIENCE).await, "{}", cluster.logs());
    let ticket = ours.acquire("좌석", SECOND, 10 * SECOND, SECOND).await.expect("it is free");
    assert_eq!(ticket.key(), "좌석");
    assert_eq!(ticket.release().await, Ok(true));

    let blind = made(&cluster.token, TlsMode::InsecureSkipVerify).expect("a broker");
    assert!(blind.wait_ready(PATIENCE).await);

    let stranger = made("wrong", TlsMode::Ca(cluster.ca())).expect("a broker");
    assert!(!stranger.wait_ready(PATIENCE).await);
    let refused = stranger.acquire("k", SECOND, SECOND, Duration::ZERO).await.expect_err("the token is wrong");
    assert_eq!(refused.kind(), TicketErrorKind::Auth, "{refused}");

    // The platform does not know this CA; nothing falls back.
    if let Ok(distrusting) = made(&cluster.token, TlsMode::SystemRoots) {
        let refused = distrusting.acquire("k", 5 * SECOND, SECOND, Duration::ZERO).await.expect_err("distrust");
        assert!(matches!(&refused, TicketError::Io { detail } if detail.contains("certificate")), "{refused}");
    }
    let plain = made(&cluster.token, TlsMode::Off).expect("a broker");
    assert!(!plain.wait_ready(SECOND).await);
}

#[test]
fn a_program_that_returns_from_main_leaves_no_key_held() {
    const KEYS: usize = 200;
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // One node: an election at that very moment would leave it to the leases.
    for options in [[].as_slice(), &["--tls"]] {
        let Some(cluster) = Cluster::start(1, options) else { return };
        let tls = if options.is_empty() { TlsMode::Off } else { TlsMode::Ca(cluster.ca()) };
        let made = || {
            let made = TicketBroker::builder().addrs(cluster.addresses()).token(&*cluster.token);
            made.tls(tls.clone()).connect().expect("a broker")
        };
        let main = async {
            let broker = made();
            assert!(broker.wait_ready(PATIENCE).await, "{}", cluster.logs());
            let mut held = Vec::new();
            for number in 0..KEYS {
                let key = number.to_string();
                let ticket = broker.acquire(key, PATIENCE, 200 * SECOND, SECOND).await.expect("it is free");
                // Half of them belong to `main`, half to tasks that go on.
                if number % 2 == 0 {
                    held.push(ticket);
                } else {
                    tokio::spawn(async move { ticket.wait_lost().await });
                }
            }
        };
        runtime().block_on(main);
        runtime().block_on(async {
            let broker = made();
            for number in 0..KEYS {
                let key = number.to_string();
                drop(broker.acquire(key, PATIENCE, SECOND, Duration::ZERO).await.expect("before its lease ends"));
            }
            broker.close().await;
        });
    }
}

/// A key through an election: what is in flight when a leader dies is lost, and may be held until its cancel arrives.
async fn acquired(broker: &TicketBroker, key: &str) -> ticketing::Ticket {
    loop {
        match broker.acquire(key, 20 * SECOND, 60 * SECOND, SECOND).await {
            Ok(ticket) => return ticket,
            Err(TicketError::Indeterminate { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
