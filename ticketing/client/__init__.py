"""The client library: `TicketBroker`, `Ticket`, `TicketError`. Standard library only; see `docs/client.md`."""

from ticketing.client.alias import refuse_published
from ticketing.client.broker import TicketBroker
from ticketing.client.errors import (
    IndeterminateCancelledError,
    InvalidInputError,
    TicketError,
    TicketErrorKind,
)
from ticketing.client.telemetry import Counters, Event, EventKind
from ticketing.client.ticket import Lost, Ticket

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

refuse_published()
