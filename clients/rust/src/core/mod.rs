//! The broker's view of one cluster, without I/O: its sessions, who leads, which domain is followed, who waits.
//!
//! All of it stands behind one lock that is never held across an `await` (`crate::shared`). What has to happen outside
//! the lock (wake a caller, wake a connection's task, begin to dial) is gathered as [`Deferred`]. Each method is given
//! a reading of the elapsed clock.
//!
//! A session that an `L` names is the leader's; among several claims the latest counts, and a `V` takes one back.
//! Acquires that no session can take wait here, unsent, in the order in which they were asked.

mod acquires;
mod domain;
mod errands;
mod leading;
mod parting;
mod pending;
mod releases;
pub(crate) mod requests;
pub(crate) mod session;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use self::domain::Domains;
pub(crate) use self::errands::ERRAND;
#[cfg(test)]
pub(crate) use self::errands::ERRANDS_MAX;
use self::errands::Errands;
use self::requests::{Acquire, Answer, ConnectionId, DomainName, RequestId, SessionId};
use self::session::{End, EndKind, Session};
use crate::clock::{NEVER, Nanos, SECOND};
use crate::random::Random;
use crate::ticket::TicketState;

pub(crate) use self::acquires::UNSENT_MAX;

/// Addresses that were not configured but named as the leader's.
const UNLISTED_MAX: usize = 8;
/// After so many failed tries in a row such an address is dropped, unless it is named as the leader's now.
const UNLISTED_FAILURES_MAX: u32 = 5;
/// Closing waits so long for errands.
const DRAIN: Nanos = 5 * SECOND;

/// What a broker was made with. Shown nowhere, as the token is a secret.
pub(crate) struct Settings {
    pub(crate) addresses: Vec<String>,
    pub(crate) token: String,
    /// What `H` says of this program.
    pub(crate) hello: Vec<u8>,
    /// Servers have to prove their names: only then is an address that was not configured dialled.
    pub(crate) verified: bool,
    /// Follow a domain that is dated over 60 days ahead.
    pub(crate) allow_future_domain: bool,
    /// Of the pauses between tries to connect: the first, and the longest.
    pub(crate) backoff: (Nanos, Nanos),
}

/// What has to be done once the lock is released.
pub(crate) enum Deferred {
    /// A caller has something to look at.
    Wake(Waker),
    /// Nobody waits by this any more; dropped outside, as it may own anything.
    Drop(Waker),
    /// A task, or those who wait for a fact about the broker.
    Notify(Arc<Notify>),
    NotifyAll(Arc<Notify>),
    /// Those who wait for something about a ticket.
    Ticket(Arc<TicketState>),
    Reply(oneshot::Sender<Answer>, Answer),
    /// A new connection's task has to be started.
    Dial(Handle, ConnectionId, String, Arc<Notify>),
    /// The task that looks at deadlines has to be started.
    Keep(Handle, u64),
    /// The runtime ends or has ended, and the socket of this session stays: words for it.
    Say(SessionId, Vec<u8>),
    /// No socket stays any more.
    Rejoin,
}

/// A standing connection to one address, as the core has it; its task is `crate::connection`.
struct Connection {
    id: ConnectionId,
    address: String,
    configured: bool,
    session: Option<SessionId>,
    /// Why no session can be had here without somebody changing something.
    refusal: Option<End>,
    /// Tries in a row without a session.
    failures: u32,
    backoff: Nanos,
    /// How the latest session, or try, ended.
    last: Option<End>,
    /// When the latest session was opened, once it has ended.
    opened: Option<Nanos>,
    wake: Arc<Notify>,
}

/// What a connection's task has to do about its session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    /// Go on; call `woken` at this moment.
    Until(Nanos),
    /// It is over. With `flush` what was taken may still be written; `awaited`: the server may have yet to read it.
    Over { flush: bool, awaited: bool },
    /// Leave what carries it: the runtime ends.
    Leave,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) domains: Domains,
    pub(crate) errands: Errands,
    /// No more acquires, releases or extensions are taken.
    pub(crate) closed: bool,
    /// Woken when readiness may have changed, when errands were answered, when a domain is over, when a task ended.
    pub(crate) ready: Arc<Notify>,
    pub(crate) settling: Arc<Notify>,
    pub(crate) domain_over: Arc<Notify>,
    pub(crate) tasks_gone: Arc<Notify>,
    keeper: Arc<Notify>,
    keeper_id: u64,
    random: Random,
    owners: Vec<u64>,
    runtime: Option<Handle>,
    /// The runtime has ended, and the socket of this session stays for what is given back after that.
    parting: Option<SessionId>,
    /// Alive, the one that looks at deadlines among them.
    tasks: HashSet<u64>,
    next_id: u64,
    connections: Vec<Connection>,
    sessions: HashMap<SessionId, Session>,
    /// Open ones, in the order in which they were opened.
    order: Vec<SessionId>,
    /// The address that was named last.
    leader: Option<String>,
    /// Set while every configured address refuses.
    refusal: Option<End>,
    chosen: Option<SessionId>,
    /// Usable sessions of which nobody has said that they lead, or that they do not.
    unknown: Vec<SessionId>,
    turn: usize,
    requests: HashMap<RequestId, Acquire>,
    /// Those of `requests` without a session.
    waiting: BTreeSet<RequestId>,
    /// Those of `requests` that are queued, with a session or without.
    unsent: usize,
    look_at: Nanos,
    /// Set by `shut`: from then on at most so long until all ends.
    end_by: Nanos,
    /// At the end something that was written had no answer.
    awaited: bool,
    deferred: Vec<Deferred>,
}

impl Core {
    pub(crate) fn new(settings: Settings, random: Random) -> Self {
        Self {
            settings,
            domains: Domains::default(),
            errands: Errands::default(),
            closed: false,
            ready: Arc::default(),
            settling: Arc::default(),
            domain_over: Arc::default(),
            tasks_gone: Arc::default(),
            keeper: Arc::default(),
            keeper_id: 0,
            random,
            owners: Vec::new(),
            runtime: None,
            parting: None,
            tasks: HashSet::new(),
            next_id: 0,
            connections: Vec::new(),
            sessions: HashMap::new(),
            order: Vec::new(),
            leader: None,
            refusal: None,
            chosen: None,
            unknown: Vec::new(),
            turn: 0,
            requests: HashMap::new(),
            waiting: BTreeSet::new(),
            unsent: 0,
            look_at: NEVER,
            end_by: NEVER,
            awaited: false,
            deferred: Vec::new(),
        }
    }

    /// What has gathered for outside the lock.
    pub(crate) fn take_deferred(&mut self) -> Vec<Deferred> {
        std::mem::take(&mut self.deferred)
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn notify_all(&mut self, who: &Arc<Notify>) {
        self.deferred.push(Deferred::NotifyAll(who.clone()));
    }

    // --- binding to a runtime

    /// Whether connections stand or are being made.
    pub(crate) fn bound(&self) -> bool {
        self.runtime.is_some()
    }

    /// Why nothing is taken, or `None`: the runtime may have ended since it was bound.
    pub(crate) fn over(&self) -> Option<&'static str> {
        if self.closed {
            Some("the broker was closed")
        } else if !self.bound() {
            Some("the broker's runtime has ended")
        } else {
            None
        }
    }

    /// Begins to dial all addresses. Nothing where that was begun, or the broker is closed.
    pub(crate) fn bind(&mut self, runtime: Handle) {
        if self.runtime.is_some() || self.closed {
            return;
        }
        self.runtime = Some(runtime.clone());
        self.look_at = NEVER;
        if self.parting.take().is_some() {
            self.deferred.push(Deferred::Rejoin);
        }
        let mut addresses = self.settings.addresses.clone();
        if addresses.len() == 1 {
            // One socket may drop without anybody noticing.
            addresses.extend_from_within(..);
        }
        for address in addresses {
            self.dial(address, true);
        }
        self.keeper_id = self.new_id();
        self.tasks.insert(self.keeper_id);
        self.deferred.push(Deferred::Keep(runtime, self.keeper_id));
    }

    fn dial(&mut self, address: String, configured: bool) {
        let Some(runtime) = self.runtime.clone() else { return };
        let id = self.new_id();
        let wake = Arc::new(Notify::new());
        self.tasks.insert(id);
        self.deferred.push(Deferred::Dial(runtime, id, address.clone(), wake.clone()));
        self.connections.push(Connection {
            id,
            address,
            configured,
            session: None,
            refusal: None,
            failures: 0,
            backoff: self.settings.backoff.0,
            last: None,
            opened: None,
            wake,
        });
    }

    /// A task has ended, in whatever way. One that was wanted still was ended with its runtime.
    pub(crate) fn task_gone(&mut self, id: u64) {
        if !self.tasks.remove(&id) {
            return;
        }
        if self.is_wanted(id) || (self.bound() && self.keeper_id == id) {
            self.unbind();
        }
        let gone = self.tasks_gone.clone();
        self.notify_all(&gone);
    }

    /// The runtime is gone, and all tasks with it: nothing is answered any more. The next use binds anew.
    fn unbind(&mut self) {
        self.part();
        self.runtime = None;
        self.tasks.clear();
        self.connections.clear();
        self.order.clear();
        self.leader = None;
        self.refusal = None;
        self.chosen = None;
        self.unknown.clear();
        self.sessions.clear();
        self.abandon_all();
        let gone = self.tasks_gone.clone();
        self.notify_all(&gone);
    }

    // --- connections

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    /// Whether this connection's task is wanted still.
    pub(crate) fn is_wanted(&self, id: ConnectionId) -> bool {
        self.connections.iter().any(|connection| connection.id == id)
    }

    /// A connection stands, TLS included. `None` where it is not wanted any more.
    pub(crate) fn connected(&mut self, id: ConnectionId, now: Nanos) -> Option<SessionId> {
        let session_id = self.new_id();
        let (token, hello) = (self.settings.token.clone(), self.settings.hello.clone());
        let connection = self.connection(id)?;
        connection.session = Some(session_id);
        let session = Session::new(id, connection.address.clone(), token, hello, now);
        self.sessions.insert(session_id, session);
        Some(session_id)
    }

    /// A try to connect came to nothing, or (`end` is `None`) a session has ended. The pause before the next try;
    /// `None` where there is to be none.
    pub(crate) fn down(&mut self, id: ConnectionId, end: Option<End>, now: Nanos) -> Option<Nanos> {
        let (first, longest) = self.settings.backoff;
        let leader = self.leader.clone();
        let connection = self.connection(id)?;
        connection.session = None;
        let lasted = connection.opened.take().map(|opened| now.saturating_sub(opened));
        if let Some(end) = end {
            connection.last = Some(end);
        }
        if lasted.is_some_and(|lasted| lasted >= SECOND) {
            // A session that was shorter counts as a failed try.
            connection.backoff = first;
        }
        connection.failures = if lasted.is_some() { 0 } else { connection.failures + 1 };
        let end = connection.last.clone();
        connection.refusal =
            end.filter(|end| matches!(end.kind, EndKind::Auth | EndKind::Protocol | EndKind::Tls));
        let whole = connection.backoff;
        connection.backoff = (whole * 2).min(longest);
        let dropped = !connection.configured
            && connection.failures >= UNLISTED_FAILURES_MAX
            && leader.as_ref() != Some(&connection.address);
        // The jitter comes after the cap, so that those who have failed for long stay apart as well.
        let pause = self.random.half_to_whole(whole);
        let connection = self.connection(id)?;
        let level = if lasted.is_some() || connection.failures == 1 { log::Level::Warn } else { log::Level::Info };
        let detail = connection.last.as_ref().map_or("", |end| &end.detail);
        let seconds = pause as f64 / SECOND as f64;
        log::log!(level, "{}: {detail}; next try in {seconds:.1} s", connection.address);
        if dropped {
            self.connections.retain(|connection| connection.id != id);
            return None;
        }
        self.judge_refusals();
        Some(pause)
    }

    fn judge_refusals(&mut self) {
        let mut refusals = self.connections.iter().filter(|one| one.configured).map(|one| one.refusal.as_ref());
        let first = refusals.next().flatten().cloned();
        self.refusal = first.filter(|_| refusals.all(|refusal| refusal.is_some()) && self.order.is_empty());
        if let Some(end) = self.refusal.clone() {
            for id in std::mem::take(&mut self.waiting) {
                self.settle(id, requests::Outcome::Refused(end.clone()));
            }
            let ready = self.ready.clone();
            self.notify_all(&ready);
        }
    }

    /// A random half to whole of a pause.
    pub(crate) fn jittered(&mut self, pause: Nanos) -> Nanos {
        self.random.half_to_whole(pause)
    }

    /// How the latest try at each address ended, for the texts of errors.
    pub(crate) fn last_problems(&self) -> String {
        let mut problems: Vec<String> = Vec::new();
        for connection in &self.connections {
            if let Some(end) = &connection.last {
                let problem = format!("{}: {}", connection.address, end.detail);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        if problems.is_empty() { String::new() } else { format!(" ({})", problems.join("; ")) }
    }

    // --- readiness

    /// Whether there is a session to a serving leader. Published servers cannot say: any of them will do.
    pub(crate) fn is_ready(&self) -> bool {
        self.chosen.is_some()
            || self.unknown.iter().any(|id| self.sessions.get(id).is_some_and(|one| !one.extended))
    }

    /// Set while nothing is wrong at any address but our token.
    pub(crate) fn refused_token(&self) -> Option<&End> {
        self.refusal.as_ref().filter(|end| end.kind == EndKind::Auth)
    }

    /// The domain that is followed.
    pub(crate) fn domain(&self) -> Option<&DomainName> {
        self.domains.current()
    }

    // --- deadlines and the end

    pub(crate) fn keeper(&self) -> &Arc<Notify> {
        &self.keeper
    }

    /// Asks for `look` by then, or earlier.
    fn look_by(&mut self, moment: Nanos) {
        if moment < self.look_at {
            self.look_at = moment;
            self.deferred.push(Deferred::Notify(self.keeper.clone()));
        }
    }

    /// When `look` has to be called; `None` once all has ended.
    pub(crate) fn look_at(&self) -> Option<Nanos> {
        self.bound().then_some(self.look_at)
    }

    /// Looks at the deadlines of what is not a session's.
    pub(crate) fn look(&mut self, now: Nanos) {
        if now >= self.look_at {
            self.look_at = NEVER;
            let next = self.look_at_acquires(now).min(self.look_at_errands(now));
            if next != NEVER {
                self.look_by(next);
            }
        }
        if self.closed && self.bound() {
            if now >= self.end_by || self.errands.len() == 0 {
                self.end(now);
            } else {
                self.look_by(self.end_by);
            }
        }
    }

    /// Takes nothing new: what was not sent is over, what was is cancelled. All ends once errands are answered, or
    /// after 5 s.
    pub(crate) fn shut(&mut self, now: Nanos) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.end_by = now + DRAIN;
        self.shut_acquires(now);
        let ready = self.ready.clone();
        self.notify_all(&ready);
        if self.bound() {
            self.deferred.push(Deferred::Notify(self.keeper.clone()));
        }
    }

    fn end(&mut self, now: Nanos) {
        if self.errands.len() > 0 {
            log::warn!("closing with {} errands unanswered", self.errands.len());
        }
        self.awaited = self.sessions.values().any(Session::awaits);
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.close_session(id, EndKind::Closed, "the broker was closed", now);
        }
        self.runtime = None;
        for connection in std::mem::take(&mut self.connections) {
            self.deferred.push(Deferred::Notify(connection.wake));
        }
        self.stop_errands(now);
    }

    /// Whether any task of this broker is alive.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// How much is queued on each session, for tests.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<usize> {
        self.sessions.values().map(|session| session.queue.len()).collect()
    }

    /// What is left of the work of callers, for tests: errands, requests, those of them without a session.
    #[cfg(test)]
    pub(crate) fn left_behind(&self) -> (usize, usize, usize) {
        let sent: usize = self.sessions.values().map(Session::unanswered).sum();
        (self.errands.len(), self.requests.len() + sent, self.waiting.len())
    }
}
