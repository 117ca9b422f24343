//! Errands: releases, extensions and cancels, each tried again until it is answered or its time is over.
//!
//! All three may be repeated without harm: they name an exact token, or an owner that is never used again. The time is
//! absolute, five seconds from the call, whatever happens in between; one try has at most 1.5 s. A release nobody
//! waits for, a compensation, is an errand like any other.

use std::collections::{BTreeSet, HashMap};

use super::requests::{Errand, ErrandId};
use crate::clock::{NEVER, Nanos, SECOND};

/// From the call to the last try of an errand.
pub(crate) const ERRAND: Nanos = 5 * SECOND;
/// Errands of one broker; more are refused.
pub(crate) const ERRANDS_MAX: usize = 65_536;

/// The bounded table of a broker's errands.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    pub(super) open: HashMap<ErrandId, Errand>,
    /// Those of `open` that have no session at the moment.
    pub(super) waiting: BTreeSet<ErrandId>,
    /// Takes no more.
    pub(super) stopped: bool,
    next_id: ErrandId,
    watches: HashMap<u64, Watch>,
    next_watch: u64,
}

/// Somebody who waits for the answers to certain errands.
#[derive(Debug)]
struct Watch {
    left: BTreeSet<ErrandId>,
    /// One of them never will be answered.
    failed: bool,
}

impl Errands {
    /// How many are without an answer.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes an errand; `None` where the table is full.
    pub(super) fn take(&mut self, errand: Errand) -> Option<ErrandId> {
        if self.stopped || self.open.len() >= ERRANDS_MAX {
            return None;
        }
        self.next_id += 1;
        self.open.insert(self.next_id, errand);
        Some(self.next_id)
    }

    /// Takes one out; `answered` says whether its answer came.
    pub(super) fn end(&mut self, id: ErrandId, answered: bool) -> Option<Errand> {
        let errand = self.open.remove(&id)?;
        self.waiting.remove(&id);
        for watch in self.watches.values_mut() {
            watch.failed |= watch.left.remove(&id) && !answered;
        }
        Some(errand)
    }

    /// Those whose time is over, and when the next one's is.
    pub(super) fn over(&self, now: Nanos) -> (Vec<ErrandId>, Nanos) {
        let mut over = Vec::new();
        let mut next = NEVER;
        for (id, errand) in &self.open {
            if now >= errand.deadline {
                over.push(*id);
            } else {
                next = next.min(errand.deadline);
            }
        }
        over.sort_unstable();
        (over, next)
    }

    /// Begins to watch all that are open now.
    pub(crate) fn watch(&mut self) -> u64 {
        self.next_watch += 1;
        let left = self.open.keys().copied().collect();
        self.watches.insert(self.next_watch, Watch { left, failed: false });
        self.next_watch
    }

    /// Whether all that is watched was answered; `None` where that is open still.
    pub(crate) fn settled(&self, watch: u64) -> Option<bool> {
        let watch = self.watches.get(&watch)?;
        if watch.failed { Some(false) } else { watch.left.is_empty().then_some(true) }
    }

    pub(super) fn watched(&self) -> bool {
        !self.watches.is_empty()
    }

    pub(crate) fn unwatch(&mut self, watch: u64) {
        self.watches.remove(&watch);
    }
}
