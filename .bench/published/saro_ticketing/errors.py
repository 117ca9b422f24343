from typing import Literal

TicketErrorKind = Literal[
    "timeout",
    "not_connected",
    "auth",
    "invalid_input",
    "protocol",
    "io",
    "connection_aborted",
    "busy",
]


class TicketError(Exception):
    def __init__(self, kind: TicketErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: TicketErrorKind = kind


def err_aborted() -> TicketError:
    return TicketError("connection_aborted", "connection closed")


def is_aborted(err: BaseException) -> bool:
    return isinstance(err, TicketError) and err.kind == "connection_aborted"
