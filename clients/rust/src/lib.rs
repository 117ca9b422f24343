#![doc = include_str!("../README.md")]

mod acquire;
mod arguments;
mod broker;
mod clock;
mod connection;
mod core;
mod error;
mod keeper;
mod parting;
mod protocol;
mod random;
mod resolve;
#[cfg(test)]
mod scripted;
mod shared;
mod ticket;
mod tls;

pub use broker::{Closing, TicketBroker, TicketBrokerBuilder};
pub use error::{TicketError, TicketErrorKind};
pub use ticket::Ticket;
pub use tls::TlsMode;
