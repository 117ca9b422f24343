"""A distributed lock service with a first-come, first-served queue and fencing tokens."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

__version__ = "0.1.0"

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
    "__version__",
]


def __getattr__(name: str) -> object:
    """The client library's names, loaded when they are first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ticketing import client

    return getattr(client, name)
