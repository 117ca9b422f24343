//! What callers pass in, checked before anything is sent. Nothing is clipped.

use std::time::Duration;

use crate::clock::{Nanos, SECOND};
use crate::error::TicketError;
use crate::protocol::fields::{LEASE_MAX, LEASE_MIN, TOKEN_END, WAIT_MAX, address_problem, escaped, key_problem};

const SHOWN_BYTES_MAX: usize = 160;

fn invalid(field: &'static str, value: impl Into<String>, range: impl Into<String>) -> TicketError {
    TicketError::InvalidInput { field, value: value.into(), range: range.into() }
}

/// A text from the caller: on one line, and cut where it is long.
fn shown(text: &str) -> String {
    let bytes = text.as_bytes();
    if bytes.len() <= SHOWN_BYTES_MAX {
        return format!("'{}'", escaped(bytes));
    }
    let end = (0..=SHOWN_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("'{}…' ({} bytes)", escaped(&bytes[..end]), bytes.len())
}

fn seconds(value: Duration) -> String {
    format!("{} s", value.as_secs_f64())
}

/// Whole seconds, rounded up.
fn rounded_up(value: Duration) -> u64 {
    value.as_secs().saturating_add(u64::from(value.subsec_nanos() > 0))
}

/// A duration that has been found to be at most some minutes.
fn nanos(value: Duration) -> Nanos {
    value.as_secs() * SECOND + u64::from(value.subsec_nanos())
}

pub(crate) fn key(key: &str) -> Result<&str, TicketError> {
    match key_problem(key.as_bytes()) {
        None => Ok(key),
        Some(problem) => {
            let range = format!("text of 1 to 128 bytes of UTF-8 without space, CR and LF ({problem})");
            Err(invalid("key", shown(key), range))
        }
    }
}

/// A wait: 0 to 255 s.
pub(crate) fn wait(value: Duration) -> Result<Nanos, TicketError> {
    if rounded_up(value) > WAIT_MAX {
        return Err(invalid("wait", seconds(value), format!("0 to {WAIT_MAX} s")));
    }
    Ok(nanos(value))
}

/// A lease in whole seconds, rounded up: 1 to 250.
pub(crate) fn lease(value: Duration) -> Result<u16, TicketError> {
    let rounded = rounded_up(value);
    if !(LEASE_MIN..=LEASE_MAX).contains(&rounded) {
        return Err(invalid("lease", seconds(value), format!("{LEASE_MIN} to {LEASE_MAX} s")));
    }
    Ok(u16::try_from(rounded).unwrap_or(u16::MAX))
}

/// A least time to work: 0 up to the lease as it was rounded, which is at most 250 s.
pub(crate) fn budget(value: Duration, lease: u16) -> Result<Nanos, TicketError> {
    if value > Duration::from_secs(u64::from(lease)) {
        return Err(invalid("min_work_budget", seconds(value), format!("0 to the lease, {lease} s")));
    }
    Ok(nanos(value))
}

/// A token that may have been granted.
pub(crate) fn fencing_token(token: u64) -> Result<u64, TicketError> {
    if token < TOKEN_END { Ok(token) } else { Err(invalid("token", token.to_string(), "0 to 2^62 - 1")) }
}

/// The addresses of the cluster, each once, in the order given.
pub(crate) fn addresses(given: Vec<String>) -> Result<Vec<String>, TicketError> {
    if given.is_empty() {
        return Err(invalid("addrs", "an empty list", "at least one host:port"));
    }
    let mut addresses: Vec<String> = Vec::with_capacity(given.len());
    for address in given {
        if let Some(problem) = address_problem(address.as_bytes()) {
            return Err(invalid("addrs", shown(&address), format!("a list of host:port ({problem})")));
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Where a broker has no Tokio runtime to live on.
pub(crate) fn no_runtime() -> TicketError {
    invalid("runtime", "none", "a call inside a Tokio runtime with time and I/O enabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn told<T: std::fmt::Debug>(result: Result<T, TicketError>) -> (&'static str, String, String) {
        match result {
            Err(TicketError::InvalidInput { field, value, range }) => (field, value, range),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn waits_leases_and_budgets_have_their_ranges_after_rounding_up() {
        assert_eq!(wait(millis(0)), Ok(0));
        assert_eq!(wait(millis(254_500)), Ok(254_500_000_000));
        assert_eq!(wait(millis(255_000)), Ok(255 * SECOND));
        assert_eq!(told(wait(millis(255_001))), ("wait", "255.001 s".into(), "0 to 255 s".into()));
        assert!(wait(Duration::MAX).is_err());
        assert_eq!(lease(Duration::from_nanos(1)), Ok(1));
        assert_eq!(lease(millis(1_001)), Ok(2));
        assert_eq!(lease(millis(250_000)), Ok(250));
        assert_eq!(told(lease(millis(0))), ("lease", "0 s".into(), "1 to 250 s".into()));
        assert!(lease(millis(250_001)).is_err());
        assert!(lease(Duration::MAX).is_err());
        assert_eq!(budget(millis(0), 1), Ok(0));
        assert_eq!(budget(millis(2_000), 2), Ok(2 * SECOND));
        assert_eq!(
            told(budget(millis(2_001), 2)),
            ("min_work_budget", "2.001 s".into(), "0 to the lease, 2 s".into())
        );
        assert!(budget(Duration::MAX, 250).is_err());
    }

    #[test]
    fn keys_addresses_and_tokens_are_told_with_value_and_range() {
        assert_eq!(key("좌석-1"), Ok("좌석-1"));
        let (field, value, range) = told(key("a b\n"));
        assert_eq!((field, value.as_str()), ("key", "'a b\\n'"));
        assert!(range.contains("1 to 128 bytes") && range.contains("it contains a space"), "{range}");
        assert!(told(key(&"좌".repeat(100))).1.len() < 200);
        assert_eq!(told(addresses(vec![])).0, "addrs");
        assert_eq!(told(addresses(vec!["host".into()])).1, "'host'");
        let twice = ["b:1", "a:1", "b:1"].map(str::to_owned).to_vec();
        assert_eq!(addresses(twice), Ok(vec!["b:1".to_owned(), "a:1".to_owned()]));
        assert_eq!(fencing_token((1 << 62) - 1), Ok((1 << 62) - 1));
        assert_eq!(told(fencing_token(1 << 62)).0, "token");
    }
}
