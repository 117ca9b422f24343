from .broker import Ticket, TicketBroker
from .errors import TicketError, TicketErrorKind
from .connection import TlsMode

__all__ = ["Ticket", "TicketBroker", "TicketError", "TicketErrorKind", "TlsMode"]
