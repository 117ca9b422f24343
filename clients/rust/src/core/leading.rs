//! Sessions: who leads, which of them acquires and errands go to, and what is left of one that has ended.

use super::domain::Verdict;
use super::requests::{ConnectionId, Errand, Outcome, SessionId, State};
use super::session::{EndKind, Event, Item, Session, Standing};
use super::{Core, Deferred, ERRAND, UNLISTED_MAX};
use crate::clock::Nanos;
use crate::protocol::fields::address_problem;
use crate::protocol::frames::{BUSY, TIMEOUT};

impl Core {
    /// Takes bytes of a server.
    pub(crate) fn received(&mut self, id: SessionId, data: &[u8], now: Nanos) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.received(data, now);
        while let Some(event) = self.sessions.get_mut(&id).and_then(|session| session.next_event(now)) {
            self.happened(id, event, now);
        }
        self.look_for_end(id, now);
    }

    fn happened(&mut self, id: SessionId, event: Event, now: Nanos) {
        match event {
            Event::Ready => self.session_ready(id, now),
            Event::Named(address) => self.session_named(id, &address, now),
            Event::Moved(address) => {
                self.session_named(id, &address, now);
                self.close_session(id, EndKind::Io, &format!("the server sends us to {address}"), now);
            }
            Event::Disowned => self.session_disowned(id, now),
            Event::Serves => {
                // Whether or not it said so.
                self.follow(id, now);
            }
            Event::Granted(request, grant) => self.settle(request, Outcome::Granted(grant)),
            Event::Unwanted(token, key) => {
                let domain = self.sessions.get(&id).and_then(|session| session.domain.clone());
                self.compensate(token, key, domain, now);
            }
            Event::Refused(request, opcode) => self.settle(
                request,
                match opcode {
                    TIMEOUT => Outcome::Timeout,
                    BUSY => Outcome::Busy,
                    _ => Outcome::NotLeading,
                },
            ),
            Event::Answered(errands, answer) => {
                for errand in errands {
                    self.answered(errand, answer, now);
                }
            }
            Event::Extended { candidates, answer, moment, lease } => {
                self.extended(&candidates, answer, moment, lease, now);
            }
        }
    }

    /// Nothing more will be read of a session.
    pub(crate) fn transport_lost(&mut self, id: SessionId, detail: &str, now: Nanos) {
        self.close_session(id, EndKind::Io, detail, now);
    }

    /// Looks at a session's deadlines.
    pub(crate) fn woken(&mut self, id: SessionId, now: Nanos) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        for errand in session.woken(now) {
            self.back(errand, now);
        }
        self.look_for_end(id, now);
    }

    // --- what sessions report

    fn session_ready(&mut self, id: SessionId, now: Nanos) {
        let Some(session) = self.sessions.get(&id) else { return };
        log::debug!(
            "{}: session open, leader {}",
            session.address,
            session.leader.as_deref().unwrap_or("unknown")
        );
        let (connection, leader) = (session.connection, session.leader.clone());
        self.order.push(id);
        if let Some(connection) = self.connection(connection) {
            connection.refusal = None;
        }
        self.refusal = None;
        // What a banner says counts only once its node names a serving leader.
        match leader {
            Some(leader) => self.session_named(id, &leader, now),
            None => self.review(now),
        }
    }

    fn session_named(&mut self, id: SessionId, address: &str, now: Nanos) {
        if !self.follow(id, now) {
            return self.review(now);
        }
        if self.leader.as_deref() != Some(address) {
            log::info!("{address} is named as the leader");
        }
        self.leader = Some(address.to_owned());
        let own_claim = self.sessions.get(&id).is_some_and(|session| session.node() == address);
        let mut found = false;
        for other_id in self.order.clone() {
            if !self.eligible(other_id) {
                continue;
            }
            let Some(other) = self.sessions.get_mut(&other_id) else { continue };
            if other.node() == address {
                other.standing = Standing::Leads;
                other.own();
                found = true;
                continue;
            }
            if other_id == id {
                other.standing = Standing::Follows;
                other.disown(now);
            } else if own_claim {
                // What another says of itself weighs enough to want answers, not to drop what this one said.
                other.disown(now);
            }
            // Its task may have to wake earlier.
            self.wake_connection(other_id);
        }
        if !found {
            self.dial_unlisted(address, now);
        }
        self.review(now);
    }

    fn wake_connection(&mut self, id: SessionId) {
        let connection = self.sessions.get(&id).map(|session| session.connection);
        if let Some(connection) = connection.and_then(|id| self.connection(id)) {
            let wake = connection.wake.clone();
            self.deferred.push(Deferred::Notify(wake));
        }
    }

    fn session_disowned(&mut self, id: SessionId, now: Nanos) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.standing == Standing::Follows {
            return;
        }
        session.standing = Standing::Follows;
        if self.leader.as_deref() == Some(session.node()) {
            self.leader = None;
            for other in self.sessions.values_mut().filter(|other| other.standing == Standing::Leads) {
                other.own();
            }
        }
        self.review(now);
    }

    /// Whether a session is of the domain that is followed, now that its node is known to serve.
    fn follow(&mut self, id: SessionId, now: Nanos) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let Some(banner) = session.banner.clone() else { return false };
        if session.extended && banner.domain.is_none() && !banner.standalone {
            // Formed since it greeted us: its banner has to be read anew.
            self.close_session(id, EndKind::Io, "the node has joined a domain", now);
            return false;
        }
        let before = self.domains.current().cloned();
        match self.domains.judge(&banner, self.settings.allow_future_domain) {
            Verdict::Followed => true,
            Verdict::Older => false,
            Verdict::Refused(reason) => {
                self.close_session(id, EndKind::Protocol, &reason, now);
                false
            }
            Verdict::Newer => {
                self.domain_is_over(before.as_deref().unwrap_or_default(), now);
                true
            }
        }
    }

    fn domain_is_over(&mut self, before: &str, now: Nanos) {
        let current = self.domains.current().cloned();
        log::warn!("the domain {before} is over, following {}", current.as_deref().unwrap_or("none"));
        self.leader = None;
        for id in self.order.clone() {
            let over = self.sessions.get(&id).is_some_and(|session| self.domains.is_over(session.domain.as_ref()));
            if over {
                self.close_session(id, EndKind::Io, &format!("the domain {before} is over"), now);
            }
        }
        self.errands_of_domains_that_are_over(now);
        let waiting = self.domain_over.clone();
        self.notify_all(&waiting);
    }

    fn eligible(&self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get(&id).filter(|session| session.open) else { return false };
        if self.domains.is_over(session.domain.as_ref()) {
            return false;
        }
        if session.extended {
            return session.domain.is_some() || session.banner.as_ref().is_some_and(|banner| banner.standalone);
        }
        self.domains.current().is_none()
    }

    fn dial_unlisted(&mut self, address: &str, now: Nanos) {
        if !self.settings.verified || self.closed || address_problem(address.as_bytes()).is_some() {
            return;
        }
        if self.connections.iter().any(|connection| connection.address == address) {
            return;
        }
        let mut unlisted = self.connections.iter().filter(|connection| !connection.configured);
        let oldest = unlisted.next().map(|connection| connection.id);
        if unlisted.count() + 1 >= UNLISTED_MAX {
            if let Some(oldest) = oldest {
                self.stop_connection(oldest, now);
            }
        }
        log::info!("the leader's address {address} was not configured; dialling it as well");
        self.dial(address.to_owned(), false);
    }

    /// Takes it out, which its task sees, and ends its session.
    fn stop_connection(&mut self, id: ConnectionId, now: Nanos) {
        let Some(at) = self.connections.iter().position(|connection| connection.id == id) else { return };
        let connection = self.connections.remove(at);
        self.deferred.push(Deferred::Notify(connection.wake));
        if let Some(session) = connection.session {
            self.close_session(session, EndKind::Closed, "its address is one too many", now);
        }
    }

    // --- the choice

    /// Who leads or who is there has changed.
    pub(super) fn review(&mut self, now: Nanos) {
        let mut chosen: Option<SessionId> = None;
        let mut unknown = Vec::new();
        for id in self.order.iter().copied().filter(|id| self.eligible(*id)) {
            let Some(session) = self.sessions.get(&id) else { continue };
            match session.standing {
                Standing::Follows => {}
                Standing::Unknown => unknown.push(id),
                Standing::Leads => {
                    let named =
                        |id: SessionId| self.sessions.get(&id).map(Session::node) == self.leader.as_deref();
                    if chosen.is_none_or(|other| named(id) && !named(other)) {
                        chosen = Some(id);
                    }
                }
            }
        }
        self.chosen = chosen;
        self.unknown = unknown;
        if self.is_ready() {
            let ready = self.ready.clone();
            self.notify_all(&ready);
        }
        self.pump();
        self.pump_errands(now);
    }

    /// A session for a request: the leader's, otherwise in turn one that may be. `named`: only one that an `L` names.
    pub(super) fn choose(&mut self, named: bool) -> Option<SessionId> {
        if self.chosen.is_some() {
            return self.chosen;
        }
        let usable = |id: &&SessionId| !named || self.sessions.get(id).is_some_and(|session| !session.extended);
        let count = self.unknown.iter().filter(usable).count();
        if count == 0 {
            return None;
        }
        self.turn = self.turn.wrapping_add(1);
        self.unknown.iter().filter(usable).nth(self.turn % count).copied()
    }

    /// Where a release, or with `extended` a cancel or an extension, is answered; or `None` for now.
    pub(super) fn errand_session(&mut self, extended: bool) -> Option<SessionId> {
        let id = self.choose(true)?;
        let session = self.sessions.get(&id)?;
        (!extended || session.extended).then_some(id)
    }

    // --- the end of a session

    pub(super) fn close_session(&mut self, id: SessionId, kind: EndKind, detail: &str, now: Nanos) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.fail(kind, detail);
            self.look_for_end(id, now);
        }
    }

    /// Takes out of a session that has ended what is left: what was not sent is placed anew; what was, and has no
    /// answer, gets a cancel and is lost.
    fn look_for_end(&mut self, id: SessionId, now: Nanos) {
        if self.sessions.get(&id).is_none_or(|session| session.end.is_none()) {
            return;
        }
        let Some(mut session) = self.sessions.remove(&id) else { return };
        let Some(end) = session.end.clone() else { return };
        self.order.retain(|other| *other != id);
        if let Some(connection) = self.connection(session.connection) {
            connection.last = Some(end.clone());
            connection.opened = session.opened;
            let wake = connection.wake.clone();
            self.deferred.push(Deferred::Notify(wake));
        }
        let (lost, errands) = session.drain();
        let queue = std::mem::take(&mut session.queue);
        self.review(now);
        for (request, owner, key) in lost {
            if end.kind == EndKind::Auth {
                // The session of a published server, which refuses late: nothing of it was ever looked at.
                self.settle(request, Outcome::Refused(end.clone()));
                continue;
            }
            if session.extended {
                self.run(Errand::cancel(owner, key, session.domain.clone(), now + ERRAND), now);
            }
            self.settle(request, Outcome::Lost);
        }
        for item in queue {
            match item {
                Item::Acquire(request) => {
                    let queued = self
                        .requests
                        .get(&request)
                        .is_some_and(|one| matches!(one.state, State::Queued(Some(session)) if session == id));
                    if queued {
                        self.place(request);
                    }
                }
                Item::Errand(errand) => self.back(errand, now),
                Item::Cancel(owner, key) => {
                    self.run(Errand::cancel(owner, key, session.domain.clone(), now + ERRAND), now);
                }
            }
        }
        for errand in errands {
            self.back(errand, now);
        }
    }
}
