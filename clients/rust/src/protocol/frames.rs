//! The frames of the client protocol as bytes: opcodes, and one encoder for each row of the client's table.
//!
//! A frame is an opcode, a header of fixed size in big-endian, and a text that runs to a newline. The header may
//! itself contain newline bytes. Encoders trust their caller: a key has passed `fields::key_problem`.

/// Client to server: acquire as published servers know it, answered by `GRANTED`.
pub(crate) const ACQUIRE: u8 = b'A';
/// Acquire, answered by `GRANTED_WAITED`, and by `NOT_LEADING` where the node does not lead.
pub(crate) const Q: u8 = b'Q';
pub(crate) const RELEASE: u8 = b'R';
pub(crate) const CANCEL: u8 = b'C';
pub(crate) const EXTEND: u8 = b'X';
/// Who the client is, for operators.
pub(crate) const HELLO: u8 = b'H';

/// Server to client.
pub(crate) const GRANTED: u8 = b'A';
pub(crate) const GRANTED_WAITED: u8 = b'G';
pub(crate) const TIMEOUT: u8 = b'T';
pub(crate) const BUSY: u8 = b'B';
pub(crate) const NOT_LEADING: u8 = b'V';
pub(crate) const RELEASED: u8 = b'R';
pub(crate) const NOT_HELD: u8 = b'N';
pub(crate) const EXTENDED: u8 = b'X';
pub(crate) const LEADER: u8 = b'L';
pub(crate) const MOVED: u8 = b'M';
pub(crate) const ERROR: u8 = b'E';

/// In both directions a keep-alive, never an answer to anything; elsewhere the end of a text.
pub(crate) const NEWLINE: u8 = b'\n';

pub(crate) const AUTH_FAILED: &str = "auth_failed";
/// Every reason that a server gives in `E`.
pub(crate) const ERROR_REASONS: [&str; 9] = [
    AUTH_FAILED,
    "auth_timeout",
    "bad_frame",
    "bad_key",
    "no_leader",
    "not_active",
    "shutting_down",
    "slow_consumer",
    "too_many_sessions",
];

fn text(out: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(!text.contains(&NEWLINE), "a newline would smuggle in a second frame");
    out.extend_from_slice(text);
    out.push(NEWLINE);
}

/// `A` or `Q` (`opcode`); `Q` only to a server whose banner is extended. Wait and lease in whole seconds.
pub(crate) fn encode_acquire(out: &mut Vec<u8>, opcode: u8, wait: u16, lease: u16, owner: u64, key: &[u8]) {
    debug_assert!(opcode == ACQUIRE || opcode == Q);
    out.push(opcode);
    out.extend_from_slice(&wait.to_be_bytes());
    out.extend_from_slice(&lease.to_be_bytes());
    out.extend_from_slice(&owner.to_be_bytes());
    text(out, key);
}

/// `R`: release, only while `token` still holds the key.
pub(crate) fn encode_release(out: &mut Vec<u8>, token: u64, key: &[u8]) {
    out.push(RELEASE);
    out.extend_from_slice(&token.to_be_bytes());
    text(out, key);
}

/// `C`, only to a server whose banner is extended.
pub(crate) fn encode_cancel(out: &mut Vec<u8>, owner: u64, key: &[u8]) {
    debug_assert!(owner & OWNER_TOP_BIT != 0, "an owner that cannot be cancelled");
    out.push(CANCEL);
    out.extend_from_slice(&owner.to_be_bytes());
    text(out, key);
}

/// `X`, only to a server whose banner is extended. The lease is 1 to 250 seconds, or the session ends.
pub(crate) fn encode_extend(out: &mut Vec<u8>, token: u64, lease: u16, key: &[u8]) {
    out.push(EXTEND);
    out.extend_from_slice(&token.to_be_bytes());
    out.extend_from_slice(&lease.to_be_bytes());
    text(out, key);
}

/// `H`, only to a server whose banner is extended; `words` as `fields::hello_text` makes it.
pub(crate) fn encode_hello(out: &mut Vec<u8>, words: &[u8]) {
    out.push(HELLO);
    text(out, words);
}

use super::fields::OWNER_TOP_BIT;
