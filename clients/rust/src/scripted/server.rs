//! A lock server on a thread and a runtime of its own, so that its tasks are not the test's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::protocol::frames;

const DOMAIN: &str = "1782579200000000.00000000000000aa";

struct Waiter {
    owner: u64,
    session: u64,
    answers: mpsc::UnboundedSender<Vec<u8>>,
}

#[derive(Default)]
struct State {
    token: u64,
    held: HashMap<String, (u64, u64)>,
    queues: HashMap<String, VecDeque<Waiter>>,
    cancelled: HashSet<u64>,
    sessions: u64,
    acquires: usize,
    longest_wait: u16,
    releases: usize,
    hello: String,
    links: Vec<AbortHandle>,
    accepting: Option<AbortHandle>,
}

pub(super) struct LockServer {
    pub(super) address: String,
    state: Arc<Mutex<State>>,
    reading: watch::Sender<bool>,
    runtime: Runtime,
}

/// With a small buffer, so that what a server does not read is soon not written.
fn listener(runtime: &Runtime, address: &str) -> std::io::Result<std::net::TcpListener> {
    let address = address.parse().map_err(std::io::Error::other)?;
    let _inside = runtime.enter();
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_recv_buffer_size(16 * 1024)?;
    socket.bind(address)?;
    socket.listen(64)?.into_std()
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no panic in the server")
}

impl LockServer {
    pub(super) fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = listener(&runtime, "127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(Mutex::new(State { token: 1_782_579_200_000_000, ..State::default() }));
        let server = Self { address, state, reading: watch::Sender::new(true), runtime };
        server.accept(listener);
        server
    }

    fn accept(&self, listener: std::net::TcpListener) {
        let (state, reading, address) = (self.state.clone(), self.reading.clone(), self.address.clone());
        let _inside = self.runtime.enter();
        let listener = TcpListener::from_std(listener).expect("a socket");
        let accepting = self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream, state.clone(), reading.subscribe(), address.clone());
                let link = tokio::spawn(async move {
                    // However it ends: the session is over.
                    serving.await.ok();
                });
                locked(&state).links.push(link.abort_handle());
            }
        });
        locked(&self.state).accepting = Some(accepting.abort_handle());
    }

    pub(super) fn stop_listening(&self) {
        if let Some(accepting) = locked(&self.state).accepting.take() {
            accepting.abort();
        }
    }

    pub(super) async fn listen_again(&self) {
        loop {
            if let Ok(listener) = listener(&self.runtime, &self.address) {
                return self.accept(listener);
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Ends all sessions.
    pub(super) fn cut(&self) {
        locked(&self.state).links.drain(..).for_each(|link| link.abort());
    }

    pub(super) fn read(&self, whether: bool) {
        self.reading.send_replace(whether);
    }

    pub(super) fn holder(&self, key: &str) -> Option<u64> {
        locked(&self.state).held.get(key).map(|held| held.1)
    }

    pub(super) fn held(&self) -> usize {
        locked(&self.state).held.len()
    }

    pub(super) fn waiting(&self, key: &str) -> usize {
        locked(&self.state).queues.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn revoke(&self, key: &str) {
        locked(&self.state).held.remove(key);
    }

    pub(super) fn sessions(&self) -> u64 {
        locked(&self.state).sessions
    }

    pub(super) fn acquires(&self) -> usize {
        locked(&self.state).acquires
    }

    pub(super) fn longest_wait(&self) -> u16 {
        locked(&self.state).longest_wait
    }

    pub(super) fn releases(&self) -> usize {
        locked(&self.state).releases
    }

    pub(super) fn hello(&self) -> String {
        locked(&self.state).hello.clone()
    }
}

/// What a session waits for is dropped with it, however it ends.
struct Leaving {
    state: Arc<Mutex<State>>,
    session: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        for queue in locked(&self.state).queues.values_mut() {
            queue.retain(|waiter| waiter.session != self.session);
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    state: Arc<Mutex<State>>,
    mut reading: watch::Receiver<bool>,
    address: String,
) -> std::io::Result<()> {
    let banner = format!("TICKETING/1+x+d={DOMAIN}+n={address} 0123456789abcdef0123456789abcdef\n");
    stream.write_all(banner.as_bytes()).await?;
    let mut response = [0; 44];
    stream.read_exact(&mut response).await?;
    stream.write_all(format!("L{address}\n").as_bytes()).await?;
    let session = {
        let mut state = locked(&state);
        state.sessions += 1;
        state.sessions
    };
    let leaving = Leaving { state: state.clone(), session };
    let (answers, mut out) = mpsc::unbounded_channel::<Vec<u8>>();
    let (mut reader, mut writer) = stream.into_split();
    let mut data = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut alive = tokio::time::interval(std::time::Duration::from_secs(3));
    loop {
        let may_read = *reading.borrow();
        tokio::select! {
            Some(answer) = out.recv() => writer.write_all(&answer).await?,
            size = reader.read(&mut chunk), if may_read => match size? {
                0 => break,
                size => {
                    data.extend_from_slice(&chunk[..size]);
                    let taken = answer(&data, &mut locked(&state), session, &answers);
                    data.drain(..taken);
                }
            },
            Ok(()) = reading.changed() => {}
            _ = alive.tick() => writer.write_all(b"\n").await?,
        }
    }
    drop(leaving);
    Ok(())
}

/// Answers all whole frames; returns how many bytes they are.
fn answer(data: &[u8], state: &mut State, session: u64, answers: &mpsc::UnboundedSender<Vec<u8>>) -> usize {
    let mut taken = 0;
    while let Some(&opcode) = data.get(taken) {
        let frame = &data[taken..];
        let header = match opcode {
            frames::Q => 13,
            frames::RELEASE | frames::CANCEL => 9,
            frames::EXTEND => 11,
            _ => 1,
        };
        let Some(text) = frame.get(header..).and_then(|text| text.iter().position(|byte| *byte == b'\n')) else {
            return taken;
        };
        let key = String::from_utf8_lossy(&frame[header..header + text]).into_owned();
        taken += header + text + 1;
        let number = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().expect("eight bytes"));
        match opcode {
            frames::Q => {
                state.longest_wait = state.longest_wait.max(u16::from_be_bytes([frame[1], frame[2]]));
                state.acquire(number(5), frame[2] == 0, session, key, answers);
            }
            frames::RELEASE => state.release(number(1), &key, answers),
            frames::CANCEL => state.cancel(number(1), &key, answers),
            frames::EXTEND => {
                let held = state.held.get(&key).is_some_and(|held| held.1 == number(1));
                say(answers, if held { frames::EXTENDED } else { frames::NOT_HELD }, &[number(1)], &key);
            }
            frames::HELLO => state.hello = key,
            _ => {}
        }
    }
    taken
}

fn say(answers: &mpsc::UnboundedSender<Vec<u8>>, opcode: u8, numbers: &[u64], key: &str) {
    let mut bytes = vec![opcode];
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
    if opcode == frames::GRANTED_WAITED {
        bytes.extend_from_slice(&[0; 4]);
    }
    bytes.extend_from_slice(key.as_bytes());
    bytes.push(b'\n');
    // The session may be over.
    answers.send(bytes).ok();
}

impl State {
    fn acquire(
        &mut self,
        owner: u64,
        at_once: bool,
        session: u64,
        key: String,
        answers: &mpsc::UnboundedSender<Vec<u8>>,
    ) {
        self.acquires += 1;
        if self.cancelled.contains(&owner) || (at_once && self.held.contains_key(&key)) {
            say(answers, frames::TIMEOUT, &[owner], &key);
        } else if self.held.contains_key(&key) {
            let waiter = Waiter { owner, session, answers: answers.clone() };
            self.queues.entry(key).or_default().push_back(waiter);
        } else {
            self.grant(owner, &key, answers);
        }
    }

    fn grant(&mut self, owner: u64, key: &str, answers: &mpsc::UnboundedSender<Vec<u8>>) {
        self.token += 1;
        self.held.insert(key.to_owned(), (owner, self.token));
        say(answers, frames::GRANTED_WAITED, &[self.token, owner], key);
    }

    fn free(&mut self, key: &str) {
        self.held.remove(key);
        if let Some(next) = self.queues.get_mut(key).and_then(VecDeque::pop_front) {
            self.grant(next.owner, key, &next.answers);
        }
    }

    fn release(&mut self, token: u64, key: &str, answers: &mpsc::UnboundedSender<Vec<u8>>) {
        self.releases += 1;
        let held = self.held.get(key).is_some_and(|held| held.1 == token);
        say(answers, if held { frames::RELEASED } else { frames::NOT_HELD }, &[token], key);
        if held {
            self.free(key);
        }
    }

    fn cancel(&mut self, owner: u64, key: &str, answers: &mpsc::UnboundedSender<Vec<u8>>) {
        self.cancelled.insert(owner);
        let queue = self.queues.entry(key.to_owned()).or_default();
        let before = queue.len();
        queue.retain(|waiter| waiter.owner != owner);
        let waited = queue.len() < before;
        let held = self.held.get(key).is_some_and(|held| held.0 == owner);
        say(answers, if held || waited { frames::RELEASED } else { frames::NOT_HELD }, &[owner], key);
        if held {
            self.free(key);
        }
    }
}
