"""`ticketing.client` under the name that published programs import."""

from ticketing.client import (
    IndeterminateCancelledError,
    Lost,
    Ticket,
    TicketBroker,
    TicketError,
    TicketErrorKind,
)

__all__ = [
    "IndeterminateCancelledError",
    "Lost",
    "Ticket",
    "TicketBroker",
    "TicketError",
    "TicketErrorKind",
]
