//! Real node processes on loopback, in folders as `ticketing init` writes them, and a proxy whose connections are cut.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use sha2::Digest as _;

/// The `ticketing` command: `TICKETING_BIN`, or that of the repository's environment.
pub(crate) fn ticketing() -> Option<PathBuf> {
    let named = std::env::var_os("TICKETING_BIN").map(PathBuf::from);
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/ticketing");
    let path = named.unwrap_or(default);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: there is no {} to start nodes with (TICKETING_BIN names another)", path.display());
    None
}

/// So that a test ends within a time that a busy machine has.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Node {
    pub(crate) address: String,
    folder: PathBuf,
    process: Option<Child>,
}

impl Node {
    /// SIGKILL; the process is gone on return.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it lives");
            process.wait().expect("it ends");
        }
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let id = self.process.as_ref().expect("it was started").id().to_string();
        assert!(Command::new("kill").arg(id).status().expect("kill").success());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("node.log")).unwrap_or_default()
    }
}

/// The nodes of one folder. Dropped, they are killed and the folder is removed.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) token: String,
    folder: PathBuf,
}

impl Cluster {
    /// Starts so many nodes. `None` where nodes cannot be started here.
    pub(crate) fn start(count: usize, options: &[&str]) -> Option<Self> {
        Self::start_with(count, options, |config| config)
    }

    /// The same, with each `node.toml` adjusted.
    pub(crate) fn start_with(count: usize, options: &[&str], adjust: impl Fn(String) -> String) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let ticketing = ticketing()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ticketing-rust-{}-{number}", std::process::id()));
        let port = free_client_port(count);
        let done = Command::new(&ticketing)
            .args(["init", "--nodes", &count.to_string(), "--client-port", &port.to_string(), "--dir"])
            .arg(&folder)
            .args(options)
            .output()
            .expect("ticketing init");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut cluster = Self { nodes: Vec::new(), token: String::new(), folder: folder.clone() };
        for index in 0..count {
            let folder = folder.join(format!("node-{}", index + 1));
            let config = folder.join("node.toml");
            let text = adjust(std::fs::read_to_string(&config).expect("node.toml"));
            cluster.token = quoted_after(&text, "\nclient_tokens = ");
            std::fs::write(&config, text).expect("node.toml");
            let log = std::fs::File::create(folder.join("node.log")).expect("node.log");
            let process = dying_with_us(&ticketing)
                .args(["node", "start", "--config"])
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("node.log"))
                .stderr(log)
                .spawn()
                .expect("ticketing node start");
            let address = format!("127.0.0.1:{}", usize::from(port) + index);
            cluster.nodes.push(Node { address, folder, process: Some(process) });
        }
        Some(cluster)
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca").join("ca.pem")
    }

    /// The node that serves, as it says itself (without TLS).
    pub(crate) fn leader(&mut self) -> &mut Node {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for index in 0..self.nodes.len() {
                let node = &self.nodes[index];
                if node.process.is_some() && named_by(&node.address, &self.token).as_deref() == Some(&node.address)
                {
                    return &mut self.nodes[index];
                }
            }
            assert!(Instant::now() < deadline, "no node serves:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn logs(&self) -> String {
        self.nodes.iter().map(|node| format!("--- {}\n{}", node.address, node.log())).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Should the test run itself be killed, the kernel ends the nodes, where `setpriv` is there to ask for that.
fn dying_with_us(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn quoted_after(text: &str, name: &str) -> String {
    let after = text.split_once(name).map_or("", |(_, after)| after);
    let list = after.lines().next().unwrap_or_default();
    list.split('"').nth(1).unwrap_or_default().to_owned()
}

/// Whom the first line of a node names.
fn named_by(address: &str, token: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let mut banner = String::new();
    lines.read_line(&mut banner).ok()?;
    let (_, nonce) = banner.trim_end().split_once(' ')?;
    let hashed = sha2::Sha256::digest(format!("{token}{nonce}"));
    let response = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hashed);
    stream.write_all(format!("{response}\n").as_bytes()).ok()?;
    let mut first = String::new();
    lines.read_line(&mut first).ok()?;
    first.trim_end().strip_prefix('L').map(str::to_owned)
}

/// A port from which `init` may count up: clients, peers + 1000, admins + 2000.
fn free_client_port(nodes: usize) -> u16 {
    for _ in 0..1_000 {
        let mut drawn = [0; 2];
        getrandom::fill(&mut drawn).expect("randomness");
        let port = 10_000 + u16::from_ne_bytes(drawn) % 20_000;
        let mut wanted =
            [0, 1_000, 2_000].into_iter().flat_map(|more| (0..nodes as u16).map(move |n| port + more + n));
        if wanted.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
    panic!("no free ports on loopback");
}

/// A TCP proxy on a thread and runtime of its own, so that its tasks are not the test's.
pub(crate) struct Proxy {
    pub(crate) address: String,
    pairs: Arc<Mutex<Vec<tokio::task::AbortHandle>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Proxy {
    pub(crate) fn start(target: String) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for the proxy");
        let pairs: Arc<Mutex<Vec<tokio::task::AbortHandle>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("its address").to_string();
        let inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
        drop(inside);
        let taken = pairs.clone();
        runtime.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let target = target.clone();
                let pair = tokio::spawn(async move {
                    if let Ok(mut far) = tokio::net::TcpStream::connect(target).await {
                        // Whichever end goes first: the other one sees the end.
                        drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                    }
                });
                let mut pairs = taken.lock().expect("no panic in here");
                pairs.retain(|pair| !pair.is_finished());
                pairs.push(pair.abort_handle());
            }
        });
        Self { address, pairs, runtime: Some(runtime) }
    }

    /// Ends one connection at once, whatever is on the way.
    pub(crate) fn cut(&self, choice: u64) {
        let pairs = self.pairs.lock().expect("no panic in here");
        if !pairs.is_empty() {
            pairs[choice as usize % pairs.len()].abort();
        }
    }
}

/// `splitmix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
