//! The core behind its lock, and what has to happen outside of it.
//!
//! The lock is held for moments only and never across an `await`. Wakers are woken, and dropped, after it is released:
//! they may run anything, the drop of a ticket among it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime;

use crate::arguments;
use crate::clock::{Clock, Nanos};
use crate::connection;
use crate::core::requests::SessionId;
use crate::core::{Core, Deferred, Settings};
use crate::error::TicketError;
use crate::keeper;
use crate::parting::{Parting, Socket};
use crate::random::Random;
use crate::tls::Connector;

/// What the tasks of a broker share. They end when no [`Handle`] is left.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Locked by itself, never together with the core.
    parting: Mutex<Parting>,
    pub(crate) clock: Clock,
    /// `None` without TLS.
    pub(crate) tls: Option<Connector>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, tls: Option<Connector>, clock: Clock) -> Arc<Self> {
        let core = Mutex::new(Core::new(settings, Random::new()));
        Arc::new(Self { core, parting: Mutex::default(), clock, tls })
    }

    /// Does something with the core, then what came of it outside the lock.
    pub(crate) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut Core) -> R) -> R {
        let (result, deferred) = {
            // A panic in here would be a fault of ours; it must not take down those who only drop a ticket.
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&mut core);
            (result, core.take_deferred())
        };
        for one in deferred {
            self.act(one);
        }
        result
    }

    fn parting(&self) -> MutexGuard<'_, Parting> {
        self.parting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task of a session is dropped with its runtime, and leaves this.
    pub(crate) fn leave(self: &Arc<Self>, session: SessionId, socket: Socket) {
        let stays = self.with(|core| core.session_left(session));
        self.parting().take(session, socket, stays);
    }

    fn act(self: &Arc<Self>, deferred: Deferred) {
        match deferred {
            Deferred::Wake(waker) => waker.wake(),
            Deferred::Drop(waker) => drop(waker),
            Deferred::Notify(one) => one.notify_one(),
            Deferred::NotifyAll(all) => all.notify_waiters(),
            Deferred::Ticket(ticket) => ticket.tell(),
            Deferred::Reply(reply, answer) => {
                // Its caller may be gone.
                reply.send(answer).ok();
            }
            Deferred::Dial(runtime, id, address, wake) => {
                let guard = TaskGuard { shared: self.clone(), id };
                runtime.spawn(connection::run(guard, id, address, wake));
            }
            Deferred::Keep(runtime, id) => {
                let guard = TaskGuard { shared: self.clone(), id };
                runtime.spawn(keeper::run(guard));
            }
            Deferred::Say(session, words) => self.parting().say(session, &words),
            Deferred::Rejoin => self.parting().rejoin(),
        }
    }
}

/// Tells the core when a task ends, be it by the end of its runtime.
pub(crate) struct TaskGuard {
    pub(crate) shared: Arc<Shared>,
    id: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let id = self.id;
        self.shared.with(|core| core.task_gone(id));
    }
}

/// What brokers, tickets and calls hold. With the last of them the broker is closed.
pub(crate) struct Handle {
    shared: Arc<Shared>,
    /// Why the broker cannot be used: what it was made with.
    unusable: Option<TicketError>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, unusable: Option<TicketError>) -> Arc<Self> {
        Arc::new(Self { shared, unusable })
    }

    pub(crate) fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Core) -> R) -> R {
        self.shared.with(work)
    }

    /// Begins to dial on the runtime that runs, where that was not begun.
    pub(crate) fn bind(&self) -> Result<(), TicketError> {
        if let Some(error) = &self.unusable {
            return Err(error.clone());
        }
        if self.with(|core| core.bound() || core.closed) {
            return Ok(());
        }
        let runtime = runtime::Handle::try_current().map_err(|_| arguments::no_runtime())?;
        self.with(|core| core.bind(runtime));
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let now = self.now();
        self.with(|core| core.shut(now));
    }
}
