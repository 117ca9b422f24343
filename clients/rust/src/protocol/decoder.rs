//! The bytes of an authenticated session into the server's replies.
//!
//! Total: any bytes give replies and at most one fault, after which nothing more is decoded. What it gives depends on
//! the bytes alone, never on how they were cut into pieces, and it keeps at most one unfinished frame besides what
//! was fed last.

use super::fields::{
    ADDRESS_BYTES_MAX, KEY_LINE_MAX, REASON_BYTES_MAX, TOKEN_END, address_problem, escaped, key_problem,
};
use super::frames::{
    BUSY, ERROR, EXTENDED, GRANTED, GRANTED_WAITED, LEADER, MOVED, NEWLINE, NOT_HELD, NOT_LEADING, RELEASED,
    TIMEOUT,
};

/// What a server says. Keys and texts have been checked; texts are ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// `A` (`waited_ms` is `None`) or `G`.
    Granted { token: u64, owner: u64, waited_ms: Option<u32>, key: &'a [u8] },
    /// `T`, `B` or `V`: not acquired.
    Refused { opcode: u8, owner: u64, key: &'a [u8] },
    /// `R`, `N` or `X`. `number` is the token, or the owner of the cancel that it answers.
    Echoed { opcode: u8, number: u64, key: &'a [u8] },
    /// `L`: the session goes on.
    Leader(&'a str),
    /// `M`: the session ends.
    Moved(&'a str),
    /// `E`: the session ends.
    Error(&'a str),
}

/// The server broke the protocol; the text, one line and escaped, says how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

/// See the module. Feed bytes, then take replies until there is none.
#[derive(Debug, Default)]
pub(crate) struct ReplyDecoder {
    buffer: Vec<u8>,
    position: usize,
    malformed: Option<Malformed>,
}

impl ReplyDecoder {
    /// Takes the next bytes of the server.
    pub(crate) fn feed(&mut self, data: &[u8]) {
        if self.malformed.is_some() {
            self.buffer = Vec::new();
            self.position = 0;
            return;
        }
        if self.position > 0 {
            self.buffer.drain(..self.position);
            self.position = 0;
        }
        self.buffer.extend_from_slice(data);
    }

    /// How many bytes have arrived that are not decoded yet.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.buffer.len() - self.position
    }

    /// The next whole reply; `Ok(None)` where more bytes have to come first. A fault is returned again and again.
    pub(crate) fn next(&mut self) -> Result<Option<Reply<'_>>, Malformed> {
        if let Some(malformed) = &self.malformed {
            return Err(malformed.clone());
        }
        while self.buffer.get(self.position) == Some(&NEWLINE) {
            self.position += 1;
        }
        // Judged first and read afterwards, so that nothing is borrowed while the position moves.
        match frame(&self.buffer[self.position..]) {
            Ok(None) => Ok(None),
            Ok(Some(shape)) => {
                let start = self.position;
                self.position += shape.header + shape.text + 1;
                let frame = &self.buffer[start..self.position - 1];
                match read(frame, shape.header) {
                    Ok(reply) => Ok(Some(reply)),
                    Err(malformed) => {
                        self.malformed = Some(malformed.clone());
                        self.position = self.buffer.len();
                        Err(malformed)
                    }
                }
            }
            Err(malformed) => {
                self.malformed = Some(malformed.clone());
                self.position = self.buffer.len();
                Err(malformed)
            }
        }
    }
}

/// Sizes in bytes; the newline is counted in neither.
struct Shape {
    header: usize,
    text: usize,
}

/// The size of the header, opcode included, and the greatest size of the text behind it.
fn sizes(opcode: u8) -> Option<(usize, usize)> {
    match opcode {
        GRANTED => Some((17, KEY_LINE_MAX)),
        GRANTED_WAITED => Some((21, KEY_LINE_MAX)),
        TIMEOUT | BUSY | NOT_LEADING | RELEASED | NOT_HELD | EXTENDED => Some((9, KEY_LINE_MAX)),
        LEADER | MOVED => Some((1, ADDRESS_BYTES_MAX)),
        ERROR => Some((1, REASON_BYTES_MAX)),
        _ => None,
    }
}

fn frame(data: &[u8]) -> Result<Option<Shape>, Malformed> {
    let Some(&opcode) = data.first() else {
        return Ok(None);
    };
    let Some((header, text_max)) = sizes(opcode) else {
        return Err(Malformed(format!("a frame that begins with '{}'", escaped(&[opcode]))));
    };
    let Some(rest) = data.get(header..) else {
        return Ok(None);
    };
    let text = &rest[..rest.len().min(text_max + 1)];
    match text.iter().position(|&byte| byte == NEWLINE) {
        Some(text) => Ok(Some(Shape { header, text })),
        None if rest.len() > text_max => {
            Err(Malformed(format!("the text of a frame '{}' runs beyond {text_max} bytes", char::from(opcode))))
        }
        None => Ok(None),
    }
}

fn u64_at(frame: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(frame[at..at + 8].try_into().expect("a slice of eight bytes"))
}

/// Reads a whole frame, given without its newline.
fn read(frame: &[u8], header: usize) -> Result<Reply<'_>, Malformed> {
    let opcode = frame[0];
    let text = &frame[header..];
    if header == 1 {
        return read_text(opcode, text);
    }
    if let Some(problem) = key_problem(text) {
        return Err(Malformed(format!("the key of a frame '{}': {problem}", char::from(opcode))));
    }
    match opcode {
        GRANTED | GRANTED_WAITED => {
            let (token, owner) = (u64_at(frame, 1), u64_at(frame, 9));
            if token == 0 || token >= TOKEN_END {
                return Err(Malformed("a grant whose token is out of range".to_owned()));
            }
            let waited_ms = (opcode == GRANTED_WAITED)
                .then(|| u32::from_be_bytes(frame[17..21].try_into().expect("a slice of four bytes")));
            Ok(Reply::Granted { token, owner, waited_ms, key: text })
        }
        RELEASED | NOT_HELD | EXTENDED => Ok(Reply::Echoed { opcode, number: u64_at(frame, 1), key: text }),
        _ => Ok(Reply::Refused { opcode, owner: u64_at(frame, 1), key: text }),
    }
}

fn read_text(opcode: u8, text: &[u8]) -> Result<Reply<'_>, Malformed> {
    let as_text = std::str::from_utf8(text).unwrap_or_default();
    if opcode == ERROR {
        let reason = !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if !reason || text.iter().all(|byte| *byte == b'_') {
            return Err(Malformed(format!("an error with the reason '{}'", escaped(text))));
        }
        return Ok(Reply::Error(as_text));
    }
    if let Some(problem) = address_problem(text) {
        return Err(Malformed(problem.to_owned()));
    }
    Ok(if opcode == LEADER { Reply::Leader(as_text) } else { Reply::Moved(as_text) })
}
