//! A standing connection to one address: one task that dials, serves one session, and dials again when it has ended.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConnection;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use crate::core::Orders;
use crate::core::requests::{ConnectionId, SessionId};
use crate::core::session::{End, EndKind, STEP};
use crate::parting::Socket;
use crate::protocol::fields::split_address;
use crate::resolve::Resolver;
use crate::shared::{Shared, TaskGuard};
use crate::tls;

const STEP_TIME: Duration = Duration::from_nanos(STEP);
/// What was taken may be written, and read by the server, for so long when the broker is closed. A machine that is busy
/// with tests may take longer.
const FLUSH: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 1 });
const READ_BUFFER: usize = 32 * 1024;

/// Runs until the connection is not wanted any more.
pub(crate) async fn run(guard: TaskGuard, id: ConnectionId, address: String, wake: Arc<Notify>) {
    let shared = &guard.shared;
    let Ok((host, port)) = split_address(&address) else { return };
    let mut dialler = Dialler { resolver: Resolver::new(host, port), host, turn: id as usize };
    while shared.with(|core| core.is_wanted(id)) {
        let end = tokio::select! {
            dialled = dialler.dial(shared) => match dialled {
                Ok(stream) => {
                    let session = shared.with(|core| core.connected(id, shared.clock.now()));
                    let Some(session) = session else { return };
                    serve(shared, session, stream, &wake).await;
                    None
                }
                Err(end) => Some(end),
            },
            () = unwanted(shared, id, &wake) => return,
        };
        let Some(pause) = shared.with(|core| core.down(id, end, shared.clock.now())) else { return };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_nanos(pause)) => {}
            () = unwanted(shared, id, &wake) => return,
        }
    }
}

async fn unwanted(shared: &Arc<Shared>, id: ConnectionId, wake: &Notify) {
    while shared.with(|core| core.is_wanted(id)) {
        wake.notified().await;
    }
}

struct Dialler<'a> {
    resolver: Resolver,
    host: &'a str,
    turn: usize,
}

impl Dialler<'_> {
    async fn dial(&mut self, shared: &Shared) -> Result<Stream, End> {
        let late = || End::new(EndKind::Io, format!("no connection within {} s", STEP_TIME.as_secs()));
        let tcp = timeout(STEP_TIME, self.connect())
            .await
            .map_err(|_| late())?
            .map_err(|error| End::new(EndKind::Io, format!("cannot connect: {error}")))?;
        let Some(tls) = &shared.tls else { return Ok(Stream::Plain(tcp)) };
        let name = tls::server_name(self.host).map_err(|detail| End::new(EndKind::Tls, detail))?;
        match timeout(STEP_TIME, tls.connector.connect(name, tcp)).await {
            Err(_) => Err(End::new(EndKind::Io, format!("no TLS within {} s", STEP_TIME.as_secs()))),
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(tls_failure(&error)),
        }
    }

    /// The addresses of the name are tried in turn.
    async fn connect(&mut self) -> io::Result<TcpStream> {
        let mut found = self.resolver.addresses().await?;
        // The next try begins with another one, and so does a second connection to the same name.
        let first = self.turn % found.len();
        self.turn = self.turn.wrapping_add(1);
        found.rotate_left(first);
        let share = STEP_TIME / u32::try_from(found.len().min(4)).unwrap_or(4);
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for target in found {
            match timeout(share, reach(target)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::Error::new(io::ErrorKind::TimedOut, "no answer"),
            }
        }
        Err(failure)
    }
}

async fn reach(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target).await?;
    if stream.local_addr()? == stream.peer_addr()? {
        // The kernel gave us the very port that we dialled: nobody listens there.
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connected to itself"));
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn tls_failure(error: &io::Error) -> End {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    if matches!(cause, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) {
        return End::new(EndKind::Tls, format!("the server's certificate is refused: {error}"));
    }
    End::new(EndKind::Io, format!("no TLS: {error}"))
}

/// Carries the bytes of one session until it is over.
async fn serve(shared: &Arc<Shared>, session: SessionId, stream: Stream, wake: &Notify) {
    let (reader, writer) = tokio::io::split(stream);
    let line = Line { reader, writer, output: Output::default() };
    let mut serving = Serving { shared, session, line: Some(line) };
    let Some(Line { reader, writer, output }) = &mut serving.line else { return };
    let mut buffer = vec![0; READ_BUFFER];
    let mut alarm = pin!(tokio::time::sleep(STEP_TIME));
    let mut alarm_at = u64::MAX;
    loop {
        let room = output.is_written();
        if room {
            output.reset();
        }
        // Not before the bytes taken last are with the kernel: what is queued stays provably unsent. The clock is read
        // inside the lock, and so after the beginning of every wait that is written.
        let (orders, now) = shared.with(|core| {
            let now = shared.clock.now();
            (core.orders(session, room, &mut output.bytes, now), now)
        });
        match orders {
            Orders::Until(moment) if moment == alarm_at => {}
            Orders::Until(moment) => {
                alarm_at = moment;
                alarm.as_mut().reset(Instant::now() + Duration::from_nanos(moment.saturating_sub(now)));
            }
            Orders::Over { flush, awaited } => {
                if flush {
                    let farewell = async {
                        output.write(writer).await?;
                        writer.shutdown().await?;
                        // The server's to close: a socket that is closed with an answer unread, or before it comes, is
                        // reset, and takes what is not read over there along.
                        while awaited && reader.read(&mut buffer).await? > 0 {}
                        io::Result::Ok(())
                    };
                    // A peer that does not read must not keep us; whatever fails, the session is over.
                    drop(timeout(FLUSH, farewell).await);
                }
                serving.line = None;
                return;
            }
            Orders::Leave => return,
        }
        tokio::select! {
            biased;
            written = output.write(writer), if !output.is_written() => {
                if let Err(error) = written {
                    lost(shared, session, &format!("the connection was lost: {error}"));
                }
            }
            read = reader.read(&mut buffer) => match read {
                Ok(0) => lost(shared, session, "the server closed the connection"),
                Ok(size) => {
                    let now = shared.clock.now();
                    shared.with(|core| core.received(session, &buffer[..size], now));
                }
                Err(error) => lost(shared, session, &format!("the connection was lost: {error}")),
            },
            () = wake.notified() => {}
            () = &mut alarm => {
                alarm_at = u64::MAX;
                let now = shared.clock.now();
                shared.with(|core| core.woken(session, now));
            }
        }
    }
}

fn lost(shared: &Arc<Shared>, session: SessionId, detail: &str) {
    let now = shared.clock.now();
    shared.with(|core| core.transport_lost(session, detail, now));
}

/// What carries the bytes of a session.
struct Line {
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    output: Output,
}

/// A session that is served, or (`line` is `None`) was. Dropped in between, its task ends with its runtime.
struct Serving<'a> {
    shared: &'a Arc<Shared>,
    session: SessionId,
    line: Option<Line>,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let Some(Line { reader, writer, mut output }) = self.line.take() else { return };
        let unwritten = output.bytes.split_off(output.written);
        match reader.unsplit(writer).into_std() {
            Ok((tcp, tls)) => self.shared.leave(self.session, Socket::new(tcp, tls, unwritten)),
            Err(error) => log::debug!("a socket is gone with its runtime: {error}"),
        }
    }
}

/// Bytes that were taken from the session, and how far they are written. Every method may be dropped at any `await`.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    written: usize,
    flushed: bool,
}

impl Output {
    fn is_written(&self) -> bool {
        self.written == self.bytes.len() && (self.flushed || self.bytes.is_empty())
    }

    fn reset(&mut self) {
        self.bytes.clear();
        self.written = 0;
        self.flushed = false;
    }

    async fn write(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match writer.write(&self.bytes[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                size => self.written += size,
            }
        }
        writer.flush().await?;
        self.flushed = true;
        Ok(())
    }
}

/// A connection with or without TLS.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Takes it off its runtime.
    fn into_std(self) -> io::Result<(std::net::TcpStream, Option<Box<ClientConnection>>)> {
        match self {
            Self::Plain(tcp) => Ok((tcp.into_std()?, None)),
            Self::Tls(stream) => {
                let (tcp, tls) = stream.into_inner();
                Ok((tcp.into_std()?, Some(Box::new(tls))))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
