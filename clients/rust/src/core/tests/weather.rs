//! Random rounds in virtual time: callers come and leave at any moment, sessions are cut, leaders change; in the end
//! nothing may be left, neither here nor held at the servers. A seed is a transcript: the same seed, the same run.
//!
//! `TICKETING_SEEDS=first..last` runs others.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::super::requests::{Errand, Grant, Outcome, RequestId, SessionId};
use super::super::{Core, Deferred, ERRAND, Orders, Settings};
use super::rig::{Asked, FIRST_TOKEN, banner, domain, parse};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::random::Random;

const NODES: usize = 3;
const CALLERS: usize = 24;
const KEYS: u64 = 5;
const ROUNDS: u32 = 1_500;
const STEP: Nanos = MILLISECOND;

fn address(node: usize) -> String {
    format!("node-{}:5225", node + 1)
}

/// What the nodes agree on, and the queue of the one that leads.
#[derive(Default)]
struct Locks {
    /// By key: owner and token.
    held: BTreeMap<String, (u64, u64)>,
    queues: BTreeMap<String, VecDeque<Waiter>>,
    cancelled: HashSet<u64>,
    tokens: u64,
}

struct Waiter {
    asked: Asked,
    link: usize,
    until: Nanos,
    since: Nanos,
}

/// One connection as both ends have it. Bytes are under way for a while, in order.
struct Link {
    node: usize,
    connection: usize,
    session: SessionId,
    open: bool,
    shaken: bool,
    to_server: VecDeque<(Nanos, Vec<u8>)>,
    to_client: VecDeque<(Nanos, Vec<u8>)>,
    buffer: Vec<u8>,
    spoke: Nanos,
}

enum Caller {
    Idle,
    Asking { request: RequestId, key: String, leaves: Option<Nanos> },
    Holding { key: String, grant: Grant, until: Nanos },
}

struct World {
    core: Core,
    now: Nanos,
    random: Random,
    leader: Option<usize>,
    elect_at: Nanos,
    locks: Locks,
    links: Vec<Link>,
    /// By connection: when it is dialled again.
    dial_at: Vec<Option<Nanos>>,
    callers: Vec<Caller>,
    rounds: u32,
    calm: bool,
    outcomes: BTreeSet<&'static str>,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let settings = Settings {
            addresses: (0..NODES).map(address).collect(),
            token: String::new(),
            hello: Vec::new(),
            verified: false,
            allow_future_domain: false,
            backoff: (5 * MILLISECOND, 20 * MILLISECOND),
        };
        let mut core = Core::new(settings, Random::from_seed(seed));
        core.bind(runtime.handle().clone());
        core.take_deferred();
        Self {
            core,
            now: 1_000 * SECOND,
            random: Random::from_seed(seed ^ 0x5eed),
            leader: Some(0),
            elect_at: 0,
            locks: Locks { tokens: FIRST_TOKEN, ..Locks::default() },
            links: Vec::new(),
            dial_at: vec![Some(0); NODES],
            callers: (0..CALLERS).map(|_| Caller::Idle).collect(),
            rounds: ROUNDS,
            calm: false,
            outcomes: BTreeSet::new(),
            _runtime: runtime,
        }
    }

    fn count(&mut self, what: &'static str) {
        self.outcomes.insert(what);
    }

    // --- the network

    fn latency(&mut self) -> Nanos {
        let longest = if self.random.below(20) == 0 { 30 } else { 3 };
        self.now + self.random.below(longest) * MILLISECOND
    }

    fn dial(&mut self, connection: usize) {
        let Some(session) = self.core.connected(self.core.connections[connection].id, self.now) else { return };
        let node = connection;
        self.links.push(Link {
            node,
            connection,
            session,
            open: true,
            shaken: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            buffer: Vec::new(),
            spoke: self.now,
        });
        let greeting = banner(&domain(FIRST_TOKEN, 1), &address(node));
        self.say(self.links.len() - 1, greeting.into_bytes());
    }

    /// Not overtaking what was said before.
    fn say(&mut self, link: usize, data: Vec<u8>) {
        let at = self.latency();
        let link = &mut self.links[link];
        let at = link.to_client.back().map_or(at, |last| last.0.max(at));
        link.to_client.push_back((at, data));
        link.spoke = self.now;
    }

    /// Nothing that is under way arrives, in either direction.
    fn cut(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].open, false) {
            for queue in self.locks.queues.values_mut() {
                queue.retain(|waiter| waiter.link != link);
            }
            let session = self.links[link].session;
            self.core.transport_lost(session, "cut", self.now);
            self.ended(link);
        }
    }

    fn ended(&mut self, link: usize) {
        let connection = self.links[link].connection;
        let id = self.core.connections[connection].id;
        let pause = self.core.down(id, None, self.now).expect("a configured address");
        self.dial_at[connection] = Some(self.now + pause);
    }

    fn carry(&mut self) {
        for link in 0..self.links.len() {
            if !self.links[link].open {
                continue;
            }
            let mut out = Vec::new();
            match self.core.orders(self.links[link].session, true, &mut out, self.now) {
                Orders::Until(moment) if moment <= self.now => self.core.woken(self.links[link].session, self.now),
                Orders::Until(_) => {}
                Orders::Leave => unreachable!("no runtime ends here"),
                Orders::Over { .. } => {
                    // Closed by the client: what it had said before may arrive, what is said to it does not.
                    self.links[link].open = false;
                    while let Some((_, data)) = self.links[link].to_server.pop_front() {
                        self.serve(link, &data);
                    }
                    for queue in self.locks.queues.values_mut() {
                        queue.retain(|waiter| waiter.link != link);
                    }
                    self.ended(link);
                    continue;
                }
            }
            if !out.is_empty() {
                let at = self.latency();
                let queue = &mut self.links[link].to_server;
                let at = queue.back().map_or(at, |last| last.0.max(at));
                queue.push_back((at, out));
            }
            while self.links[link].open && self.links[link].to_server.front().is_some_and(|one| one.0 <= self.now)
            {
                let (_, data) = self.links[link].to_server.pop_front().unwrap_or_default();
                self.serve(link, &data);
            }
            while self.links[link].open && self.links[link].to_client.front().is_some_and(|one| one.0 <= self.now)
            {
                let (_, data) = self.links[link].to_client.pop_front().unwrap_or_default();
                self.core.received(self.links[link].session, &data, self.now);
            }
            if self.links[link].open && self.now - self.links[link].spoke >= 3 * SECOND {
                self.say(link, b"\n".to_vec());
            }
        }
        self.core.look(self.now);
        for deferred in self.core.take_deferred() {
            if let Deferred::Reply(reply, answer) = deferred {
                // Nobody may wait for it.
                reply.send(answer).ok();
            }
        }
        for connection in 0..NODES {
            if self.dial_at[connection].is_some_and(|at| at <= self.now) {
                self.dial_at[connection] = None;
                self.dial(connection);
            }
        }
    }

    // --- the servers

    fn named(&self) -> Vec<u8> {
        self.leader.map_or(b"\n".to_vec(), |leader| format!("L{}\n", address(leader)).into_bytes())
    }

    fn serve(&mut self, link: usize, data: &[u8]) {
        self.links[link].buffer.extend_from_slice(data);
        if !self.links[link].shaken {
            let Some(end) = self.links[link].buffer.iter().position(|byte| *byte == b'\n') else { return };
            self.links[link].buffer.drain(..=end);
            self.links[link].shaken = true;
            let named = self.named();
            self.say(link, named);
        }
        // The core writes whole frames.
        let frames = std::mem::take(&mut self.links[link].buffer);
        for asked in parse(&frames) {
            if self.leader == Some(self.links[link].node) {
                self.lead(link, asked);
            } else if asked.opcode == b'Q' {
                self.say(link, asked.answered(b'V'));
                let named = self.named();
                self.say(link, named);
            } else {
                let last = self.leader.map_or("Eno_leader\n".into(), |leader| format!("M{}\n", address(leader)));
                self.say(link, last.into_bytes());
            }
        }
    }

    fn lead(&mut self, link: usize, asked: Asked) {
        let key = asked.key.clone();
        let held = self.locks.held.get(&key).copied();
        match asked.opcode {
            b'Q' if self.locks.cancelled.contains(&asked.number) => self.say(link, asked.answered(b'T')),
            b'Q' if held.is_none() => self.grant(link, &asked, 0),
            b'Q' if asked.wait == 0 => self.say(link, asked.answered(b'T')),
            b'Q' => {
                let until = self.now + u64::from(asked.wait) * SECOND;
                let waiter = Waiter { asked, link, until, since: self.now };
                self.locks.queues.entry(key).or_default().push_back(waiter);
            }
            b'R' if held.is_some_and(|(_, token)| token == asked.number) => {
                self.say(link, asked.answered(b'R'));
                self.free(&key);
            }
            b'X' if held.is_some_and(|(_, token)| token == asked.number) => self.say(link, asked.answered(b'X')),
            b'C' => self.cancel(link, &asked, held),
            _ => self.say(link, asked.answered(b'N')),
        }
    }

    fn cancel(&mut self, link: usize, asked: &Asked, held: Option<(u64, u64)>) {
        self.locks.cancelled.insert(asked.number);
        let queue = self.locks.queues.entry(asked.key.clone()).or_default();
        let (gone, rest): (VecDeque<Waiter>, VecDeque<Waiter>) =
            std::mem::take(queue).into_iter().partition(|one| one.asked.number == asked.number);
        *queue = rest;
        for waiter in &gone {
            // As a server does it that finds the waiter on another session, or on this one.
            if waiter.link != link || self.random.below(2) == 0 {
                self.say(waiter.link, waiter.asked.answered(b'T'));
            }
        }
        if held.is_some_and(|(owner, _)| owner == asked.number) {
            self.say(link, asked.answered(b'R'));
            self.free(&asked.key);
        } else {
            self.say(link, asked.answered(if gone.is_empty() { b'N' } else { b'R' }));
        }
    }

    fn grant(&mut self, link: usize, asked: &Asked, waited: Nanos) {
        self.locks.tokens += 1;
        let token = self.locks.tokens;
        self.locks.held.insert(asked.key.clone(), (asked.number, token));
        self.say(link, asked.granted_after(token, (waited / MILLISECOND) as u32));
    }

    fn free(&mut self, key: &str) {
        self.locks.held.remove(key);
        if let Some(next) = self.locks.queues.get_mut(key).and_then(VecDeque::pop_front) {
            self.grant(next.link, &next.asked, self.now - next.since);
        }
    }

    fn time_out(&mut self) {
        let mut over = Vec::new();
        for queue in self.locks.queues.values_mut() {
            let (late, rest): (VecDeque<Waiter>, VecDeque<Waiter>) =
                std::mem::take(queue).into_iter().partition(|one| one.until <= self.now);
            *queue = rest;
            over.extend(late);
        }
        for waiter in over {
            self.say(waiter.link, waiter.asked.answered(b'T'));
        }
    }

    /// The lead is lost or given away: its queue is answered `V`, or dies with the process.
    fn depose(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        self.elect_at = self.now + (50 + self.random.below(600)) * MILLISECOND;
        if self.random.below(2) == 0 {
            for link in 0..self.links.len() {
                if self.links[link].open && self.links[link].node == leader {
                    self.cut(link);
                }
            }
        }
        for waiter in std::mem::take(&mut self.locks.queues).into_values().flatten() {
            self.say(waiter.link, waiter.asked.answered(b'V'));
        }
    }

    fn elect(&mut self) {
        if self.leader.is_none() && self.now >= self.elect_at {
            self.leader = Some(self.random.below(NODES as u64) as usize);
            let named = self.named();
            for link in 0..self.links.len() {
                if self.links[link].open && self.links[link].shaken {
                    self.say(link, named.clone());
                }
            }
        }
    }

    // --- callers

    fn call(&mut self, number: usize) {
        let caller = std::mem::replace(&mut self.callers[number], Caller::Idle);
        self.callers[number] = match caller {
            Caller::Idle if self.rounds == 0 || self.random.below(4) > 0 => Caller::Idle,
            Caller::Idle => {
                self.rounds -= 1;
                let key = format!("key-{}", self.random.below(KEYS));
                let wait = if self.random.below(8) == 0 { 0 } else { 3 };
                let wait_end = if wait == 0 { 0 } else { self.now + wait * SECOND };
                let request = self.core.ask(key.as_str().into(), wait_end, 200, false).expect("room");
                let leaves = match self.random.below(3) {
                    0 => Some(self.now + self.random.below(4) * MILLISECOND),
                    1 => Some(self.now + self.random.below(200) * MILLISECOND),
                    _ => None,
                };
                Caller::Asking { request, key, leaves }
            }
            Caller::Asking { request, key, leaves } => self.wait(request, key, leaves),
            Caller::Holding { key, grant, until } if self.now >= until => {
                self.give_back(&key, &grant);
                Caller::Idle
            }
            holding => holding,
        };
    }

    fn wait(&mut self, request: RequestId, key: String, leaves: Option<Nanos>) -> Caller {
        if leaves.is_some_and(|at| at <= self.now) {
            self.core.leave(request, self.now);
            self.count("left");
            return Caller::Idle;
        }
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(outcome) = self.core.poll_acquire(request, &mut context) else {
            return Caller::Asking { request, key, leaves };
        };
        match outcome {
            Outcome::Granted(grant) => {
                for other in &self.callers {
                    if let Caller::Holding { key: held, grant: other, .. } = other {
                        assert_ne!(*held, key, "held under {} and {}", other.token, grant.token);
                    }
                }
                self.count("held");
                let until = self.now + self.random.below(8) * MILLISECOND;
                Caller::Holding { key, grant, until }
            }
            Outcome::NotLeading => {
                self.count("not leading");
                let wait_end = self.now + 3 * SECOND;
                let request = self.core.ask(key.as_str().into(), wait_end, 200, true).expect("room");
                Caller::Asking { request, key, leaves }
            }
            other => {
                self.count(match other {
                    Outcome::Timeout => "timeout",
                    Outcome::Lost => "indeterminate",
                    Outcome::WaitOver => "wait over",
                    Outcome::NoSession => "not connected",
                    _ => panic!("{other:?}"),
                });
                Caller::Idle
            }
        }
    }

    fn give_back(&mut self, key: &str, grant: &Grant) {
        if self.random.below(2) == 0 {
            self.core.compensate(grant.token, key.into(), grant.domain.clone(), self.now);
        } else {
            let errand = Errand::release(grant.token, key.into(), grant.domain.clone(), self.now + ERRAND);
            self.core.run(errand, self.now).expect("room for a release");
        }
    }

    // --- the run

    fn step(&mut self) {
        self.now += STEP;
        self.elect();
        self.time_out();
        if !self.calm {
            if self.random.below(40) == 0 && !self.links.is_empty() {
                let link = self.random.below(self.links.len() as u64) as usize;
                self.cut(link);
            }
            if self.random.below(400) == 0 {
                self.depose();
            }
        }
        self.carry();
        for caller in 0..CALLERS {
            self.call(caller);
        }
        if self.links.iter().all(|link| !link.open) {
            // Nobody names them any more.
            self.links.clear();
        }
    }

    /// What calls came to.
    fn run(mut self, seed: u64) -> impl Iterator<Item = &'static str> {
        let limit = self.now + 600 * SECOND;
        while self.rounds > 0 || self.callers.iter().any(|caller| !matches!(caller, Caller::Idle)) {
            self.step();
            assert!(self.now < limit, "seed {seed}: callers wait for ever");
        }
        self.calm = true;
        // An election, and all the time that an errand has.
        for _ in 0..(7 * SECOND / STEP) {
            self.step();
        }
        assert_eq!(
            self.core.left_behind(),
            (0, 0, 0),
            "seed {seed}: errands, requests, requests without a session"
        );
        assert_eq!(self.locks.held, BTreeMap::new(), "seed {seed}: held");
        assert_eq!(self.locks.queues.values().map(VecDeque::len).sum::<usize>(), 0, "seed {seed}: waiting");
        self.outcomes.into_iter()
    }
}

#[test]
fn whoever_leaves_and_whatever_is_cut_nothing_stays_held() {
    let seeds = std::env::var("TICKETING_SEEDS").ok();
    let (first, last) = match seeds.as_deref().and_then(|seeds| seeds.split_once("..")) {
        Some((first, last)) => (first.parse().expect("a seed"), last.parse().expect("a seed")),
        None => (1, 12),
    };
    let outcomes: BTreeSet<&str> = (first..=last).flat_map(|seed| World::new(seed).run(seed)).collect();
    for what in ["held", "left", "indeterminate", "not leading"] {
        assert!(outcomes.contains(what), "seeds {first} to {last}: {outcomes:?}");
    }
}
