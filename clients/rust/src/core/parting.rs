//! What is said once more as the runtime ends: see `crate::parting`.

use super::requests::{DomainName, Key, SessionId, State, Task};
use super::{Core, Deferred};
use crate::protocol::frames;

impl Core {
    /// The task of a session is dropped, which only the end of its runtime does. Whether its socket is to stay.
    pub(crate) fn session_left(&mut self, id: SessionId) -> bool {
        if self.sessions.contains_key(&id) {
            self.unbind();
        }
        self.parting == Some(id)
    }

    /// Names the session whose socket stays, and says all on it that is being given back, written before or not: it
    /// may be repeated without harm.
    pub(super) fn part(&mut self) {
        let Some(session) = self.errand_session(false) else { return };
        let Some(extended) = self.sessions.get(&session).map(|one| one.extended) else { return };
        if !extended && self.requests.values().any(|one| matches!(one.state, State::Sent(..))) {
            // A published server takes requests back only with their session.
            return;
        }
        let mut words = Vec::new();
        for request in self.requests.values() {
            if let (State::Sent(_, owner), true) = (&request.state, extended) {
                frames::encode_cancel(&mut words, *owner, request.key.as_bytes());
            }
        }
        for errand in self.errands.open.values() {
            match errand.task {
                Task::Release => frames::encode_release(&mut words, errand.number, errand.key.as_bytes()),
                Task::Cancel if extended => {
                    frames::encode_cancel(&mut words, errand.number, errand.key.as_bytes())
                }
                Task::Cancel | Task::Extend(_) => {}
            }
        }
        self.parting = Some(session);
        self.deferred.push(Deferred::Say(session, words));
    }

    /// Releases a grant of a runtime that has ended, as far as that can be.
    pub(super) fn release_in_parting(&mut self, token: u64, key: &Key, domain: Option<&DomainName>) {
        if let Some(session) = self.parting.filter(|_| !self.domains.is_over(domain)) {
            let mut words = Vec::new();
            frames::encode_release(&mut words, token, key.as_bytes());
            self.deferred.push(Deferred::Say(session, words));
        }
    }
}
