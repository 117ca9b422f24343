//! Client of Ticketing, a distributed lock service with a first-come, first-served queue and fencing tokens.
//!
//! One [`TicketBroker`] for a program, made at its start and shared. Connections, reconnection and finding the leader
//! are its business.
//!
//! ```no_run
//! # async fn example() -> Result<(), ticketing::TicketError> {
//! use std::time::Duration;
//! use ticketing::TicketBroker;
//!
//! let broker = TicketBroker::connect(["127.0.0.1:5225"]);
//! broker.wait_ready(Duration::from_secs(5)).await;
//!
//! let ticket = broker.acquire(
//!     "key",
//!     Duration::from_secs(5),
//!     Duration::from_secs(30),
//!     Duration::from_secs(2), // the least work, pauses and the end of the database transaction
//! ).await?;
//! let token = ticket.token();
//! // compare and advance the high-water mark of the key, and write, in one database transaction
//! ticket.release().await?;
//! # Ok(()) }
//! ```
#![doc = ""]
#![doc = include_str!("../README.md")]

mod acquire;
mod arguments;
mod broker;
mod clock;
mod connection;
mod core;
mod error;
mod keeper;
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
