//! The whole library over real sockets, against a lock server in this process that a test can make misbehave.

mod leaving;
mod server;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use self::server::LockServer;
use crate::clock::{Clock, SECOND as NANOS};
use crate::{Ticket, TicketBroker, TicketError, TicketErrorKind, TlsMode};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(200);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Impatient, or sessions that are cut every few milliseconds would mostly be waited for.
fn broker(servers: &[&LockServer]) -> TicketBroker {
    let addresses = servers.iter().map(|server| server.address.clone());
    let millis = Duration::from_millis;
    TicketBroker::builder().addrs(addresses).backoff(millis(2), millis(10)).connect().expect("a broker")
}

async fn acquire(broker: &TicketBroker, key: &str) -> Result<Ticket, TicketError> {
    broker.acquire(key, 5 * SECOND, LEASE, Duration::ZERO).await
}

/// Waits for what others do; fails after ten seconds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("not within ten seconds: {what}");
}

async fn no_more_tasks_than(before: usize) {
    until("tasks are gone", || Handle::current().metrics().num_alive_tasks() <= before).await;
}

#[test]
fn a_ticket_is_released_by_its_token_and_the_tasks_end_with_the_broker() {
    let server = LockServer::start();
    runtime().block_on(async {
        let before = Handle::current().metrics().num_alive_tasks();
        let broker = broker(&[&server]);
        assert!(broker.wait_ready(5 * SECOND).await);
        // Two connections to one address, and the keeper.
        assert_eq!(Handle::current().metrics().num_alive_tasks(), before + 3);
        let ticket = acquire(&broker, "k").await.unwrap();
        assert_eq!(server.holder("k"), Some(ticket.token()));
        assert_eq!(ticket.release().await, Ok(true));
        assert_eq!(server.holder("k"), None);
        assert!(server.hello().starts_with("ticketing"), "{}", server.hello());
        broker.close().await;
        no_more_tasks_than(before).await;
        assert_eq!(acquire(&broker, "k").await.unwrap_err().kind(), TicketErrorKind::Closed);
        assert_eq!(ticket.release().await, Ok(true));
        broker.close().await;
    });
}

#[test]
fn a_ticket_that_is_dropped_is_released_also_when_it_was_the_last_of_its_broker() {
    let server = LockServer::start();
    runtime().block_on(async {
        let before = Handle::current().metrics().num_alive_tasks();
        let broker = broker(&[&server]);
        drop(acquire(&broker, "first").await.unwrap());
        until("it is released", || server.holder("first").is_none()).await;
        let last = acquire(&broker, "last").await.unwrap();
        drop(broker);
        assert_eq!(server.holder("last"), Some(last.token()));
        drop(last);
        until("it is released", || server.holder("last").is_none()).await;
        no_more_tasks_than(before).await;
    });
}

#[test]
fn a_host_that_can_be_no_name_is_a_failed_try_of_its_own_connection() {
    let server = LockServer::start();
    let long = "x".repeat(64);
    for host in
        ["a..b", ".", "-", "%", "\\x", "xn--", "[::1%nowhere]", "[:]", "1.2.3.4.5", "0x7f.1", &long, "*", "@"]
    {
        runtime().block_on(async {
            for mode in [TlsMode::Off, TlsMode::InsecureSkipVerify] {
                let strange = TicketBroker::builder().addrs([format!("{host}:1")]).tls(mode).connect().unwrap();
                assert!(!strange.wait_ready(Duration::from_millis(20)).await);
                strange.close().await;
            }
            let addrs = [format!("{host}:1"), server.address.clone()];
            let broker = TicketBroker::builder().addrs(addrs).connect().unwrap();
            assert_eq!(acquire(&broker, "k").await.unwrap().release().await, Ok(true), "{host}");
            broker.close().await;
        });
    }
}

#[test]
fn dropped_after_any_number_of_polls_nothing_stays_held() {
    let server = LockServer::start();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        assert!(broker.wait_ready(5 * SECOND).await);
        for polls in 0..400_u32 {
            {
                let mut asked = pin!(acquire(&broker, "k"));
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..polls {
                    if asked.as_mut().poll(&mut context).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            if polls % 40 == 0 {
                until("nothing is held", || server.holder("k").is_none()).await;
            }
        }
        assert!(broker.settled(6 * SECOND).await);
        assert_eq!(acquire(&broker, "k").await.unwrap().release().await, Ok(true));
        assert!(server.sessions() <= 2, "sessions were closed for what was dropped");
        broker.close().await;
    });
}

#[test]
fn what_was_not_written_is_not_when_a_server_does_not_read() {
    let server = LockServer::start();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        assert!(broker.wait_ready(5 * SECOND).await);
        server.read(false);
        // More than the kernel and one write hold.
        let mut asked: Vec<_> = (0..30_000)
            .map(|number| {
                let broker = broker.clone();
                Box::pin(async move { acquire(&broker, &format!("{number:0>128}")).await.map(drop) })
            })
            .collect();
        for one in &mut asked {
            assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(asked);
        server.read(true);
        until("all that was sent is given back", || server.acquires() > 0 && server.held() == 0).await;
        assert!(broker.settled(6 * SECOND).await);
        assert!(server.acquires() < 30_000, "all of them were sent");
        assert_eq!(server.held(), 0);
        broker.close().await;
    });
}

#[test]
fn the_longest_wait_is_never_written_as_longer_whatever_threads_ask() {
    let server = LockServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let broker = broker(&[&server]);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let (broker, key) = (broker.clone(), format!("k{task}"));
                tokio::spawn(async move {
                    for _ in 0..500 {
                        let ticket = broker.acquire(&key, 255 * SECOND, LEASE, Duration::ZERO).await?;
                        ticket.release().await?;
                    }
                    Ok::<(), TicketError>(())
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Ok(()));
        }
        assert_eq!(server.longest_wait(), 255);
        broker.close().await;
    });
}

#[test]
fn a_broker_may_be_made_outside_a_runtime_and_outlive_one() {
    let server = LockServer::start();
    let broker = broker(&[&server]);
    {
        let mut asked = pin!(acquire(&broker, "k"));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = asked.as_mut().poll(&mut context) else { panic!("no runtime runs") };
        assert!(matches!(error, TicketError::InvalidInput { field: "runtime", .. }), "{error}");
    }
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let runtime = runtime();
        let (first, queued) = runtime.block_on(async {
            let first = acquire(&broker, "k").await.unwrap();
            tokens.push(first.token());
            // Under way when the runtime ends.
            let waiter = broker.clone();
            let queued = tokio::spawn(async move { acquire(&waiter, "k").await.map(drop) });
            until("it is queued", || server.waiting("k") == 1).await;
            (first, queued)
        });
        drop(queued);
        drop(runtime);
        // Its sessions are gone with the runtime, and the next one begins anew.
        let runtime = self::runtime();
        runtime.block_on(async {
            assert_eq!(first.release().await, Ok(true));
            assert_eq!(acquire(&broker, "k").await.unwrap().release().await, Ok(true));
        });
    }
    assert!(tokens.is_sorted());
}

#[test]
fn what_ends_with_its_runtime_is_told_to_those_who_wait_elsewhere() {
    let server = LockServer::start();
    let first = runtime();
    let broker = first.block_on(async {
        let broker = broker(&[&server]);
        assert!(broker.wait_ready(5 * SECOND).await);
        broker
    });
    let second = runtime();
    let held = second.block_on(acquire(&broker, "k")).unwrap();
    let waiter = broker.clone();
    let sent = second.spawn(async move { acquire(&waiter, "k").await.map(drop) });
    second.block_on(until("it is queued", || server.waiting("k") == 1));
    drop(first);
    let lost = second.block_on(sent).unwrap().unwrap_err();
    assert_eq!(lost.kind(), TicketErrorKind::Indeterminate, "{lost}");
    assert_eq!(second.block_on(held.release()), Ok(true));
    second.block_on(broker.close());
}

#[test]
fn addresses_that_cannot_be_are_told_by_every_use() {
    runtime().block_on(async {
        let broker = TicketBroker::connect(["localhost"]);
        assert!(!broker.wait_ready(SECOND).await);
        for error in [
            acquire(&broker, "k").await.unwrap_err(),
            broker.release("k", 1).await.unwrap_err(),
            broker.try_wait_ready(SECOND).await.unwrap_err(),
            TicketBroker::builder().connect().unwrap_err(),
        ] {
            assert!(matches!(error, TicketError::InvalidInput { field: "addrs", .. }), "{error}");
        }
        broker.close().await;
    });
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    let server = LockServer::start();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        let zero = Duration::ZERO;
        for (key, wait, lease, budget, expected) in [
            ("", zero, SECOND, zero, "key"),
            ("a b", zero, SECOND, zero, "key"),
            ("k", 256 * SECOND, SECOND, zero, "wait"),
            ("k", zero, zero, zero, "lease"),
            ("k", zero, 251 * SECOND, zero, "lease"),
            ("k", zero, SECOND, SECOND + Duration::from_nanos(1), "min_work_budget"),
        ] {
            let error = broker.acquire(key, wait, lease, budget).await.unwrap_err();
            let TicketError::InvalidInput { field, value, range } = &error else { panic!("{error}") };
            assert_eq!(*field, expected);
            assert!(!value.is_empty() && !range.is_empty(), "{error}");
        }
        let ticket = acquire(&broker, "k").await.unwrap();
        assert!(matches!(
            ticket.extend(Duration::ZERO).await,
            Err(TicketError::InvalidInput { field: "lease", .. })
        ));
        assert_eq!(ticket.release().await, Ok(true));
        assert!(matches!(ticket.extend(None).await, Err(TicketError::InvalidInput { field: "ticket", .. })));
        assert_eq!(server.acquires(), 1);
        broker.close().await;
    });
}

#[test]
fn the_end_of_a_lease_reaches_the_holder_unasked() {
    let server = LockServer::start();
    let ahead = Arc::new(AtomicU64::new(0));
    runtime().block_on(async {
        let made = TicketBroker::builder().addrs([server.address.clone()]).clock(Clock::moved(ahead.clone()));
        let broker = made.connect().unwrap();
        let ticket = broker.acquire("k", 5 * SECOND, 60 * SECOND, 50 * SECOND).await.unwrap();
        let remaining = ticket.conservative_remaining();
        assert!(remaining <= Duration::from_millis(59_880) && remaining > 55 * SECOND, "{remaining:?}");
        let valid = ticket.conservative_valid_before();
        assert!(valid > std::time::Instant::now() + 50 * SECOND);
        assert!(!ticket.lost());
        // The machine was suspended, say: timers stood still.
        ahead.fetch_add(60 * NANOS, Ordering::SeqCst);
        assert!(ticket.lost());
        assert!(ticket.wait_lost().await);
        assert_eq!(ticket.conservative_remaining(), Duration::ZERO);
        assert_eq!(ticket.extend(None).await, Ok(false));
    });
}

#[test]
fn awaiting_the_loss_ends_with_the_release() {
    let server = LockServer::start();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        let ticket = acquire(&broker, "k").await.unwrap();
        let (lost, released) = tokio::join!(ticket.wait_lost(), async {
            tokio::task::yield_now().await;
            ticket.release().await
        });
        assert_eq!((lost, released), (false, Ok(true)));
        // And where somebody else ended it, it is lost.
        let ticket = acquire(&broker, "k").await.unwrap();
        server.revoke("k");
        let (lost, released) = tokio::join!(ticket.wait_lost(), ticket.release());
        assert_eq!((lost, released), (true, Ok(false)));
        broker.close().await;
    });
}

#[test]
fn releases_at_once_share_one_frame_and_its_answer() {
    let server = LockServer::start();
    // On one thread the connection's task runs after all three have been called, so no answer comes before.
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let broker = broker(&[&server]);
        let ticket = acquire(&broker, "k").await.unwrap();
        let (first, second, third) =
            tokio::join!(ticket.release(), ticket.release(), broker.release("k", ticket.token()));
        assert_eq!((first, second, third), (Ok(true), Ok(true), Ok(true)));
        assert_eq!(ticket.release().await, Ok(true));
        assert_eq!(broker.release("k", ticket.token()).await, Ok(false));
        assert_eq!(server.releases(), 2);
        // Dropped half-way it goes on, and can be called again.
        let ticket = acquire(&broker, "k").await.unwrap();
        {
            let mut release = pin!(ticket.release());
            assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(ticket.release().await, Ok(true));
        assert_eq!(server.releases(), 3);
        broker.close().await;
    });
}

#[test]
fn a_release_without_an_answer_is_an_error_after_five_seconds_and_can_be_repeated() {
    let server = LockServer::start();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        let ticket = acquire(&broker, "k").await.unwrap();
        server.stop_listening();
        server.cut();
        let began = std::time::Instant::now();
        let error = ticket.release().await.unwrap_err();
        assert_eq!(error.kind(), TicketErrorKind::Io, "{error}");
        assert!(began.elapsed() >= Duration::from_millis(4_990) && began.elapsed() < 20 * SECOND);
        server.listen_again().await;
        assert_eq!(ticket.release().await, Ok(true));
        broker.close().await;
    });
}

#[test]
fn nobody_listening_is_told_with_the_reason_when_the_wait_is_over() {
    let server = LockServer::start();
    server.stop_listening();
    runtime().block_on(async {
        let broker = broker(&[&server]);
        let error = broker.acquire("k", SECOND, SECOND, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), TicketErrorKind::Timeout);
        assert!(
            error.to_string().contains("cannot connect") && error.to_string().contains(&server.address),
            "{error}"
        );
        let error = broker.acquire("k", Duration::ZERO, SECOND, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), TicketErrorKind::NotConnected);
        let began = std::time::Instant::now();
        broker.close().await;
        assert!(began.elapsed() < 4 * SECOND);
    });
}
