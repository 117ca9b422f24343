//! The opening of a session, the client's side: banner, response, first line.
//!
//! The server speaks first and names itself; the client proves that it knows a token without sending it; the server's
//! first line says that it is in, and where the leader is. What follows in the same segment are frames.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::fields::{LINE_BYTES_MAX, TOKEN_END, address_problem, escaped};
use super::frames::{ERROR_REASONS, NEWLINE};

/// A banner with a shorter nonce is refused: it could come round again.
const NONCE_CHARS_MIN: usize = 16;

/// The server's opening line, `TICKETING/1+x+d=<domain>+n=<address> <nonce>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Banner {
    /// Visible ASCII, at least 16 characters.
    pub(crate) nonce: String,
    /// `+x`: the server knows `Q C X H` and answers with `G V`; it sends a first line.
    pub(crate) extended: bool,
    /// `+s`
    pub(crate) standalone: bool,
    /// `<first token>.<16 lower-case hex digits>`; `None` without membership.
    pub(crate) domain: Option<String>,
    /// The number in front of the domain: the higher, the newer the domain. 0 without one.
    pub(crate) first_token: u64,
    /// This node's client address as the cluster names it in `L`.
    pub(crate) node_address: Option<String>,
}

/// Takes a shown domain apart into first token and id; `None` where it is not one, byte for byte.
pub(crate) fn parse_domain(text: &str) -> Option<(u64, u64)> {
    let (digits, hex) = text.split_once('.')?;
    if hex.len() != 16 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    if digits.is_empty()
        || digits.len() > 19
        || digits.starts_with('0')
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let first_token = digits.parse().ok().filter(|&first| first < TOKEN_END)?;
    Some((first_token, u64::from_str_radix(hex, 16).ok()?))
}

/// Reads a server's opening line, given without its newline; the error says why a client must refuse it.
///
/// Everything after the first space is the nonce. Published servers send no fields; fields of later servers that are
/// not known here are passed over. A field that is known and wrong is refused, since domain and address decide whom a
/// client follows.
pub(crate) fn parse_banner(line: &[u8]) -> Result<Banner, String> {
    let space = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let (head, nonce) = (&line[..space], line.get(space + 1..).unwrap_or_default());
    let Some(rest) = head.strip_prefix(b"TICKETING/") else {
        let begin = escaped(&line[..line.len().min(40)]);
        return Err(format!("not a Ticketing server: it opened with '{begin}'{}", hint(line)));
    };
    let nonce_text = visible(nonce).ok_or("the nonce of the server's banner contains other than visible ASCII")?;
    if nonce.len() < NONCE_CHARS_MIN {
        return Err(format!(
            "the nonce of the server's banner has {} characters, fewer than {NONCE_CHARS_MIN}",
            nonce.len()
        ));
    }
    let text = visible(rest)
        .ok_or_else(|| format!("the server's banner contains other than visible ASCII: '{}'", escaped(head)))?;
    let mut banner = Banner {
        nonce: nonce_text.to_owned(),
        extended: false,
        standalone: false,
        domain: None,
        first_token: 0,
        node_address: None,
    };
    let mut seen = Vec::new();
    for field in text.split('+').skip(1) {
        let (name, content) = field.split_once('=').unwrap_or((field, ""));
        if seen.contains(&name) {
            return Err(format!("the server's banner states '{name}' twice"));
        }
        match name {
            "x" => banner.extended = true,
            "s" => banner.standalone = true,
            "d" => {
                let (first_token, _) = parse_domain(content)
                    .ok_or_else(|| format!("the server's banner names '{content}' as its domain"))?;
                banner.domain = Some(content.to_owned());
                banner.first_token = first_token;
            }
            "n" => {
                if address_problem(content.as_bytes()).is_some() {
                    return Err(format!("the server's banner names '{content}' as its address"));
                }
                banner.node_address = Some(content.to_owned());
            }
            _ => continue,
        }
        seen.push(name);
    }
    Ok(banner)
}

/// ASCII that is printable, which includes the space.
fn visible(data: &[u8]) -> Option<&str> {
    let printable = data.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if printable { std::str::from_utf8(data).ok() } else { None }
}

/// The client's response to a nonce, newline included: unpadded base64url of SHA-256(token || nonce).
pub(crate) fn digest(token: &str, nonce: &str) -> Vec<u8> {
    let hashed = Sha256::new().chain_update(token).chain_update(nonce).finalize();
    let mut response = URL_SAFE_NO_PAD.encode(hashed).into_bytes();
    response.push(NEWLINE);
    response
}

/// Names what was spoken to us in place of our protocol, as far as it is easily told.
fn hint(data: &[u8]) -> &'static str {
    if data.starts_with(b"\x15\x03") || data.starts_with(b"\x16\x03") {
        " (looks like TLS)"
    } else if data.starts_with(b"SSH-") {
        " (looks like SSH)"
    } else if data.starts_with(b"HTTP/") {
        " (looks like HTTP)"
    } else {
        ""
    }
}

/// What a handshake has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session is open; `leader` is whom the first line named. The rest of the bytes are frames.
    Ready { leader: Option<String> },
    /// An `E` with a reason that servers give.
    Refused(String),
    /// The server broke the protocol; the text, one line, says how.
    Fault(String),
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    Banner,
    FirstLine,
    Ended,
}

/// The client's side. Feed what arrives, send what `feed` appends to `send`, act on the verdict.
///
/// Published servers (no `+x`) send no first line: the session is ready as soon as the response is made, and a refusal
/// comes as an `E` later on.
pub(crate) struct ClientHandshake {
    token: String,
    buffer: Vec<u8>,
    state: State,
    banner: Option<Banner>,
}

impl ClientHandshake {
    pub(crate) fn new(token: String) -> Self {
        Self { token, buffer: Vec::new(), state: State::Banner, banner: None }
    }

    /// Known from the banner on.
    pub(crate) fn banner(&self) -> Option<&Banner> {
        self.banner.as_ref()
    }

    /// The bytes after the handshake: frames that came in the same segment.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Takes the next bytes of the server. `Some` once it is over; it must not be fed after that.
    pub(crate) fn feed(&mut self, data: &[u8], send: &mut Vec<u8>) -> Option<Verdict> {
        debug_assert!(self.state != State::Ended, "the bytes of an open session belong to its decoder");
        self.buffer.extend_from_slice(data);
        loop {
            let line = match self.line() {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(fault) => return self.end(fault),
            };
            let verdict = match self.state {
                State::Banner => self.read_banner(&line, send),
                _ => Some(read_first_line(&line)),
            };
            if let Some(verdict) = verdict {
                return self.end(verdict);
            }
        }
    }

    fn end(&mut self, verdict: Verdict) -> Option<Verdict> {
        self.state = State::Ended;
        if !matches!(verdict, Verdict::Ready { .. }) {
            self.buffer = Vec::new();
        }
        Some(verdict)
    }

    /// The next line, without newline. One beyond the bound is a fault, wherever its bytes were cut.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Verdict> {
        let bounded = &self.buffer[..self.buffer.len().min(LINE_BYTES_MAX)];
        if let Some(end) = bounded.iter().position(|&byte| byte == NEWLINE) {
            let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
            line.pop();
            return Ok(Some(line));
        }
        if self.buffer.len() >= LINE_BYTES_MAX {
            let hint = hint(&self.buffer);
            return Err(Verdict::Fault(format!(
                "a line of the handshake runs beyond {LINE_BYTES_MAX} bytes{hint}"
            )));
        }
        Ok(None)
    }

    fn read_banner(&mut self, line: &[u8], send: &mut Vec<u8>) -> Option<Verdict> {
        if let Some(refused) = refusal(line) {
            return Some(refused);
        }
        match parse_banner(line) {
            Err(detail) => Some(Verdict::Fault(detail)),
            Ok(banner) => {
                send.extend(digest(&self.token, &banner.nonce));
                self.state = State::FirstLine;
                let extended = banner.extended;
                self.banner = Some(banner);
                if extended { None } else { Some(Verdict::Ready { leader: None }) }
            }
        }
    }
}

fn read_first_line(line: &[u8]) -> Verdict {
    if line.is_empty() {
        return Verdict::Ready { leader: None };
    }
    if let Some(address) = line.strip_prefix(b"L").filter(|address| address_problem(address).is_none()) {
        return Verdict::Ready { leader: Some(String::from_utf8_lossy(address).into_owned()) };
    }
    refusal(line).unwrap_or_else(|| {
        Verdict::Fault(format!("the server's first line is '{}'", escaped(&line[..line.len().min(80)])))
    })
}

/// An `E` with a reason that is known; another line is left to be judged.
fn refusal(line: &[u8]) -> Option<Verdict> {
    let reason = std::str::from_utf8(line.strip_prefix(b"E")?).ok()?;
    ERROR_REASONS.contains(&reason).then(|| Verdict::Refused(reason.to_owned()))
}
