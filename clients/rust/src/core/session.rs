//! One session: handshake, what was sent and waits for its answer, deadlines. No I/O and no clock of its own.
//!
//! A session decides nothing about the cluster: bytes go in, [`Event`]s come out one by one, so that what the cluster
//! makes of one is in force before the next reply is looked at. A request is *queued* until [`Session::write`], and
//! provably unsent; from the reading of the clock that is given there on any byte of it may have left.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::pending::{Echo, Pending};
use super::requests::{Answer, ConnectionId, DomainName, Errand, ErrandId, Grant, Key, RequestId, Task};
use crate::clock::{MILLISECOND, NEVER, Nanos, SECOND};
use crate::protocol::decoder::{Reply, ReplyDecoder};
use crate::protocol::fields::{OWNER_TOP_BIT, escaped};
use crate::protocol::frames::{self, BUSY, EXTENDED, NOT_LEADING, RELEASED, TIMEOUT};
use crate::protocol::handshake::{Banner, ClientHandshake, Verdict};

/// For each of connecting, TLS, banner and first line.
pub(crate) const STEP: Nanos = 3 * SECOND;
/// A session that hears nothing for so long is lost; a server writes at least every 3 s.
pub(crate) const SILENCE: Nanos = 10 * SECOND;
/// An acquire unanswered for so long after its wait has lost its answer.
pub(crate) const ANSWER: Nanos = 5 * SECOND;
/// An acquire unanswered for so long after another node was named as the leader has lost its answer.
pub(crate) const DISOWNED: Nanos = 2 * SECOND;
/// One try of a release or an extension.
pub(crate) const TRY: Nanos = 3 * SECOND / 2;
/// An unanswered cancel closes its session after this.
pub(crate) const CANCEL: Nanos = 3 * SECOND;

/// Why a session, or a try to have one, is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) kind: EndKind,
    /// On one line.
    pub(crate) detail: String,
}

impl End {
    pub(crate) fn new(kind: EndKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    /// The token was refused.
    Auth,
    /// Not a server of this protocol, or of a domain that cannot be.
    Protocol,
    /// The server's certificate was refused.
    Tls,
    /// The connection, a deadline, or the server's word.
    Io,
    /// The broker was closed.
    Closed,
}

/// What a node says of itself, or others of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unknown,
    Leads,
    Follows,
}

/// What waits for its turn to be written.
#[derive(Debug)]
pub(crate) enum Item {
    Acquire(RequestId),
    Errand(ErrandId),
    /// A cancel that no errand stands behind, as there are too many.
    Cancel(u64, Key),
}

/// What the bytes of a server meant. Of one reply those that settle something come before those that may end the
/// session.
#[derive(Debug)]
pub(crate) enum Event {
    /// The handshake is over: `banner` and `leader` are known.
    Ready,
    /// An `L`.
    Named(String),
    /// An `M`: the session ends with it.
    Moved(String),
    /// A `V`: the node of this session does not lead.
    Disowned,
    /// The first grant of this session: its node serves.
    Serves,
    Granted(RequestId, Grant),
    /// A grant for a request that was given up: to be released.
    Unwanted(u64, Key),
    /// `T`, `B` or `V`.
    Refused(RequestId, u8),
    Answered(Vec<ErrandId>, Answer),
    Extended {
        candidates: Vec<ErrandId>,
        answer: Answer,
        moment: Nanos,
        lease: u16,
    },
}

#[derive(Debug)]
struct Sent {
    /// `None` where the caller is gone: whatever comes is cleaned up.
    request: Option<RequestId>,
    key: Key,
    sent: Nanos,
    answer_by: Nanos,
}

/// See the module.
pub(crate) struct Session {
    pub(crate) connection: ConnectionId,
    /// What was dialled.
    pub(crate) address: String,
    pub(crate) banner: Option<Banner>,
    /// Whom this node named last.
    pub(crate) leader: Option<String>,
    pub(crate) extended: bool,
    pub(crate) domain: Option<DomainName>,
    /// Kept by the cluster.
    pub(crate) standing: Standing,
    /// From the handshake's end to the session's.
    pub(crate) open: bool,
    pub(crate) end: Option<End>,
    pub(crate) opened: Option<Nanos>,
    pub(crate) queue: VecDeque<Item>,
    hello: Vec<u8>,
    handshake: ClientHandshake,
    decoder: ReplyDecoder,
    /// Of handshake and hello.
    out: Vec<u8>,
    events: VecDeque<Event>,
    acquires: HashMap<u64, Sent>,
    pending: Pending,
    heard: Nanos,
    step_by: Nanos,
    disowned_by: Nanos,
    /// When deadlines have to be looked at again.
    look_at: Nanos,
    served: bool,
}

impl Session {
    /// For a connection that stands, TLS included: the server speaks first.
    pub(crate) fn new(
        connection: ConnectionId,
        address: String,
        token: String,
        hello: Vec<u8>,
        now: Nanos,
    ) -> Self {
        Self {
            connection,
            address,
            banner: None,
            leader: None,
            extended: false,
            domain: None,
            standing: Standing::Unknown,
            open: false,
            end: None,
            opened: None,
            queue: VecDeque::new(),
            hello,
            handshake: ClientHandshake::new(token),
            decoder: ReplyDecoder::default(),
            out: Vec::new(),
            events: VecDeque::new(),
            acquires: HashMap::new(),
            pending: Pending::default(),
            heard: now,
            step_by: now + STEP,
            disowned_by: NEVER,
            look_at: now + STEP,
            served: false,
        }
    }

    /// The address by which others name the node of this session.
    pub(crate) fn node(&self) -> &str {
        self.banner.as_ref().and_then(|banner| banner.node_address.as_deref()).unwrap_or(&self.address)
    }

    /// When `woken` has to be called.
    pub(crate) fn look_at(&self) -> Nanos {
        self.look_at
    }

    fn look_by(&mut self, moment: Nanos) {
        self.look_at = self.look_at.min(moment);
    }

    /// The session is over. The cluster takes what is left out of it.
    pub(crate) fn fail(&mut self, kind: EndKind, detail: impl Into<String>) {
        if self.end.is_none() {
            self.end = Some(End::new(kind, detail));
            self.open = false;
        }
    }

    // --- what the server says

    /// Takes bytes of the server; `next_event` gives what they mean.
    pub(crate) fn received(&mut self, data: &[u8], now: Nanos) {
        if self.end.is_some() {
            return;
        }
        self.heard = now;
        if self.open {
            self.decoder.feed(data);
        } else {
            self.shake(data, now);
        }
    }

    fn shake(&mut self, data: &[u8], now: Nanos) {
        let sent_before = self.out.len();
        let verdict = self.handshake.feed(data, &mut self.out);
        if self.out.len() > sent_before {
            self.step_by = now + STEP;
        }
        match verdict {
            None => self.look_at = self.step_by,
            Some(Verdict::Fault(detail)) => self.fail(EndKind::Protocol, detail),
            Some(Verdict::Refused(reason)) => self.refused(&reason),
            Some(Verdict::Ready { leader }) => {
                let Some(banner) = self.handshake.banner().cloned() else {
                    return self.fail(EndKind::Protocol, "a handshake without a banner");
                };
                self.extended = banner.extended;
                self.domain = banner.domain.as_deref().map(Arc::from);
                self.banner = Some(banner);
                self.leader = leader;
                self.open = true;
                self.opened = Some(now);
                if self.extended && !self.hello.is_empty() {
                    frames::encode_hello(&mut self.out, &self.hello);
                }
                self.look_at = now + SILENCE;
                self.events.push_back(Event::Ready);
                let rest = self.handshake.take_rest();
                self.decoder.feed(&rest);
            }
        }
    }

    fn refused(&mut self, reason: &str) {
        let kind = if reason == frames::AUTH_FAILED { EndKind::Auth } else { EndKind::Io };
        self.fail(kind, format!("the server ended the session: {reason}"));
    }

    /// What the bytes that were taken mean next; `None` where more have to come, or the session is over.
    pub(crate) fn next_event(&mut self, now: Nanos) -> Option<Event> {
        while self.end.is_none() {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if !self.open {
                return None;
            }
            // Taken out for as long as a reply borrows it.
            let mut decoder = std::mem::take(&mut self.decoder);
            match decoder.next() {
                Ok(None) => {
                    self.decoder = decoder;
                    return None;
                }
                Ok(Some(reply)) => self.read(reply, now),
                Err(malformed) => self.fail(EndKind::Protocol, format!("malformed answer: {}", malformed.0)),
            }
            self.decoder = decoder;
        }
        None
    }

    fn read(&mut self, reply: Reply<'_>, now: Nanos) {
        match reply {
            Reply::Granted { token, owner, waited_ms, key } => self.granted(token, owner, waited_ms, key, now),
            Reply::Refused { opcode, owner, key } => self.answered_no(opcode, owner, key),
            Reply::Echoed { opcode, number, key } => self.echoed(opcode, number, key),
            Reply::Leader(address) => {
                self.leader = Some(address.to_owned());
                self.events.push_back(Event::Named(address.to_owned()));
            }
            Reply::Moved(address) => self.events.push_back(Event::Moved(address.to_owned())),
            Reply::Error(reason) => self.refused(reason),
        }
    }

    fn granted(&mut self, token: u64, owner: u64, waited_ms: Option<u32>, key: &[u8], now: Nanos) {
        let Some(sent) = self.acquires.get(&owner).filter(|sent| sent.key.as_bytes() == key) else {
            let Some(ident) = self.given_up(owner, key) else {
                return self.unknown(frames::GRANTED, key);
            };
            // Given up, and its cancel answered: a grant that came all the same is given back as well.
            self.events.push_back(Event::Unwanted(token, ident.1));
            return self.serves();
        };
        let waited = u64::from(waited_ms.unwrap_or(0)) * MILLISECOND;
        let passed = u128::from(now - sent.sent);
        if waited_ms.is_some() != self.extended
            || u128::from(waited) * 1000 > passed * 1003 + u128::from(2000 * MILLISECOND)
        {
            let detail = format!("malformed answer: a grant that waited {} ms", waited_ms.unwrap_or(0));
            return self.fail(EndKind::Protocol, detail);
        }
        let Some(sent) = self.acquires.remove(&owner) else { return };
        self.events.push_back(match sent.request {
            None => Event::Unwanted(token, sent.key),
            Some(request) => Event::Granted(
                request,
                Grant {
                    token,
                    domain: self.domain.clone(),
                    sent: sent.sent,
                    read: now,
                    waited_ms: waited_ms.unwrap_or(0),
                },
            ),
        });
        self.serves();
    }

    fn serves(&mut self) {
        if !self.served {
            self.served = true;
            self.events.push_back(Event::Serves);
        }
    }

    fn answered_no(&mut self, opcode: u8, owner: u64, key: &[u8]) {
        debug_assert!(matches!(opcode, TIMEOUT | BUSY | NOT_LEADING));
        if self.acquires.get(&owner).is_none_or(|sent| sent.key.as_bytes() != key) {
            if self.given_up(owner, key).is_none() {
                self.unknown(opcode, key);
            }
            return;
        }
        if opcode == NOT_LEADING && !self.extended {
            return self.unknown(opcode, key);
        }
        let sent = self.acquires.remove(&owner);
        if let Some(request) = sent.and_then(|sent| sent.request) {
            self.events.push_back(Event::Refused(request, opcode));
        }
        if opcode == NOT_LEADING {
            self.events.push_back(Event::Disowned);
        }
    }

    fn echoed(&mut self, opcode: u8, number: u64, key: &[u8]) {
        let text = std::str::from_utf8(key).unwrap_or_default();
        let answer = match opcode {
            RELEASED => Answer::Released,
            EXTENDED => Answer::Extended,
            _ => Answer::NotHeld,
        };
        match self.pending.answer(opcode, number, text) {
            Echo::Unknown => return self.unknown(opcode, key),
            Echo::GivenUp => {}
            Echo::Errands(errands) => self.events.push_back(Event::Answered(errands, answer)),
            Echo::Extension { candidates, moment, lease } => {
                self.events.push_back(Event::Extended { candidates, answer, moment, lease });
            }
        }
        if number & OWNER_TOP_BIT != 0 {
            if let Some(sent) = self.acquires.remove(&number) {
                // A request dequeued by its own cancel has no answer of its own.
                self.pending.give_up((number, sent.key));
            }
        }
    }

    fn given_up(&mut self, owner: u64, key: &[u8]) -> Option<(u64, Key)> {
        let ident = (owner, Key::from(std::str::from_utf8(key).ok()?));
        self.pending.was_given_up(&ident).then_some(ident)
    }

    fn unknown(&mut self, opcode: u8, key: &[u8]) {
        let detail = format!("an answer '{}' for '{}' to nothing that was sent", char::from(opcode), escaped(key));
        self.fail(EndKind::Protocol, detail);
    }

    // --- what is said to the server

    /// What handshake and hello have to say.
    pub(crate) fn take_out(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.out);
    }

    /// Writes an acquire: from `now` on any byte of it may have left.
    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    pub(crate) fn write_acquire(
        &mut self,
        out: &mut Vec<u8>,
        request: RequestId,
        key: &Key,
        owner: u64,
        wait: u16,
        lease: u16,
        now: Nanos,
    ) {
        let opcode = if self.extended { frames::Q } else { frames::ACQUIRE };
        frames::encode_acquire(out, opcode, wait, lease, owner, key.as_bytes());
        let answer_by = now + u64::from(wait) * SECOND + ANSWER;
        self.acquires.insert(owner, Sent { request: Some(request), key: key.clone(), sent: now, answer_by });
        self.look_by(answer_by);
    }

    /// Writes an errand, unless the very same frame is under way.
    pub(crate) fn write_errand(&mut self, out: &mut Vec<u8>, id: ErrandId, errand: &Errand, now: Nanos) {
        let answer_by = now + if errand.fatal { CANCEL } else { TRY };
        if !self.pending.sending(id, errand, now, answer_by) {
            return;
        }
        let key = errand.key.as_bytes();
        match errand.task {
            Task::Release => frames::encode_release(out, errand.number, key),
            Task::Cancel => frames::encode_cancel(out, errand.number, key),
            Task::Extend(lease) => frames::encode_extend(out, errand.number, lease, key),
        }
        self.look_by(answer_by);
    }

    /// Writes a cancel that no errand stands behind.
    pub(crate) fn write_cancel(&mut self, out: &mut Vec<u8>, owner: u64, key: Key, now: Nanos) {
        frames::encode_cancel(out, owner, key.as_bytes());
        self.pending.sending_cancel(owner, key, now + CANCEL);
        self.look_by(now + CANCEL);
    }

    /// The caller of an acquire that was sent is gone.
    pub(crate) fn abandon(&mut self, owner: u64) {
        if let Some(sent) = self.acquires.get_mut(&owner) {
            sent.request = None;
        }
    }

    /// Whether anything may still be answered, given up or not.
    pub(crate) fn awaits(&self) -> bool {
        !self.acquires.is_empty() || self.pending.awaits()
    }

    /// How many acquires are without an answer.
    #[cfg(test)]
    pub(crate) fn unanswered(&self) -> usize {
        self.acquires.len()
    }

    /// Its deadline is over: an answer that still comes is dropped.
    pub(crate) fn forget(&mut self, id: ErrandId, errand: &Errand) {
        self.pending.forget(id, errand);
    }

    /// The session is over: the acquires that were sent whose callers wait, with owner and key, and all errands.
    pub(crate) fn drain(&mut self) -> (Vec<(RequestId, u64, Key)>, Vec<ErrandId>) {
        let acquires = std::mem::take(&mut self.acquires);
        let mut lost: Vec<_> =
            acquires.into_iter().filter_map(|(owner, sent)| Some((sent.request?, owner, sent.key))).collect();
        lost.sort_unstable_by_key(|lost| lost.0);
        (lost, self.pending.drain())
    }

    // --- deadlines

    /// Another node was named as the leader: what is open here has to be answered soon.
    pub(crate) fn disown(&mut self, now: Nanos) {
        if self.disowned_by == NEVER {
            self.disowned_by = now + DISOWNED;
            self.look_by(self.disowned_by);
        }
    }

    /// This node was named as the leader.
    pub(crate) fn own(&mut self) {
        self.disowned_by = NEVER;
    }

    /// Looks at the deadlines; returns errands that are to be tried again.
    pub(crate) fn woken(&mut self, now: Nanos) -> Vec<ErrandId> {
        if self.end.is_some() || now < self.look_at {
            return Vec::new();
        }
        if !self.open {
            if now >= self.step_by {
                let line = if self.handshake.banner().is_none() { "banner" } else { "first line" };
                self.fail(EndKind::Io, format!("no {line} of the server within {} s", STEP / SECOND));
            } else {
                self.look_at = self.step_by;
            }
            return Vec::new();
        }
        let silent_at = self.heard + SILENCE;
        if now >= silent_at {
            self.fail(EndKind::Io, format!("the server was silent for {} s", SILENCE / SECOND));
            return Vec::new();
        }
        let mut next = silent_at;
        for sent in self.acquires.values() {
            let mut answer_by = sent.answer_by;
            if self.disowned_by != NEVER && sent.request.is_some() {
                // One sent after the other was named has its own two seconds.
                answer_by = answer_by.min(self.disowned_by.max(sent.sent + DISOWNED));
            }
            if now >= answer_by {
                let detail = format!("no answer to an acquire of '{}'", escaped(sent.key.as_bytes()));
                self.fail(EndKind::Io, detail);
                return Vec::new();
            }
            next = next.min(answer_by);
        }
        let due = self.pending.due(now);
        if let Some(key) = due.fatal {
            self.fail(EndKind::Io, format!("no answer to a cancel of '{}'", escaped(key.as_bytes())));
        }
        self.look_at = next.min(due.next);
        due.late
    }
}
