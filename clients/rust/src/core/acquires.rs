//! Acquires: asked, placed on a session, written, answered, left.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::requests::{Acquire, Errand, Key, Outcome, RequestId, SessionId, State};
use super::session::{EndKind, Item};
use super::{Core, Deferred, ERRAND, Orders};
use crate::clock::{NEVER, Nanos, SECOND};
use crate::protocol::fields::{OWNER_TOP_BIT, WAIT_MAX};
use crate::random;

/// Acquires of one broker that are not sent yet; more are refused.
pub(crate) const UNSENT_MAX: usize = 100_000;
/// Frames in one write at most, so that a session's other duties get their turn.
const BATCH: usize = 1024;
/// Owners drawn at a time, as it is a call of the system.
const OWNERS: usize = 64;
/// The alarm of the waiting keeps this distance for each of them, so looking takes a small share of the time.
const SCAN: Nanos = 2_000;

impl Core {
    /// Takes an acquire and places it; `None` where there are too many that are not sent.
    pub(crate) fn ask(&mut self, key: Key, wait_end: Nanos, lease: u16, named: bool) -> Option<RequestId> {
        if self.unsent >= UNSENT_MAX {
            return None;
        }
        let id = self.new_id();
        let state = State::Queued(None);
        self.requests.insert(id, Acquire { key, wait_end, lease, named, state, waker: None });
        self.unsent += 1;
        self.place(id);
        Some(id)
    }

    /// Puts an unsent acquire on a session, or lets it wait for one.
    ///
    /// A try without wait does not wait for one; like a request that was asked again after a `V`, it goes only to a
    /// session that an `L` names.
    pub(super) fn place(&mut self, id: RequestId) {
        let Some((wait_end, named)) = self.requests.get(&id).map(|one| (one.wait_end, one.named)) else {
            return;
        };
        if let Some(session) = self.choose(named || wait_end == 0) {
            self.queue_acquire(id, session);
        } else if self.closed || !self.bound() {
            self.settle(id, Outcome::Shut);
        } else if let Some(end) = self.refusal.clone() {
            self.settle(id, Outcome::Refused(end));
        } else if wait_end == 0 {
            self.settle(id, Outcome::NoSession);
        } else {
            if let Some(request) = self.requests.get_mut(&id) {
                request.state = State::Queued(None);
            }
            self.waiting.insert(id);
            self.look_by(wait_end);
        }
    }

    fn queue_acquire(&mut self, id: RequestId, session: SessionId) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.state = State::Queued(Some(session));
            self.submit(session, Item::Acquire(id));
        }
    }

    /// Has something written on a session that is there.
    pub(super) fn submit(&mut self, id: SessionId, item: Item) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let idle = session.queue.is_empty();
        session.queue.push_back(item);
        let connection = session.connection;
        if idle {
            if let Some(connection) = self.connection(connection) {
                let wake = connection.wake.clone();
                self.deferred.push(Deferred::Notify(wake));
            }
        }
    }

    /// Places those that wait, now that there may be a session for them.
    pub(super) fn pump(&mut self) {
        if self.waiting.is_empty() || (self.chosen.is_none() && self.unknown.is_empty()) {
            return;
        }
        for id in std::mem::take(&mut self.waiting) {
            let named = self.requests.get(&id).is_some_and(|request| request.named);
            match self.choose(named) {
                Some(session) => self.queue_acquire(id, session),
                None => {
                    self.waiting.insert(id);
                }
            }
        }
    }

    /// Fixes what became of an acquire, once.
    pub(super) fn settle(&mut self, id: RequestId, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        match request.state {
            State::Answered(_) => return,
            State::Queued(_) => {
                self.unsent -= 1;
                self.waiting.remove(&id);
            }
            State::Sent(..) => {}
        }
        request.state = State::Answered(outcome);
        if let Some(waker) = request.waker.take() {
            self.deferred.push(Deferred::Wake(waker));
        }
    }

    /// The outcome, for the caller, which takes it and is done.
    pub(crate) fn poll_acquire(&mut self, id: RequestId, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(request) = self.requests.get_mut(&id) else {
            return Poll::Ready(Outcome::Shut);
        };
        if !matches!(request.state, State::Answered(_)) {
            if !request.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                if let Some(old) = request.waker.replace(context.waker().clone()) {
                    self.deferred.push(Deferred::Drop(old));
                }
            }
            return Poll::Pending;
        }
        match self.requests.remove(&id).map(|request| request.state) {
            Some(State::Answered(outcome)) => Poll::Ready(outcome),
            _ => Poll::Ready(Outcome::Shut),
        }
    }

    /// The caller is gone before it took the outcome.
    ///
    /// Unsent, it is taken back. Sent, it is cancelled on its own session, in the background. A grant that was read is
    /// given back by its exact token.
    pub(crate) fn leave(&mut self, id: RequestId, now: Nanos) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        if let Some(waker) = request.waker.take() {
            self.deferred.push(Deferred::Drop(waker));
        }
        match request.state {
            State::Queued(session) => {
                self.unsent -= 1;
                self.waiting.remove(&id);
                if let Some(session) = session {
                    self.tidy(session);
                }
            }
            State::Sent(session, owner) => self.abandon(session, owner, request.key, now),
            State::Answered(Outcome::Granted(grant)) => {
                self.compensate(grant.token, request.key, grant.domain, now);
            }
            State::Answered(_) => {}
        }
    }

    /// Drops what was taken back from a queue that is not being written.
    fn tidy(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.queue.len() > 2 * (self.unsent + self.errands.len()) + BATCH {
            let (requests, errands) = (&self.requests, &self.errands.open);
            session.queue.retain(|item| match item {
                Item::Acquire(id) => requests.contains_key(id),
                Item::Errand(id) => errands.contains_key(id),
                Item::Cancel(..) => true,
            });
        }
    }

    /// Gives up an acquire that was sent. Published servers know no cancel; what their documents say is done there: the
    /// session is closed.
    fn abandon(&mut self, id: SessionId, owner: u64, key: Key, now: Nanos) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.abandon(owner);
        if !session.extended {
            return self.close_session(id, EndKind::Closed, "a request was cancelled", now);
        }
        let mut cancel = Errand::cancel(owner, key.clone(), session.domain.clone(), now + ERRAND);
        cancel.fatal = true;
        cancel.session = Some(id);
        if let Some(errand) = self.errands.take(cancel) {
            self.look_by(now + ERRAND);
            self.submit(id, Item::Errand(errand));
        } else {
            log::warn!("too many errands: the cancel of a request has one try");
            self.submit(id, Item::Cancel(owner, key));
        }
    }

    /// What a connection's task has to write now, appended to `out` where there is `room` for it.
    pub(crate) fn orders(&mut self, id: SessionId, room: bool, out: &mut Vec<u8>, now: Nanos) -> Orders {
        if room {
            self.write(id, out, now);
        }
        match self.sessions.get(&id) {
            Some(session) => Orders::Until(session.look_at()),
            None if self.parting.is_some() => Orders::Leave,
            // Only the end of the broker lets a session finish what it has to say.
            None => Orders::Over { flush: self.closed, awaited: self.awaited },
        }
    }

    /// Up to here a request is unsent; `now` was read before anything can leave, and after the requests were asked: or a
    /// wait of 255 s could be written as 256.
    fn write(&mut self, id: SessionId, out: &mut Vec<u8>, now: Nanos) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.take_out(out);
        let mut frames = 0;
        while frames < BATCH {
            let Some(session) = self.sessions.get_mut(&id).filter(|session| session.open) else { return };
            let before = out.len();
            match session.queue.pop_front() {
                None => return,
                Some(Item::Cancel(owner, key)) => session.write_cancel(out, owner, key, now),
                Some(Item::Errand(errand_id)) => {
                    if let Some(errand) = self.errands.open.get(&errand_id).filter(|one| one.session == Some(id)) {
                        session.write_errand(out, errand_id, errand, now);
                    }
                }
                Some(Item::Acquire(request_id)) => self.write_acquire(id, request_id, out, now),
            }
            // What was taken back does not count: nobody would come back for the rest of the queue.
            frames += usize::from(out.len() > before);
        }
    }

    fn write_acquire(&mut self, id: SessionId, request_id: RequestId, out: &mut Vec<u8>, now: Nanos) {
        let Some(request) = self.requests.get(&request_id) else { return };
        if !matches!(request.state, State::Queued(Some(session)) if session == id) {
            return;
        }
        // What is left of the wait, rounded up.
        let wait = match request.wait_end {
            0 => 0,
            end if end <= now => return self.settle(request_id, Outcome::WaitOver),
            end => u16::try_from((end - now).div_ceil(SECOND)).unwrap_or(u16::MAX),
        };
        debug_assert!(u64::from(wait) <= WAIT_MAX, "a wait of {wait} s");
        let Some(owner) = self.draw_owner() else {
            return self.close_session(id, EndKind::Io, "the system has no randomness", now);
        };
        let (Some(session), Some(request)) = (self.sessions.get_mut(&id), self.requests.get_mut(&request_id))
        else {
            return;
        };
        session.write_acquire(out, request_id, &request.key, owner, wait, request.lease, now);
        request.state = State::Sent(id, owner);
        self.unsent -= 1;
    }

    /// 63 bits of the system's random source and the top bit, never used again.
    fn draw_owner(&mut self) -> Option<u64> {
        if self.owners.is_empty() {
            let mut bytes = [0; 8 * OWNERS];
            if let Err(error) = random::system(&mut bytes) {
                log::error!("{error}");
                return None;
            }
            let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
            self.owners.extend(words);
        }
        self.owners.pop().map(|word| word | OWNER_TOP_BIT)
    }

    pub(super) fn look_at_acquires(&mut self, now: Nanos) -> Nanos {
        let mut next = NEVER;
        for id in self.waiting.iter().copied().collect::<Vec<_>>() {
            let Some(request) = self.requests.get(&id) else { continue };
            if now >= request.wait_end {
                self.settle(id, Outcome::WaitOver);
            } else {
                next = next.min(request.wait_end);
            }
        }
        if next == NEVER { NEVER } else { next.max(now + SCAN * self.waiting.len() as Nanos) }
    }

    /// The broker takes nothing new: what was not sent is over, what was is cancelled, and a grant that was read and
    /// that its caller has yet to take is given back.
    pub(super) fn shut_acquires(&mut self, now: Nanos) {
        let mut open: Vec<RequestId> = self.requests.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let key = request.key.clone();
            match &mut request.state {
                State::Queued(_) => self.settle(id, Outcome::Shut),
                State::Sent(session, owner) => {
                    let (session, owner) = (*session, *owner);
                    self.abandon(session, owner, key, now);
                    self.settle(id, Outcome::Lost);
                }
                State::Answered(outcome) => {
                    if let Outcome::Granted(grant) = std::mem::replace(outcome, Outcome::Lost) {
                        self.compensate(grant.token, key, grant.domain, now);
                    }
                }
            }
        }
    }

    /// Nothing is sent or answered any more.
    pub(super) fn abandon_all(&mut self) {
        for id in self.requests.keys().copied().collect::<Vec<_>>() {
            let sent = self.requests.get(&id).is_some_and(|one| matches!(one.state, State::Sent(..)));
            self.settle(id, if sent { Outcome::Lost } else { Outcome::Shut });
        }
        self.waiting.clear();
        self.stop_errands(0);
        self.errands.stopped = false;
        let (ready, over) = (Arc::clone(&self.ready), Arc::clone(&self.domain_over));
        self.notify_all(&ready);
        self.notify_all(&over);
    }
}
