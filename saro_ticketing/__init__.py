"""`ticketing.client` under the name that published programs import."""

from ticketing.client import (
    Counters,
    Event,
    EventKind,
    IndeterminateCancelledError,
    InvalidInputError,
    Lost,
    Ticket,
    TicketBroker,
    TicketError,
    TicketErrorKind,
)

__all__ = [
    "Counters",
    "Event",
    "EventKind",
    "IndeterminateCancelledError",
    "InvalidInputError",
    "Lost",
    "Ticket",
    "TicketBroker",
    "TicketError",
    "TicketErrorKind",
]
