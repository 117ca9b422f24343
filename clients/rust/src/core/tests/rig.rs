//! A core, and the servers that it believes to be connected to.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime;

use super::super::requests::{Errand, Outcome, RequestId, SessionId};
use super::super::{Core, Deferred, ERRAND, Orders, Settings};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::core::requests::Key;
use crate::protocol::frames;
use crate::random::Random;
use crate::ticket::TicketState;

pub(super) const FIRST_TOKEN: u64 = 1_700_000_000 << 20;
const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// A request as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) opcode: u8,
    pub(super) wait: u16,
    pub(super) lease: u16,
    /// Owner or token.
    pub(super) number: u64,
    pub(super) key: String,
}

impl Asked {
    /// The answer with so many bytes of header after the opcode.
    fn reply(&self, opcode: u8, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = vec![opcode];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.push(b'\n');
        bytes
    }

    pub(super) fn granted(&self, token: u64) -> Vec<u8> {
        self.granted_after(token, 0)
    }

    pub(super) fn granted_after(&self, token: u64, waited_ms: u32) -> Vec<u8> {
        if self.opcode == frames::ACQUIRE {
            return self.reply(frames::GRANTED, &[token, self.number]);
        }
        let mut bytes = self.reply(frames::GRANTED_WAITED, &[token, self.number]);
        bytes.splice(17..17, waited_ms.to_be_bytes());
        bytes
    }

    pub(super) fn answered(&self, opcode: u8) -> Vec<u8> {
        self.reply(opcode, &[self.number])
    }
}

/// Takes requests apart; all there is has to be whole.
pub(super) fn parse(mut data: &[u8]) -> Vec<Asked> {
    let mut asked = Vec::new();
    while let Some(&opcode) = data.first() {
        let header = match opcode {
            frames::ACQUIRE | frames::Q => 13,
            frames::RELEASE | frames::CANCEL => 9,
            frames::EXTEND => 11,
            _ => 1,
        };
        let text = data[header..].iter().position(|byte| *byte == b'\n').expect("a whole frame");
        let (frame, rest) = data.split_at(header + text + 1);
        data = rest;
        let at = |from: usize, size: usize| frame[from..from + size].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let key = String::from_utf8(frame[header..header + text].to_vec()).expect("a key");
        let (wait, lease, number) = match opcode {
            frames::ACQUIRE | frames::Q => (at(1, 2), at(3, 2), at(5, 8)),
            frames::RELEASE | frames::CANCEL => (0, 0, at(1, 8)),
            frames::EXTEND => (0, at(9, 2), at(1, 8)),
            _ => continue,
        };
        asked.push(Asked { opcode, wait: wait as u16, lease: lease as u16, number, key });
    }
    asked
}

pub(super) fn domain(first_token: u64, id: u64) -> String {
    format!("{first_token}.{id:016x}")
}

/// A banner of our servers; `node` is the address that it names itself by.
pub(super) fn banner(domain: &str, node: &str) -> String {
    format!("TICKETING/1+x+d={domain}+n={node} {NONCE}\n")
}

pub(super) fn published_banner() -> String {
    format!("TICKETING/1 {NONCE}\n")
}

pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) now: Nanos,
    /// What was deferred and is of interest: the addresses that were to be dialled.
    pub(super) dialled: Vec<String>,
    /// What was said as the runtime ended, and after that.
    pub(super) last_words: Vec<Asked>,
    _runtime: runtime::Runtime,
}

impl Rig {
    pub(super) fn new(addresses: &[&str]) -> Self {
        Self::with(addresses, |_| {})
    }

    pub(super) fn with(addresses: &[&str], adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            token: "s3cret".to_owned(),
            hello: b"test".to_vec(),
            verified: false,
            allow_future_domain: false,
            backoff: (100 * MILLISECOND, 3_200 * MILLISECOND),
        };
        adjust(&mut settings);
        // Never driven: the core only hands it on.
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut core = Core::new(settings, Random::from_seed(7));
        core.bind(runtime.handle().clone());
        let mut rig =
            Self { core, now: 1_000 * SECOND, dialled: Vec::new(), last_words: Vec::new(), _runtime: runtime };
        rig.act();
        rig
    }

    /// Does what was deferred, as far as it means anything here.
    pub(super) fn act(&mut self) {
        for deferred in self.core.take_deferred() {
            match deferred {
                Deferred::Dial(_, _, address, _) => self.dialled.push(address),
                Deferred::Say(_, words) => self.last_words.extend(parse(&words)),
                Deferred::Reply(reply, answer) => {
                    // Nobody may wait for it.
                    reply.send(answer).ok();
                }
                _ => {}
            }
        }
    }

    // --- sessions

    /// A session of the `number`th connection, as far as its TCP connection stands.
    pub(super) fn connect(&mut self, number: usize) -> SessionId {
        let id = self.core.connections[number].id;
        self.core.connected(id, self.now).expect("a connection that is wanted")
    }

    /// An open session of the `number`th connection whose first line says `first`.
    pub(super) fn open(&mut self, number: usize, banner: &str, first: &str) -> SessionId {
        let session = self.connect(number);
        self.say(session, banner.as_bytes());
        let mut response = Vec::new();
        self.core.orders(session, true, &mut response, self.now);
        assert_eq!(response.len(), 44, "the response to the banner");
        self.say(session, first.as_bytes());
        session
    }

    /// One address, whose node leads, with one session.
    pub(super) fn leading() -> (Self, SessionId) {
        let mut rig = Self::new(&["a:1"]);
        let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "La:1\n");
        (rig, session)
    }

    pub(super) fn say(&mut self, session: SessionId, data: &[u8]) {
        self.core.received(session, data, self.now);
        self.act();
    }

    /// What is written on a session now.
    pub(super) fn written(&mut self, session: SessionId) -> Vec<Asked> {
        let mut out = Vec::new();
        while matches!(self.core.orders(session, true, &mut out, self.now), Orders::Until(_)) {
            let before = out.len();
            self.core.orders(session, true, &mut out, self.now);
            if out.len() == before {
                break;
            }
        }
        self.act();
        let asked = parse(&out);
        if out.starts_with(b"H") { asked.into_iter().filter(|one| one.opcode != b'H').collect() } else { asked }
    }

    pub(super) fn is_over(&mut self, session: SessionId) -> bool {
        !self.core.sessions.contains_key(&session)
    }

    /// Moves the clock and looks at every deadline, as the tasks would.
    pub(super) fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + 50 * MILLISECOND);
            self.look();
        }
    }

    /// The same, with keep-alives of the server.
    pub(super) fn pass_alive(&mut self, time: Nanos, sessions: &[SessionId]) {
        let end = self.now + time;
        while self.now < end {
            let step = (end - self.now).min(2 * SECOND);
            sessions.iter().for_each(|session| self.say(*session, b"\n"));
            self.pass(step);
        }
    }

    pub(super) fn look(&mut self) {
        for id in self.core.sessions.keys().copied().collect::<Vec<_>>() {
            self.core.woken(id, self.now);
        }
        self.core.look(self.now);
        self.act();
    }

    // --- requests

    pub(super) fn ask(&mut self, key: &str, wait_s: u64) -> RequestId {
        self.ask_named(key, wait_s, false)
    }

    pub(super) fn ask_named(&mut self, key: &str, wait_s: u64, named: bool) -> RequestId {
        let wait_end = if wait_s == 0 { 0 } else { self.now + wait_s * SECOND };
        let id = self.core.ask(key.into(), wait_end, 30, named).expect("room for an acquire");
        self.act();
        id
    }

    pub(super) fn outcome(&mut self, id: RequestId) -> Option<Outcome> {
        match self.core.poll_acquire(id, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    pub(super) fn leave(&mut self, id: RequestId) {
        self.core.leave(id, self.now);
        self.act();
    }

    /// A ticket as it is handed out, with a lease of 30 s that began now.
    pub(super) fn ticket(&self, key: &str, token: u64, domain: &str) -> Arc<TicketState> {
        let end = self.now + 30 * SECOND * 998 / 1000;
        Arc::new(TicketState::new(Key::from(key), token, Some(domain.into()), 30, end))
    }

    pub(super) fn errand(&self, key: &str, token: u64) -> Errand {
        let current = self.core.domains.current().cloned();
        Errand::release(token, Key::from(key), current, self.now + ERRAND)
    }

    /// Nothing is left of the work of callers.
    pub(super) fn assert_clean(&self) {
        assert_eq!(self.core.left_behind(), (0, 0, 0), "errands, requests, requests without a session");
    }
}
