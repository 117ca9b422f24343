//! Which domain the client follows (section 9 of the specification): the one with the highest first token that serves.
//!
//! A domain is one formed cluster life. Tickets of a domain that is over are lost, and nothing of it can be released.
//! The choice is the broker's and outlives a change of its runtime.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::requests::DomainName;
use crate::protocol::handshake::Banner;

/// A first token is dated; one from further in the future than this is refused. Each forming anew adds at most 12 days.
const AHEAD_MAX_S: u64 = 60 * 86_400;

/// What to do with a session whose node serves or names a serving leader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the domain that is followed.
    Followed,
    /// Now it is; the one before is over.
    Newer,
    /// It is not to be used.
    Older,
    /// The session has to be closed: another domain of the same first token, or a date that cannot be.
    Refused(String),
}

/// The domain that is followed, if any yet.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    current: Option<DomainName>,
    first_token: u64,
    standalone: bool,
}

impl Domains {
    pub(crate) fn current(&self) -> Option<&DomainName> {
        self.current.as_ref()
    }

    /// Whether another domain is followed in place of this one.
    pub(crate) fn is_over(&self, domain: Option<&DomainName>) -> bool {
        match (domain, &self.current) {
            (Some(domain), Some(current)) => domain != current,
            _ => false,
        }
    }

    /// Judges the domain of a session, and follows it where it is newer.
    ///
    /// A banner without a domain, as published servers have it, is followed until there is one with.
    pub(crate) fn judge(&mut self, banner: &Banner, allow_ahead: bool) -> Verdict {
        let Some(domain) = &banner.domain else {
            return if self.current.is_none() { Verdict::Followed } else { Verdict::Older };
        };
        if self.current.as_deref() == Some(domain) {
            return Verdict::Followed;
        }
        // The upper bits of a first token are Unix seconds.
        if !allow_ahead && (banner.first_token >> 20) > unix_seconds().saturating_add(AHEAD_MAX_S) {
            return Verdict::Refused(format!(
                "the domain {domain} is dated more than 60 days ahead of this machine's clock"
            ));
        }
        let verdict = match &self.current {
            None => Verdict::Followed,
            Some(current) if banner.first_token == self.first_token => {
                return Verdict::Refused(format!("the domain {domain} has the same first token as {current}"));
            }
            Some(_) if (!banner.standalone, banner.first_token) < (!self.standalone, self.first_token) => {
                return Verdict::Older;
            }
            Some(_) => Verdict::Newer,
        };
        self.current = Some(Arc::from(domain.as_str()));
        self.first_token = banner.first_token;
        self.standalone = banner.standalone;
        verdict
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
