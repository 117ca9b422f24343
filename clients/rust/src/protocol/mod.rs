//! The client wire (sections 2 and 3 of the specification): bytes in, values out, no I/O.
//!
//! The golden vectors of `tests/protocol/golden.json` hold for this module and for its Python counterpart.

pub(crate) mod decoder;
pub(crate) mod fields;
pub(crate) mod frames;
pub(crate) mod handshake;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;
