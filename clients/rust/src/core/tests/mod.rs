//! The core in virtual time, without sockets: bytes in, bytes out, and a clock that a test moves.

mod lifetimes;
mod requests;
mod rig;
mod sessions;
mod weather;
