//! What a call of the library can end with, other than a ticket.

/// What a caller can act on. Its text is the one that every library of Ticketing uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TicketErrorKind {
    /// Not acquired: the wait ran out, or it was 0 and the key was not free.
    Timeout,
    /// Not acquired: refused by capacity, range or clock safety.
    Busy,
    /// Bytes may have left and no answer came: the grant may exist until it is cancelled or its lease ends.
    Indeterminate,
    /// Granted with less time left than the budget; being given back.
    InsufficientLease,
    /// Refused before anything was sent.
    InvalidInput,
    /// The server refused the token.
    Auth,
    /// Not a server of this protocol, or one of another domain.
    Protocol,
    /// A release or an extension without an answer, or TLS that cannot be set up.
    Io,
    /// Not sent: no session to a serving leader.
    NotConnected,
    /// Not sent: the broker was closed.
    Closed,
}

impl TicketErrorKind {
    /// `timeout`, `busy`, `indeterminate`, `insufficient_lease`, `invalid_input`, `auth`, `protocol`, `io`,
    /// `not_connected` or `closed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Indeterminate => "indeterminate",
            Self::InsufficientLease => "insufficient_lease",
            Self::InvalidInput => "invalid_input",
            Self::Auth => "auth",
            Self::Protocol => "protocol",
            Self::Io => "io",
            Self::NotConnected => "not_connected",
            Self::Closed => "closed",
        }
    }
}

impl std::fmt::Display for TicketErrorKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The error of every call. The variant is for programs, the text for people.
///
/// The table in the documentation of the crate says what the caller may assume with each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// Not acquired: the wait ran out, or it was 0 and the key was not free.
    #[error("{detail}")]
    Timeout {
        /// What happened, on one line.
        detail: String,
    },
    /// Not acquired: the server refused this request (at a bound, or its clock gate is closed). Nothing is retried.
    #[error("{detail}")]
    Busy {
        /// What happened, on one line.
        detail: String,
    },
    /// Bytes may have left and no answer came. Nothing may be assumed; the request is never sent again.
    #[error("{detail}")]
    Indeterminate {
        /// What happened, on one line.
        detail: String,
    },
    /// Granted with less time left than the budget; it is being given back by its exact token.
    #[error("{detail}")]
    InsufficientLease {
        /// What happened, on one line.
        detail: String,
    },
    /// Refused before anything was sent.
    #[error("{field}: {value} is not allowed: {range}")]
    InvalidInput {
        /// The argument, by its name in the documentation.
        field: &'static str,
        /// What was given, escaped.
        value: String,
        /// What is allowed.
        range: String,
    },
    /// The token is refused, by every address or by the session that carried the request.
    #[error("{detail}")]
    Auth {
        /// What happened, on one line.
        detail: String,
    },
    /// Every address: not a Ticketing server, or one of a domain that cannot be.
    #[error("{detail}")]
    Protocol {
        /// What happened, on one line.
        detail: String,
    },
    /// A release or an extension without an answer, or TLS that cannot be set up or verified.
    #[error("{detail}")]
    Io {
        /// What happened, on one line.
        detail: String,
    },
    /// Not sent: a wait of 0, and no session to a serving leader.
    #[error("{detail}")]
    NotConnected {
        /// What happened, on one line.
        detail: String,
    },
    /// Not sent: the broker was closed.
    #[error("{detail}")]
    Closed {
        /// What happened, on one line.
        detail: String,
    },
}

impl TicketError {
    /// What a caller can act on.
    #[must_use]
    pub fn kind(&self) -> TicketErrorKind {
        match self {
            Self::Timeout { .. } => TicketErrorKind::Timeout,
            Self::Busy { .. } => TicketErrorKind::Busy,
            Self::Indeterminate { .. } => TicketErrorKind::Indeterminate,
            Self::InsufficientLease { .. } => TicketErrorKind::InsufficientLease,
            Self::InvalidInput { .. } => TicketErrorKind::InvalidInput,
            Self::Auth { .. } => TicketErrorKind::Auth,
            Self::Protocol { .. } => TicketErrorKind::Protocol,
            Self::Io { .. } => TicketErrorKind::Io,
            Self::NotConnected { .. } => TicketErrorKind::NotConnected,
            Self::Closed { .. } => TicketErrorKind::Closed,
        }
    }
}
