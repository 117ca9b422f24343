//! What a caller holds: one grant, with its fencing token, its conservative end and its way back.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::arguments;
use crate::clock::{Nanos, SECOND};
use crate::core::requests::{Answer, DomainName, Errand, ErrandId, Key, Task};
use crate::core::{Core, ERRAND};
use crate::error::TicketError;
use crate::protocol::fields::escaped;
use crate::shared::Handle;

/// Timers stand still while the machine is suspended; the elapsed clock is asked this often.
const LOOK: Nanos = SECOND;

/// What outlives the caller's `Ticket` while an errand of it is under way.
#[derive(Debug)]
pub(crate) struct TicketState {
    key: Key,
    token: u64,
    /// `None` from a published server, which does not say.
    domain: Option<DomainName>,
    inner: Mutex<Inner>,
    /// Woken when the ticket was lost or released, or a release of it came to nothing.
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    end: Nanos,
    /// Seconds.
    lease: u16,
    lost: bool,
    /// What the first release that was answered said.
    result: Option<bool>,
    /// The release under way.
    releasing: Option<ErrandId>,
    /// Releases that came to nothing.
    failures: u64,
    /// A release was begun, whatever became of it.
    asked: bool,
}

impl TicketState {
    pub(crate) fn new(key: Key, token: u64, domain: Option<DomainName>, lease: u16, end: Nanos) -> Self {
        let inner = Inner { end, lease, lost: false, result: None, releasing: None, failures: 0, asked: false };
        Self { key, token, domain, inner: Mutex::new(inner), changed: Notify::new() }
    }

    /// One of which only key and token are known: nothing is left of its lease, and dropping it does nothing.
    fn of_token(key: Key, token: u64) -> Self {
        let state = Self::new(key, token, None, 1, 0);
        state.inner().asked = true;
        state
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for something about this ticket.
    pub(crate) fn tell(&self) {
        self.changed.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn end(&self) -> Nanos {
        self.inner().end
    }

    #[cfg(test)]
    pub(crate) fn is_lost(&self, now: Nanos) -> bool {
        self.inner().is_lost(now)
    }

    pub(crate) fn release_answered(&self, errand: ErrandId, answer: Answer) {
        let mut inner = self.inner();
        if inner.releasing == Some(errand) {
            inner.releasing = None;
        }
        match answer {
            Answer::Released => inner.result = Some(true),
            Answer::NotHeld => {
                inner.result = Some(false);
                inner.lost = true;
            }
            Answer::Extended | Answer::Nothing => inner.failures += 1,
        }
    }

    /// Counted from `moment`, before the first byte of the earliest unanswered extension could leave.
    pub(crate) fn take_extension(&self, answer: Answer, moment: Nanos, lease: u16, now: Nanos) {
        let mut inner = self.inner();
        if inner.is_lost(now) {
            // The end was seen, or could have been: an answer that comes later revives nothing.
            inner.lost = true;
        } else if answer == Answer::Extended {
            // The server never shortens: it takes the greater of the two leases.
            inner.lease = inner.lease.max(lease);
            inner.end = inner.end.max(moment + u64::from(inner.lease) * SECOND / 1000 * 998);
        } else if answer == Answer::NotHeld {
            inner.lost = true;
        }
    }
}

impl Inner {
    /// A ticket that was released in time is not lost by its end.
    fn is_lost(&self, now: Nanos) -> bool {
        self.lost || (self.result != Some(true) && now >= self.end)
    }
}

/// One grant. Made by [`TicketBroker::acquire`](crate::TicketBroker::acquire).
///
/// Dropping it puts a release into the broker's bounded queue, which tries for five seconds and tells nobody what came
/// of it: use [`release`](Self::release) where the result matters. Before a program returns from `main` it should wait
/// for [`TicketBroker::close`](crate::TicketBroker::close): there, a dropped ticket's release is written once as the
/// runtime ends, and nothing is tried again.
#[must_use = "a ticket that is dropped is given back"]
pub struct Ticket {
    state: Arc<TicketState>,
    handle: Arc<Handle>,
}

impl Ticket {
    pub(crate) fn new(handle: Arc<Handle>, state: TicketState) -> Self {
        Self { state: Arc::new(state), handle }
    }

    pub(crate) fn of_token(handle: Arc<Handle>, key: Key, token: u64) -> Self {
        Self::new(handle, TicketState::of_token(key, token))
    }

    /// The key that is held.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.state.key
    }

    /// The fencing token: larger than every earlier one of this cluster, below 2^62.
    ///
    /// In a database, compare it with the highest token of the key (token ≥ mark passes) and advance that mark in the
    /// transaction of the business write. Release after commit or rollback is known.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.state.token
    }

    /// The domain of the grant, `<first token>.<16 hex digits>`; `None` from a published server, which does not say.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.state.domain.as_deref()
    }

    /// What is left of the lease at least, by a fresh reading of the elapsed clock; zero once released or lost.
    ///
    /// No substitute for fencing: the process may stop right after the reading.
    #[must_use]
    pub fn conservative_remaining(&self) -> Duration {
        let over = self.domain_is_over();
        let now = self.handle.now();
        let inner = self.state.inner();
        if over || inner.lost || inner.result.is_some() {
            return Duration::ZERO;
        }
        Duration::from_nanos(inner.end.saturating_sub(now))
    }

    /// Until when the lease holds at least: now and [`conservative_remaining`](Self::conservative_remaining).
    ///
    /// For breaking off early, no substitute for fencing. An `Instant` stands still while the machine is suspended, so
    /// ask anew rather than keep it.
    #[must_use]
    pub fn conservative_valid_before(&self) -> Instant {
        Instant::now() + self.conservative_remaining()
    }

    /// Whether the lease is over or cannot be proved to go on: the server said that the token holds nothing, the
    /// domain is over, or the conservative end is reached. Needs no network. Once true it stays so.
    #[must_use]
    pub fn lost(&self) -> bool {
        let over = self.domain_is_over();
        let now = self.handle.now();
        let mut inner = self.state.inner();
        inner.lost |= inner.is_lost(now);
        over || inner.lost
    }

    /// Waits until the ticket is lost (true) or released (false).
    ///
    /// ```no_run
    /// # async fn example(ticket: ticketing::Ticket, work: impl Future<Output = ()>) {
    /// tokio::select! {
    ///     true = ticket.wait_lost() => eprintln!("the lease is over"),
    ///     () = work => {}
    /// }
    /// # }
    /// ```
    pub async fn wait_lost(&self) -> bool {
        let over = self.handle.with(|core| core.domain_over.clone());
        loop {
            let mut changed = pin!(self.state.changed.notified());
            let mut domain_over = pin!(over.notified());
            changed.as_mut().enable();
            domain_over.as_mut().enable();
            if self.lost() {
                return true;
            }
            let (released, end) = {
                let inner = self.state.inner();
                (inner.result.is_some(), inner.end)
            };
            if released {
                return false;
            }
            let left = end.saturating_sub(self.handle.now()).clamp(1, LOOK);
            tokio::select! {
                () = changed => {}
                () = domain_over => {}
                () = tokio::time::sleep(Duration::from_nanos(left)) => {}
            }
        }
    }

    fn domain_is_over(&self) -> bool {
        self.handle.with(|core| core.domains.is_over(self.state.domain.as_ref()))
    }

    /// Gives the key back. True: released. False: it was not held any more when the server looked.
    ///
    /// Tried again within five seconds from the first call, which calls made meanwhile share. Once answered, every
    /// further call returns the same; after a failure, or where the call was dropped, it can be called again. A dropped
    /// call goes on in the background.
    ///
    /// # Errors
    ///
    /// `Io` where no answer came within five seconds (the key may be held until its lease ends), or at once where too
    /// many releases are under way. `Closed` where the broker was closed.
    pub async fn release(&self) -> Result<bool, TicketError> {
        self.handle.bind()?;
        let mut changed = pin!(self.state.changed.notified());
        changed.as_mut().enable();
        let failures = match self.begin_release()? {
            Begun::Answered(result) => return Ok(result),
            Begun::UnderWay(failures) => failures,
        };
        loop {
            changed.as_mut().await;
            changed.set(self.state.changed.notified());
            changed.as_mut().enable();
            let inner = self.state.inner();
            if let Some(result) = inner.result {
                return Ok(result);
            }
            if inner.failures > failures {
                return Err(TicketError::Io {
                    detail: format!(
                        "no answer to the release of '{}' within {} s: it may be held until its lease ends, and can be \
                         released again",
                        escaped(self.state.key.as_bytes()),
                        ERRAND / SECOND
                    ),
                });
            }
        }
    }

    fn begin_release(&self) -> Result<Begun, TicketError> {
        let now = self.handle.now();
        let state = &self.state;
        self.handle.with(|core| {
            let mut inner = state.inner();
            if let Some(result) = inner.result {
                return Ok(Begun::Answered(result));
            }
            if inner.releasing.is_some() {
                return Ok(Begun::UnderWay(inner.failures));
            }
            closed(core)?;
            inner.asked = true;
            let failures = inner.failures;
            // An errand of a domain that is over is answered right away.
            drop(inner);
            let mut errand = Errand::release(state.token, state.key.clone(), state.domain.clone(), now + ERRAND);
            errand.ticket = Some(state.clone());
            let Some(id) = core.run(errand, now) else {
                return Err(too_many(&state.key));
            };
            let mut inner = state.inner();
            if inner.result.is_none() && inner.failures == failures {
                inner.releasing = Some(id);
            }
            Ok(inner.result.map_or(Begun::UnderWay(failures), Begun::Answered))
        })
    }

    /// Has the lease counted anew: `lease` (1 to 250 s, rounded up), by default as long as before; never less than was
    /// left. True: extended. False: nothing is held any more, and the ticket is lost. A lost ticket is never revived.
    ///
    /// A dropped call goes on in the background.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the lease is out of range, or the ticket is released or being released. `Io` where no
    /// answer came within five seconds: the conservative end is as before. `Closed` where the broker was closed.
    pub async fn extend(&self, lease: impl Into<Option<Duration>>) -> Result<bool, TicketError> {
        let lease = match lease.into() {
            Some(lease) => Some(arguments::lease(lease)?),
            None => None,
        };
        self.handle.bind()?;
        let Some(answer) = self.begin_extension(lease)? else { return Ok(false) };
        match answer.await {
            Ok(Answer::Extended) => Ok(!self.lost()),
            Ok(Answer::NotHeld) => Ok(false),
            _ => Err(TicketError::Io {
                detail: format!(
                    "no answer to the extension of '{}': its lease may end as it was",
                    escaped(self.state.key.as_bytes())
                ),
            }),
        }
    }

    fn begin_extension(&self, lease: Option<u16>) -> Result<Option<oneshot::Receiver<Answer>>, TicketError> {
        let now = self.handle.now();
        let state = &self.state;
        self.handle.with(|core| {
            let inner = state.inner();
            if inner.result.is_some() || inner.releasing.is_some() {
                return Err(TicketError::InvalidInput {
                    field: "ticket",
                    value: format!("the ticket for '{}', which is released", escaped(state.key.as_bytes())),
                    range: "a ticket that is held".to_owned(),
                });
            }
            if inner.is_lost(now) || core.domains.is_over(state.domain.as_ref()) {
                return Ok(None);
            }
            let lease = lease.unwrap_or(inner.lease);
            drop(inner);
            closed(core)?;
            let (reply, answer) = oneshot::channel();
            let mut errand = Errand::release(state.token, state.key.clone(), state.domain.clone(), now + ERRAND);
            errand.task = Task::Extend(lease);
            errand.ticket = Some(state.clone());
            errand.reply = Some(reply);
            core.run(errand, now).map(|_| Some(answer)).ok_or_else(|| too_many(&state.key))
        })
    }
}

enum Begun {
    Answered(bool),
    /// With the failures that were counted before.
    UnderWay(u64),
}

/// `Closed` where nothing is taken any more.
pub(crate) fn closed(core: &Core) -> Result<(), TicketError> {
    core.over().map_or(Ok(()), |over| Err(TicketError::Closed { detail: format!("{over}; nothing was sent") }))
}

fn too_many(key: &Key) -> TicketError {
    TicketError::Io {
        detail: format!(
            "too many releases and extensions are under way; '{}' may be held until its lease ends",
            escaped(key.as_bytes())
        ),
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = self.handle.now();
        let state = &self.state;
        self.handle.with(|core| {
            let inner = state.inner();
            if !inner.asked && inner.result.is_none() {
                drop(inner);
                core.compensate(state.token, state.key.clone(), state.domain.clone(), now);
            }
        });
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remaining = self.conservative_remaining();
        formatter
            .debug_struct("Ticket")
            .field("key", &self.key())
            .field("token", &self.token())
            .field("remaining", &remaining)
            .finish_non_exhaustive()
    }
}
