//! The life of errands: run, sent, answered or tried again, over.

use std::sync::Arc;

use super::requests::{Answer, DomainName, Errand, ErrandId, Key, Task};
use super::session::Item;
use super::{Core, Deferred, ERRAND};
use crate::clock::{NEVER, Nanos};

/// Alarms keep this distance for each errand that is looked at, so looking takes a small share of the time.
const SCAN: Nanos = 2_000;

impl Core {
    /// Takes an errand; `None` where there are too many.
    pub(crate) fn run(&mut self, errand: Errand, now: Nanos) -> Option<ErrandId> {
        let deadline = errand.deadline;
        let id = self.errands.take(errand)?;
        self.look_by(deadline);
        self.send(id, now);
        Some(id)
    }

    /// Releases, in the background, a grant that nobody gets.
    pub(crate) fn compensate(&mut self, token: u64, key: Key, domain: Option<DomainName>, now: Nanos) {
        if !self.bound() {
            return self.release_in_parting(token, &key, domain.as_ref());
        }
        if self.run(Errand::release(token, key, domain, now + ERRAND), now).is_none() {
            log::warn!("too many errands: a grant is left to its lease");
        }
    }

    fn send(&mut self, id: ErrandId, now: Nanos) {
        let Some(errand) = self.errands.open.get(&id) else { return };
        let extended = errand.task != Task::Release;
        if self.domains.is_over(errand.domain.as_ref()) {
            // No domain ever comes back: nothing of it is held.
            return self.answered(id, Answer::NotHeld, now);
        }
        let session = self.errand_session(extended);
        let Some(errand) = self.errands.open.get_mut(&id) else { return };
        errand.session = session;
        match session {
            Some(session) => self.submit(session, Item::Errand(id)),
            None => {
                self.errands.waiting.insert(id);
            }
        }
    }

    /// A try came to nothing.
    pub(super) fn back(&mut self, id: ErrandId, now: Nanos) {
        if let Some(errand) = self.errands.open.get_mut(&id) {
            errand.session = None;
            errand.fatal = false;
            self.send(id, now);
        }
    }

    /// Something about sessions has changed.
    pub(super) fn pump_errands(&mut self, now: Nanos) {
        if self.errands.waiting.is_empty() || self.errand_session(false).is_none() {
            return;
        }
        for id in std::mem::take(&mut self.errands.waiting) {
            self.send(id, now);
        }
    }

    /// Ends what belongs to a domain that is over.
    pub(super) fn errands_of_domains_that_are_over(&mut self, now: Nanos) {
        let domains = &self.domains;
        let mut over: Vec<ErrandId> = self
            .errands
            .open
            .iter()
            .filter(|(_, errand)| domains.is_over(errand.domain.as_ref()))
            .map(|(id, _)| *id)
            .collect();
        over.sort_unstable();
        for id in over {
            self.answered(id, Answer::NotHeld, now);
        }
    }

    /// The first of these extensions that is still wanted has its answer.
    pub(super) fn extended(
        &mut self,
        candidates: &[ErrandId],
        answer: Answer,
        moment: Nanos,
        lease: u16,
        now: Nanos,
    ) {
        let wanted = candidates.iter().find_map(|id| Some((*id, self.errands.open.get(id)?)));
        let Some((id, errand)) = wanted else { return };
        if let Some(ticket) = errand.ticket.as_ref().filter(|_| answer == Answer::Extended) {
            ticket.take_extension(answer, moment, lease, now);
        }
        self.answered(id, answer, now);
    }

    /// Ends an errand.
    pub(super) fn answered(&mut self, id: ErrandId, answer: Answer, now: Nanos) {
        let Some(mut errand) = self.errands.end(id, answer != Answer::Nothing) else { return };
        if answer == Answer::Nothing {
            if let Some(session) = errand.session.and_then(|id| self.sessions.get_mut(&id)) {
                session.forget(id, &errand);
            }
        }
        if let Some(ticket) = errand.ticket.take() {
            match errand.task {
                Task::Release => ticket.release_answered(id, answer),
                // What an `X` gives was counted already.
                Task::Extend(_) if answer != Answer::Extended => ticket.take_extension(answer, 0, 0, now),
                _ => {}
            }
            self.deferred.push(Deferred::Ticket(ticket));
        }
        if let Some(reply) = errand.reply.take() {
            self.deferred.push(Deferred::Reply(reply, answer));
        }
        if self.errands.watched() {
            let settling = Arc::clone(&self.settling);
            self.notify_all(&settling);
        }
        if self.closed && self.errands.len() == 0 {
            let keeper = Arc::clone(self.keeper());
            self.deferred.push(Deferred::Notify(keeper));
        }
    }

    pub(super) fn look_at_errands(&mut self, now: Nanos) -> Nanos {
        let (over, next) = self.errands.over(now);
        for id in over {
            self.answered(id, Answer::Nothing, now);
        }
        if next == NEVER { NEVER } else { next.max(now + SCAN * self.errands.len() as Nanos) }
    }

    /// Ends what is left without an answer, and takes no more.
    pub(super) fn stop_errands(&mut self, now: Nanos) {
        self.errands.stopped = true;
        let mut left: Vec<ErrandId> = self.errands.open.keys().copied().collect();
        left.sort_unstable();
        for id in left {
            self.answered(id, Answer::Nothing, now);
        }
    }
}
