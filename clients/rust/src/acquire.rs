//! The life of one acquire: asked, perhaps asked again, granted, left.
//!
//! Asked again as a *new* request, under a new owner, only after a `V`: a fact that nothing was proposed. Asked again
//! as the same request only where no byte can have left, which the core does by itself. Everything else ends the call.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::core::UNSENT_MAX;
use crate::core::requests::{Grant, Key, Outcome, RequestId};
use crate::core::session::{End, EndKind};
use crate::error::TicketError;
use crate::protocol::fields::escaped;
use crate::shared::Handle;
use crate::ticket::{Ticket, TicketState, closed};

const RETRY_MIN: Nanos = 10 * MILLISECOND;
const RETRY_MAX: Nanos = 200 * MILLISECOND;

/// What was asked for, checked.
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) wait: Nanos,
    /// Seconds.
    pub(crate) lease: u16,
    pub(crate) budget: Nanos,
}

/// Until when a grant holds at least, by the elapsed clock of this machine.
///
/// The leader stamped it no earlier than `waited_ms` after it read the request, which it did after the first byte left
/// at `sent`; 0.998 is what two clocks of 0.1 % can be apart. `read`, when the answer was read, bounds what a wrong
/// `waited_ms` could add.
pub(crate) fn conservative_end(grant: &Grant, lease: u16) -> Nanos {
    let lease = u64::from(lease) * SECOND;
    let by_request = grant.sent + (lease + u64::from(grant.waited_ms) * MILLISECOND) / 1000 * 998;
    let by_answer = grant.read + lease / 1000 * 998;
    by_request.min(by_answer)
}

/// The pause before the `number`th time that a request is asked again, before jitter: none for the first.
fn retry_pause(number: u32) -> Nanos {
    if number < 2 { 0 } else { (RETRY_MIN << (number - 2).min(10)).min(RETRY_MAX) }
}

/// A request that is under way. Dropped before its outcome was taken, it is left: see `Core::leave`.
struct Asking<'a> {
    handle: &'a Handle,
    id: Option<RequestId>,
}

impl Asking<'_> {
    async fn outcome(&mut self) -> Outcome {
        let Some(id) = self.id else { return Outcome::Shut };
        let outcome = poll_fn(|context| self.handle.with(|core| core.poll_acquire(id, context))).await;
        self.id = None;
        outcome
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let now = self.handle.now();
            self.handle.with(|core| core.leave(id, now));
        }
    }
}

pub(crate) async fn acquire(handle: &Arc<Handle>, wish: Wish) -> Result<Ticket, TicketError> {
    let began = handle.now();
    let wait_end = if wish.wait == 0 { 0 } else { began + wish.wait };
    let mut again = 0;
    let grant = loop {
        handle.bind()?;
        let asked = handle.with(|core| {
            closed(core)?;
            core.ask(wish.key.clone(), wait_end, wish.lease, again > 0).ok_or_else(|| TicketError::Busy {
                detail: format!("{UNSENT_MAX} acquires of this broker are waiting to be sent already"),
            })
        });
        let mut asking = Asking { handle, id: Some(asked?) };
        match asking.outcome().await {
            Outcome::Granted(grant) => break grant,
            Outcome::NotLeading => {}
            outcome => {
                let problems = handle.with(|core| core.last_problems());
                return Err(failure(&wish, &outcome, problems));
            }
        }
        again += 1;
        if again > 1 {
            if wait_end == 0 {
                return Err(TicketError::NotConnected { detail: "no node that was asked leads".to_owned() });
            }
            let pause = handle.with(|core| core.jittered(retry_pause(again)));
            let left = wait_end.saturating_sub(handle.now());
            tokio::time::sleep(Duration::from_nanos(pause.min(left))).await;
        }
    };
    hand_out(handle, &wish, grant)
}

/// A ticket where enough is left of the lease; otherwise it is given back.
fn hand_out(handle: &Arc<Handle>, wish: &Wish, grant: Grant) -> Result<Ticket, TicketError> {
    let end = conservative_end(&grant, wish.lease);
    let now = handle.now();
    let left = end.saturating_sub(now);
    if left > 0 && left >= wish.budget {
        let state = TicketState::new(wish.key.clone(), grant.token, grant.domain, wish.lease, end);
        return Ok(Ticket::new(handle.clone(), state));
    }
    handle.with(|core| core.compensate(grant.token, wish.key.clone(), grant.domain, now));
    Err(TicketError::InsufficientLease {
        detail: format!(
            "'{}' was granted with {:.3} s left of a lease of {} s, less than the budget of {} s; it is given back",
            escaped(wish.key.as_bytes()),
            left as f64 / SECOND as f64,
            wish.lease,
            wish.budget as f64 / SECOND as f64,
        ),
    })
}

fn failure(wish: &Wish, outcome: &Outcome, problems: String) -> TicketError {
    let key = escaped(wish.key.as_bytes());
    let wait = wish.wait as f64 / SECOND as f64;
    match outcome {
        Outcome::Timeout if wish.wait == 0 => TicketError::Timeout { detail: format!("'{key}' is not free") },
        Outcome::Timeout => {
            TicketError::Timeout { detail: format!("'{key}' did not become free within {wait} s") }
        }
        Outcome::WaitOver => TicketError::Timeout {
            detail: format!(
                "no session to a serving leader within {wait} s; nothing was sent for '{key}'{problems}"
            ),
        },
        Outcome::Busy => TicketError::Busy {
            detail: format!(
                "the server refused the acquire of '{key}': at a bound, out of range, or clocks not in order"
            ),
        },
        Outcome::NoSession | Outcome::NotLeading => TicketError::NotConnected {
            detail: format!("no session to a serving leader; nothing was sent for '{key}'{problems}"),
        },
        Outcome::Refused(end) => refused(end),
        Outcome::Shut => TicketError::Closed {
            detail: format!("the broker was closed, or its runtime ended; nothing was sent for '{key}'"),
        },
        Outcome::Lost | Outcome::Granted(_) => TicketError::Indeterminate {
            detail: format!(
                "no answer to the acquire of '{key}', which may have been sent: it may be held until its cancel arrives"
            ),
        },
    }
}

/// The error of a caller for whom every address refuses.
pub(crate) fn refused(end: &End) -> TicketError {
    let detail = format!("every address refuses: {}", end.detail);
    match end.kind {
        EndKind::Auth => TicketError::Auth { detail },
        EndKind::Protocol => TicketError::Protocol { detail },
        EndKind::Tls | EndKind::Io | EndKind::Closed => TicketError::Io { detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(sent: Nanos, read: Nanos, waited_ms: u32) -> Grant {
        Grant { token: 1, domain: None, sent, read, waited_ms }
    }

    #[test]
    fn the_conservative_end_counts_from_the_first_byte_and_what_the_leader_waited() {
        let second = SECOND;
        assert_eq!(conservative_end(&grant(10 * second, 10 * second, 0), 30), 10 * second + 29_940 * MILLISECOND);
        assert_eq!(
            conservative_end(&grant(10 * second, 20 * second, 9_000), 30),
            10 * second + 39 * 998 * MILLISECOND
        );
        // A wrong `waited` cannot add more than the reading of the answer allows.
        assert_eq!(
            conservative_end(&grant(10 * second, 11 * second, 60_000), 30),
            11 * second + 29_940 * MILLISECOND
        );
    }

    #[test]
    fn what_is_asked_again_pauses_from_the_second_time_on() {
        let pauses: Vec<Nanos> = (1..9).map(|number| retry_pause(number) / MILLISECOND).collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 200, 200]);
        assert_eq!(retry_pause(u32::MAX), RETRY_MAX);
    }
}
