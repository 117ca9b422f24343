//! `TicketBroker`: what a program has one of.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::{Wish, acquire, refused};
use crate::arguments;
use crate::clock::{Clock, MILLISECOND, NEVER, Nanos};
use crate::core::Settings;
use crate::core::requests::Key;
use crate::error::TicketError;
use crate::protocol::fields::hello_text;
use crate::shared::{Handle, Shared};
use crate::ticket::Ticket;
use crate::tls::{Connector, TlsMode};

/// Between tries to connect: the first pause, and the longest.
const BACKOFF: (Nanos, Nanos) = (100 * MILLISECOND, 3_200 * MILLISECOND);

/// The connections of this program to one cluster. Make one at the start and share it: clones are the same broker.
///
/// It lives on the Tokio runtime on which it is made, or first used where it was made outside of one; the runtime needs
/// time and I/O enabled. When that runtime ends, what is under way ends with it, and the next use binds the broker to
/// the runtime of that use. It is used by one task for each connection and one for its deadlines; requests have none.
/// Calls may come from other runtimes; while nobody runs the one that the broker is bound to, they wait.
///
/// # Its end
///
/// `close().await` is the end that is waited for: call it before `main` returns, after tickets were released or dropped.
/// What is being given back has five seconds for its answers. Tickets that are still held then are left to their leases.
///
/// With the last clone, and the last ticket, it is closed in the background, for as long as its runtime runs.
///
/// Where its runtime ends, as `#[tokio::main]`'s does when `main` returns, all that is being given back is written to
/// the leader once more, without waiting: tickets that were dropped before, those of tasks that end with the runtime, and
/// those that are dropped later, up to the next use. Nobody hears the answers and nothing is tried again; without a
/// session to the leader, or with a connection that takes no more at the moment, leases are the last resort. They are
/// also for a process that ends in another way: `std::process::exit`, a signal, an abort.
#[derive(Clone)]
pub struct TicketBroker {
    handle: Arc<Handle>,
}

impl TicketBroker {
    /// A broker without token and TLS, of addresses `host:port`.
    ///
    /// Addresses that cannot be are told by every use: as `InvalidInput` of the field `addrs`.
    #[must_use]
    pub fn connect<I>(addrs: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let builder = Self::builder().addrs(addrs);
        match builder.clone().connect() {
            Ok(broker) => broker,
            Err(error) => builder.made(Vec::new(), None, Some(error)),
        }
    }

    /// A broker with options; see [`TicketBrokerBuilder`].
    #[must_use]
    pub fn builder() -> TicketBrokerBuilder {
        TicketBrokerBuilder::default()
    }

    /// Waits up to `wait` for `key`, to hold it for `lease`.
    ///
    /// `wait`: 0 (one immediate try, never queued) to 255 s. `lease`: 1 to 250 s. Both are rounded up to whole seconds on
    /// the wire. `min_work_budget`: what the work under the lock needs, pauses and the end of its database transaction
    /// included; 0 up to the lease. With less than that left no ticket is handed out. `key`: 1 to 128 bytes of UTF-8
    /// without space and line break. Nothing is clipped; what is out of range is refused before anything is sent.
    ///
    /// Locks are not re-entrant: a program that asks twice queues behind itself.
    ///
    /// # Cancellation
    ///
    /// The future may be dropped at any time. Unsent, the request is taken back. Sent, it is cancelled at the server in
    /// the background, on its own session, which is closed only where that is not answered within three seconds. A grant
    /// that was read meanwhile is given back by its exact token.
    ///
    /// # Errors
    ///
    /// Every variant of [`TicketError`]; the table in the documentation of the crate says what may be assumed. After
    /// `Indeterminate` nothing may.
    pub async fn acquire(
        &self,
        key: impl AsRef<str>,
        wait: Duration,
        lease: Duration,
        min_work_budget: Duration,
    ) -> Result<Ticket, TicketError> {
        let wait = arguments::wait(wait)?;
        let lease = arguments::lease(lease)?;
        let budget = arguments::budget(min_work_budget, lease)?;
        let key = Key::from(arguments::key(key.as_ref())?);
        acquire(&self.handle, Wish { key, wait, lease, budget }).await
    }

    /// Releases a grant of which only key and token are known, as [`Ticket::release`] does.
    ///
    /// # Errors
    ///
    /// As [`Ticket::release`]; `InvalidInput` for a key or a token that cannot be.
    pub async fn release(&self, key: impl AsRef<str>, token: u64) -> Result<bool, TicketError> {
        let token = arguments::fencing_token(token)?;
        let key = Key::from(arguments::key(key.as_ref())?);
        Ticket::of_token(self.handle.clone(), key, token).release().await
    }

    /// True once there is a session to a serving leader; false at the timeout, and at once where every address refuses
    /// the token or the broker cannot be used ([`try_wait_ready`](Self::try_wait_ready) says why).
    pub async fn wait_ready(&self, timeout: Duration) -> bool {
        self.try_wait_ready(timeout).await.unwrap_or(false)
    }

    /// As [`wait_ready`](Self::wait_ready), with the reason where waiting any longer is of no use.
    ///
    /// # Errors
    ///
    /// `Auth` where every address refuses the token, `Closed` where the broker was closed, `InvalidInput` where it was
    /// made with addresses that cannot be.
    pub async fn try_wait_ready(&self, timeout: Duration) -> Result<bool, TicketError> {
        let by = self.handle.now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(NEVER)).min(NEVER);
        let ready = self.handle.with(|core| core.ready.clone());
        loop {
            let mut changed = pin!(ready.notified());
            changed.as_mut().enable();
            // Also where its runtime ended meanwhile.
            self.handle.bind()?;
            let known = self.handle.with(|core| {
                if core.closed {
                    return Some(Err(TicketError::Closed { detail: "the broker was closed".to_owned() }));
                }
                if core.is_ready() {
                    return Some(Ok(true));
                }
                core.refused_token().map(|end| Err(refused(end)))
            });
            if let Some(known) = known {
                return known;
            }
            let left = by.saturating_sub(self.handle.now());
            if left == 0 {
                return Ok(false);
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(Duration::from_nanos(left)) => {}
            }
        }
    }

    /// Whether all that this broker is giving back now (releases, and cancels of requests without an answer) is answered
    /// within the timeout.
    ///
    /// Right after an acquire that ended as `Indeterminate`, true says that nothing of it is held or can still be granted.
    /// What was given up by then, after its five seconds or with its runtime, is not watched any more.
    pub async fn settled(&self, timeout: Duration) -> bool {
        let watch = Watch { id: self.handle.with(|core| core.errands.watch()), handle: &self.handle };
        let settling = self.handle.with(|core| core.settling.clone());
        let by = tokio::time::Instant::now() + timeout.min(Duration::from_secs(86_400));
        loop {
            let mut changed = pin!(settling.notified());
            changed.as_mut().enable();
            if let Some(settled) = self.handle.with(|core| core.errands.settled(watch.id)) {
                return settled;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(by) => return false,
            }
        }
    }

    /// The domain that is followed, `<first token>.<16 hex digits>`; `None` where none is known yet.
    #[must_use]
    pub fn domain(&self) -> Option<String> {
        self.handle.with(|core| core.domain().map(|domain| domain.as_ref().to_owned()))
    }

    /// Takes nothing new from this call on: what was not sent ends as `Closed`, what was is cancelled and ends as
    /// `Indeterminate`. Releases are tried for at most five seconds more, then connections and tasks end.
    ///
    /// That goes on whether or not the future is awaited, for as long as the broker's runtime runs; it is done when all
    /// has ended. May be called again, and by several at once. A ticket that is dropped once it is done is left to its
    /// lease.
    pub fn close(&self) -> Closing {
        let now = self.handle.now();
        let gone = self.handle.with(|core| {
            core.shut(now);
            core.tasks_gone.clone()
        });
        let handle = self.handle.clone();
        Closing(Box::pin(async move {
            loop {
                let mut changed = pin!(gone.notified());
                changed.as_mut().enable();
                if !handle.with(|core| core.has_tasks()) {
                    return;
                }
                changed.await;
            }
        }))
    }
}

#[cfg(test)]
impl TicketBroker {
    /// Has deadlines looked at now.
    pub(crate) fn look(&self) {
        self.handle.with(|core| core.keeper().notify_one());
    }

    /// Sessions; and what is queued on them.
    pub(crate) fn sessions(&self) -> usize {
        self.handle.with(|core| core.queued().len())
    }

    pub(crate) fn unwritten(&self) -> usize {
        self.handle.with(|core| core.queued().iter().sum())
    }
}

impl fmt::Debug for TicketBroker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.handle.with(|core| core.settings.addresses.clone());
        formatter.debug_struct("TicketBroker").field("addrs", &addresses).finish_non_exhaustive()
    }
}

struct Watch<'a> {
    id: u64,
    handle: &'a Handle,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.handle.with(|core| core.errands.unwatch(self.id));
    }
}

/// The end of a broker that is being closed; see [`TicketBroker::close`]. Need not be awaited.
pub struct Closing(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for Closing {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Closing")
    }
}

/// The options of a [`TicketBroker`]. All but the addresses may be left out.
#[derive(Clone, Default)]
pub struct TicketBrokerBuilder {
    addrs: Vec<String>,
    token: String,
    tls: TlsMode,
    name: String,
    allow_future_domain: bool,
    backoff: Option<(Nanos, Nanos)>,
    clock: Option<Clock>,
}

impl TicketBrokerBuilder {
    /// `host:port` or `[ipv6]:port`; one standing connection each, two where there is one address. Names are looked up
    /// anew for each connection, and all their addresses are tried.
    #[must_use]
    pub fn addrs<I>(mut self, addrs: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.addrs = addrs.into_iter().map(Into::into).collect();
        self
    }

    /// One of the servers' `client_tokens`. Never sent, and shown nowhere.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = token.into();
        self
    }

    /// How connections are secured; by default not at all.
    #[must_use]
    pub fn tls(mut self, mode: TlsMode) -> Self {
        self.tls = mode;
        self
    }

    /// This program's name, shown to operators with host and process id; by default its file's. At most 64 bytes of all
    /// that are sent.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Follow a domain that is dated more than 60 days ahead of this machine's clock; by default it is refused.
    #[must_use]
    pub fn allow_future_domain(mut self, allow: bool) -> Self {
        self.allow_future_domain = allow;
        self
    }

    /// Between tries to connect: the first pause, and the longest.
    #[cfg(test)]
    pub(crate) fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
        self.backoff = Some((nanos(first), nanos(longest)));
        self
    }

    #[cfg(test)]
    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes the broker. Inside a Tokio runtime it begins to connect; that nobody answers is no error here.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for addresses that cannot be; `Io` where CA file or platform roots cannot be used.
    pub fn connect(self) -> Result<TicketBroker, TicketError> {
        let addresses = arguments::addresses(self.addrs.clone())?;
        let tls = Connector::new(&self.tls)?;
        let broker = self.made(addresses, tls, None);
        if tokio::runtime::Handle::try_current().is_ok() {
            broker.handle.bind()?;
        }
        Ok(broker)
    }

    fn made(self, addresses: Vec<String>, tls: Option<Connector>, unusable: Option<TicketError>) -> TicketBroker {
        let settings = Settings {
            addresses,
            token: self.token,
            hello: hello(&self.name),
            verified: tls.as_ref().is_some_and(|tls| tls.verified),
            allow_future_domain: self.allow_future_domain,
            backoff: self.backoff.unwrap_or(BACKOFF),
        };
        let shared = Shared::new(settings, tls, self.clock.unwrap_or_else(Clock::machine));
        TicketBroker { handle: Handle::new(shared, unusable) }
    }
}

impl fmt::Debug for TicketBrokerBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        formatter
            .debug_struct("TicketBrokerBuilder")
            .field("addrs", &self.addrs)
            .field("tls", &self.tls)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Program, host and process id.
fn hello(name: &str) -> Vec<u8> {
    let program = std::env::args_os().next();
    let program = program.as_deref().and_then(|program| Path::new(program).file_name());
    let program = program.map_or_else(|| "rust".into(), |program| program.to_string_lossy().into_owned());
    let name = if name.is_empty() { program.as_str() } else { name };
    hello_text(&format!("{name} {} {}", host(), std::process::id()))
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
