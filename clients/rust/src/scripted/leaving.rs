//! A broker that is left: with its runtime, closed, dropped. What its holders gave back by then is sent.

use std::future::Future;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::runtime::{Builder, Handle, Runtime};

use super::server::LockServer;
use super::{SECOND, acquire, broker, no_more_tasks_than, runtime, until};
use crate::clock::{Clock, SECOND as NANOS};
use crate::{TicketBroker, TicketErrorKind, TlsMode};

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread().enable_all().build().expect("a runtime"), runtime()]
}

#[test]
fn what_is_dropped_as_the_runtime_ends_is_released() {
    let server = LockServer::start();
    for runtime in runtimes() {
        // As a program that returns from its `main`.
        runtime.block_on(async {
            let broker = broker(&[&server]);
            let mut tickets = Vec::new();
            for key in 0..6 {
                tickets.push(acquire(&broker, &key.to_string()).await.unwrap());
            }
            assert_eq!(server.held(), 6);
        });
        drop(runtime);
        super::runtime().block_on(until("all are released", || server.held() == 0));
    }
}

#[test]
fn what_tasks_hold_that_end_with_their_runtime_is_released() {
    let server = LockServer::start();
    for runtime in runtimes() {
        // The broker outlives them, as in a static.
        let broker = runtime.block_on(async { broker(&[&server]) });
        runtime.block_on(async {
            for key in 0..6 {
                let broker = broker.clone();
                tokio::spawn(async move {
                    let _held = acquire(&broker, &key.to_string()).await;
                    std::future::pending::<()>().await;
                });
            }
            until("they hold", || server.held() == 6).await;
            // And one that waits for what another one holds.
            let waiter = broker.clone();
            tokio::spawn(async move { acquire(&waiter, "0").await.map(drop) });
            until("it is queued", || server.waiting("0") == 1).await;
        });
        drop(runtime);
        let next = super::runtime();
        next.block_on(until("all are released", || server.held() == 0 && server.waiting("0") == 0));
        next.block_on(broker.close());
    }
}

#[test]
fn a_ticket_that_outlives_the_runtime_of_its_broker_is_released_when_it_is_dropped() {
    let server = LockServer::start();
    for runtime in runtimes() {
        let ticket = runtime.block_on(async { acquire(&broker(&[&server]), "k").await.unwrap() });
        drop(runtime);
        assert_eq!(server.holder("k"), Some(ticket.token()));
        drop(ticket);
        super::runtime().block_on(until("it is released", || server.holder("k").is_none()));
    }
}

#[test]
fn a_runtime_that_has_ended_already_is_told_and_nobody_waits_for_it() {
    let server = LockServer::start();
    let first = runtime();
    let broker = first.block_on(async { broker(&[&server]) });
    let held = first.block_on(acquire(&broker, "k")).unwrap();
    let ended = first.handle().clone();
    drop(first);
    // Inside of one that starts no task any more; Tokio allows it.
    let _inside = ended.enter();
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = pin!(held.release()).poll(&mut context) else { panic!("it waits") };
    assert_eq!(error.kind(), TicketErrorKind::Closed, "{error}");
    let Poll::Ready(Err(error)) = pin!(held.extend(None)).poll(&mut context) else { panic!("it waits") };
    assert_eq!(error.kind(), TicketErrorKind::Closed, "{error}");
    let Poll::Ready(Err(error)) = pin!(acquire(&broker, "other")).poll(&mut context) else { panic!("it waits") };
    assert!(error.kind() == TicketErrorKind::Closed && error.to_string().contains("runtime"), "{error}");
    let Poll::Ready(()) = pin!(broker.close()).poll(&mut context) else { panic!("it waits") };
}

#[test]
fn one_who_waits_for_a_session_while_the_runtime_of_the_broker_ends_has_it_bound_anew() {
    let server = LockServer::start();
    server.stop_listening();
    let first = runtime();
    let broker = first.block_on(async { broker(&[&server]) });
    let second = runtime();
    second.block_on(async {
        let mut ready = pin!(broker.wait_ready(60 * SECOND));
        assert!(ready.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::task::spawn_blocking(move || drop(first)).await.expect("no panic");
        server.listen_again().await;
        assert!(ready.await);
        broker.close().await;
    });
}

#[test]
fn all_who_close_wait_for_the_end_and_one_who_does_not_is_no_hindrance() {
    let server = LockServer::start();
    // On one thread nothing is done before it is awaited.
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let before = Handle::current().metrics().num_alive_tasks();
        let broker = broker(&[&server]);
        let ticket = acquire(&broker, "k").await.unwrap();
        drop(ticket);
        drop(broker.close());
        let mut closing = [broker.close(), broker.close()];
        {
            let mut left = pin!(broker.close());
            assert!(left.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        for one in &mut closing {
            one.await;
        }
        assert_eq!(server.holder("k"), None);
        no_more_tasks_than(before).await;
    });
}

#[test]
fn what_was_written_before_the_end_is_read_by_a_server_that_is_late() {
    const TICKETS: usize = 1_000;
    let server = LockServer::start();
    let ahead = Arc::new(AtomicU64::new(0));
    // On one thread they are queued before the first is taken.
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let made = TicketBroker::builder().addrs([server.address.clone()]).clock(Clock::moved(ahead.clone()));
        let broker = made.connect().unwrap();
        let mut tickets = Vec::new();
        for number in 0..TICKETS {
            tickets.push(acquire(&broker, &format!("{number:0>128}")).await.unwrap());
        }
        server.read(false);
        // More than the server's kernel takes, in one write of the session.
        drop(tickets);
        let closing = broker.close();
        until("all are taken by the session", || broker.unwritten() == 0).await;
        // Nothing is answered within five seconds.
        ahead.fetch_add(5 * NANOS, Ordering::SeqCst);
        broker.look();
        until("the sessions are over", || broker.sessions() == 0).await;
        server.read(true);
        closing.await;
    });
    runtime().block_on(until("all are released", || server.held() == 0));
    assert_eq!(server.releases(), TICKETS);
}

/// Closes one broker in the middle of connecting, and ends a runtime with another; false where that took a step's time.
fn ends_within_a_step(mute: &TcpListener, mode: &TlsMode) -> bool {
    let address = mute.local_addr().unwrap().to_string();
    let made = || {
        let addrs = [address.clone(), "name.invalid:1".to_owned()];
        TicketBroker::builder().addrs(addrs).tls(mode.clone()).connect().unwrap()
    };
    let runtime = runtime();
    let began = Instant::now();
    runtime.block_on(async {
        let broker = made();
        mute.accept().unwrap();
        broker.close().await;
        no_more_tasks_than(0).await;
    });
    let _left = runtime.block_on(async { made() });
    mute.accept().unwrap();
    drop(runtime);
    began.elapsed() < 3 * SECOND
}

#[test]
fn a_broker_is_closed_in_the_middle_of_connecting_and_a_runtime_ends_there() {
    // Takes connections and says nothing, TLS or not.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    for mode in [TlsMode::Off, TlsMode::InsecureSkipVerify] {
        // Once is enough on a busy machine: a step that is waited for always takes its time.
        assert!((0..5).any(|_| ends_within_a_step(&mute, &mode)), "a step of connecting was waited for");
    }
}
