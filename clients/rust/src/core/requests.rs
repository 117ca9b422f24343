//! What sessions carry: acquires, and errands (release, extend, cancel). Plain records, one a request.

use std::sync::Arc;
use std::task::Waker;

use tokio::sync::oneshot;

use crate::clock::Nanos;
use crate::ticket::TicketState;

/// A checked key, shared by all that bear it.
pub(crate) type Key = Arc<str>;
/// A domain as it is shown.
pub(crate) type DomainName = Arc<str>;
/// Drawn in ascending order, never twice; by it the table of the broker's acquires is in the order of asking.
pub(crate) type RequestId = u64;
pub(crate) type ErrandId = u64;
pub(crate) type SessionId = u64;
pub(crate) type ConnectionId = u64;

/// A grant as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) domain: Option<DomainName>,
    /// Before the first byte of the request could leave.
    pub(crate) sent: Nanos,
    /// When the answer was read.
    pub(crate) read: Nanos,
    /// What the leader says it waited before its grant was proposed.
    pub(crate) waited_ms: u32,
}

/// What became of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// `T`
    Timeout,
    /// `B`
    Busy,
    /// `V`: never proposed, to be asked again under a new owner.
    NotLeading,
    /// The session ended without an answer, after bytes may have left.
    Lost,
    /// Nothing was left of the wait before anything was sent.
    WaitOver,
    /// There was none to send a try without wait on.
    NoSession,
    /// No session can be had: every address refuses, or the one that carried it did.
    Refused(super::session::End),
    /// The broker was closed before anything was sent.
    Shut,
}

/// Where an acquire stands. Up to `Queued` no byte of it can have left.
#[derive(Debug)]
pub(crate) enum State {
    /// Waits for a session (`None`), or on one for its turn to be written.
    Queued(Option<SessionId>),
    /// On this session, under this owner.
    Sent(SessionId, u64),
    Answered(Outcome),
}

/// One request for a key, under an owner of its own that is drawn when it is sent and never used again.
///
/// It is in the table for as long as its caller is there; a caller that leaves takes it out.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) key: Key,
    /// 0 for a try without wait.
    pub(crate) wait_end: Nanos,
    /// Seconds.
    pub(crate) lease: u16,
    /// Only for a session that an `L` names.
    pub(crate) named: bool,
    pub(crate) state: State,
    pub(crate) waker: Option<Waker>,
}

/// What became of an errand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// `R`
    Released,
    /// `N`
    NotHeld,
    /// `X`
    Extended,
    /// Nothing by its deadline.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Release,
    Cancel,
    /// By so many seconds.
    Extend(u16),
}

/// A release, a cancel or an extension: safe to repeat, and so repeated until its deadline.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) task: Task,
    /// The token, or for a cancel the owner.
    pub(crate) number: u64,
    pub(crate) key: Key,
    /// The only domain in which it means anything.
    pub(crate) domain: Option<DomainName>,
    pub(crate) deadline: Nanos,
    /// The session is closed where it does not answer in time.
    pub(crate) fatal: bool,
    /// Where it is queued or was sent; `None` while it waits for one.
    pub(crate) session: Option<SessionId>,
    /// Told of the answer before anybody else.
    pub(crate) ticket: Option<Arc<TicketState>>,
    pub(crate) reply: Option<oneshot::Sender<Answer>>,
}

impl Errand {
    pub(crate) fn release(number: u64, key: Key, domain: Option<DomainName>, deadline: Nanos) -> Self {
        let task = Task::Release;
        Self { task, number, key, domain, deadline, fatal: false, session: None, ticket: None, reply: None }
    }

    pub(crate) fn cancel(owner: u64, key: Key, domain: Option<DomainName>, deadline: Nanos) -> Self {
        Self { task: Task::Cancel, ..Self::release(owner, key, domain, deadline) }
    }
}
