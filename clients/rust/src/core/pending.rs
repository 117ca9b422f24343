//! The errands that one session has sent and that are without an answer, and what it has given up.
//!
//! Answers are matched by the number and the key that they echo. Owners have their top bit set and tokens have not, so
//! one table holds releases and cancels. Extensions of one token are not told apart by their answers.

use std::collections::{HashMap, HashSet, VecDeque};

use super::requests::{Errand, ErrandId, Key, Task};
use crate::clock::{NEVER, Nanos};
use crate::protocol::frames::{EXTENDED, RELEASED};

/// Requests that were given up and are not answered yet. The oldest beyond that are past any answer.
const GAVE_UP_MAX: usize = 65_536;
/// Tries of one token without an answer; more are not sent on this session.
const EXTENSIONS_MAX: usize = 64;

/// Owner or token, and key.
type Ident = (u64, Key);

/// What an `R`, `N` or `X` answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// These errands: the same frame, sent once for all.
    Errands(Vec<ErrandId>),
    /// The first of these extensions that is still wanted, counted from `moment` with at least `lease` seconds.
    Extension { candidates: Vec<ErrandId>, moment: Nanos, lease: u16 },
    /// Something given up: no fault, and nobody wants it.
    GivenUp,
    /// Nothing that was sent here.
    Unknown,
}

#[derive(Debug)]
struct Open {
    /// Whose very frame is under way: one answer is for all. None of them where a cancel found the queue full.
    errands: Vec<ErrandId>,
    answer_by: Nanos,
    fatal: bool,
}

#[derive(Debug)]
struct Try {
    errand: ErrandId,
    key: Key,
    sent: Nanos,
    lease: u16,
    answer_by: Nanos,
    /// Not given up.
    wanted: bool,
}

/// What is unanswered after its time.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// When to look again.
    pub(crate) next: Nanos,
    /// To be tried again.
    pub(crate) late: Vec<ErrandId>,
    /// The key of a cancel without an answer: the session is over.
    pub(crate) fatal: Option<Key>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    open: HashMap<Ident, Open>,
    /// By token, in the order in which they were sent.
    extensions: HashMap<u64, VecDeque<Try>>,
    gave_up: HashSet<Ident>,
    gave_up_order: VecDeque<Ident>,
}

impl Pending {
    /// Whether anything may still be answered, given up or not.
    pub(crate) fn awaits(&self) -> bool {
        !(self.open.is_empty() && self.extensions.is_empty() && self.gave_up.is_empty())
    }

    /// Takes an errand that is about to be sent; false where it is not to be, as the same is under way.
    pub(crate) fn sending(&mut self, id: ErrandId, errand: &Errand, now: Nanos, answer_by: Nanos) -> bool {
        if let Task::Extend(lease) = errand.task {
            let tries = self.extensions.entry(errand.number).or_default();
            if tries.len() >= EXTENSIONS_MAX {
                return false;
            }
            let key = errand.key.clone();
            tries.push_back(Try { errand: id, key, sent: now, lease, answer_by, wanted: true });
            return true;
        }
        let open = self.open.entry((errand.number, errand.key.clone()));
        if let std::collections::hash_map::Entry::Occupied(mut entry) = open {
            entry.get_mut().errands.push(id);
            return false;
        }
        open.insert_entry(Open { errands: vec![id], answer_by, fatal: errand.fatal });
        true
    }

    /// A cancel that no errand stands behind.
    pub(crate) fn sending_cancel(&mut self, owner: u64, key: Key, answer_by: Nanos) {
        self.open.insert((owner, key), Open { errands: Vec::new(), answer_by, fatal: true });
    }

    /// Takes an `R`, `N` or `X`.
    ///
    /// Where an extension and a release of one token are under way, an `N` is the extension's, which was sent first:
    /// once a ticket is being released it is not extended any more.
    pub(crate) fn answer(&mut self, opcode: u8, number: u64, key: &str) -> Echo {
        if opcode != RELEASED {
            if let Some(echo) = self.extended(number, key) {
                return echo;
            }
        }
        let ident = (number, Key::from(key));
        if opcode != EXTENDED {
            if let Some(open) = self.open.remove(&ident) {
                return Echo::Errands(open.errands);
            }
        }
        if self.was_given_up(&ident) { Echo::GivenUp } else { Echo::Unknown }
    }

    /// Whichever of them it answers, it is counted from the first byte of the earliest that is unanswered, and with
    /// the least lease among them.
    fn extended(&mut self, token: u64, key: &str) -> Option<Echo> {
        let tries = self.extensions.get_mut(&token)?;
        let first = tries.front().filter(|first| &*first.key == key)?;
        let moment = first.sent;
        let lease = tries.iter().map(|one| one.lease).min()?;
        let candidates = tries.iter().map(|one| one.errand).collect();
        tries.pop_front();
        if tries.is_empty() {
            self.extensions.remove(&token);
        }
        Some(Echo::Extension { candidates, moment, lease })
    }

    /// An answer to this is no fault from now on, and drops.
    pub(crate) fn give_up(&mut self, ident: Ident) {
        if self.gave_up.insert(ident.clone()) {
            self.gave_up_order.push_back(ident);
        }
        // What was answered is in the order still, until it comes to the front.
        while self.gave_up_order.len() > GAVE_UP_MAX {
            if let Some(oldest) = self.gave_up_order.pop_front() {
                self.gave_up.remove(&oldest);
            }
        }
    }

    /// Whether this is the answer to something given up. There is one answer at most.
    pub(crate) fn was_given_up(&mut self, ident: &Ident) -> bool {
        self.gave_up.remove(ident)
    }

    /// Its own time is over; others that joined it still want the answer.
    pub(crate) fn forget(&mut self, id: ErrandId, errand: &Errand) {
        if let Task::Extend(_) = errand.task {
            for one in self.extensions.get_mut(&errand.number).into_iter().flatten() {
                one.wanted &= one.errand != id;
            }
            return;
        }
        let ident = (errand.number, errand.key.clone());
        let Some(open) = self.open.get_mut(&ident) else {
            return;
        };
        open.errands.retain(|other| *other != id);
        if open.errands.is_empty() {
            self.open.remove(&ident);
            self.give_up(ident);
        }
    }

    /// Gives up what is unanswered after its time.
    pub(crate) fn due(&mut self, now: Nanos) -> Due {
        let mut due = Due { next: NEVER, ..Due::default() };
        let mut over = Vec::new();
        for (ident, open) in &mut self.open {
            if now < open.answer_by {
                due.next = due.next.min(open.answer_by);
            } else if open.fatal {
                due.fatal = Some(ident.1.clone());
                return due;
            } else {
                due.late.append(&mut open.errands);
                over.push(ident.clone());
            }
        }
        for ident in over {
            self.open.remove(&ident);
            self.give_up(ident);
        }
        for one in self.extensions.values_mut().flatten().filter(|one| one.wanted) {
            if now < one.answer_by {
                due.next = due.next.min(one.answer_by);
            } else {
                one.wanted = false;
                due.late.push(one.errand);
            }
        }
        due
    }

    /// The session is over: all that is without an answer.
    pub(crate) fn drain(&mut self) -> Vec<ErrandId> {
        let mut errands: Vec<ErrandId> = self.open.drain().flat_map(|(_, open)| open.errands).collect();
        let tries = self.extensions.drain().flat_map(|(_, tries)| tries);
        errands.extend(tries.filter(|one| one.wanted).map(|one| one.errand));
        errands.sort_unstable();
        errands.dedup();
        errands
    }
}
