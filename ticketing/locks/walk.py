"""A place in the token order that survives applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketing.locks.held import Held

if TYPE_CHECKING:
    from ticketing.locks.table import LockTable


class TokenWalk:
    """Visits the held keys of a table from the oldest token to the newest, some at a time.

    The table tells every open walk what it is about to change. A walk must be closed, or the table keeps
    telling it.
    """

    __slots__ = ("at", "table")

    def __init__(self, table: LockTable) -> None:
        self.table = table
        self.at = table.held.tokens.newer
        """The next record to visit; the sentinel `tokens` itself at the end."""
        table.held.walks.append(self)

    def leaving(self, held: Held) -> None:
        """`held` is about to leave the table."""
        if held is self.at:
            self.at = held.newer

    def extending(self, held: Held) -> None:
        """`held` is about to be changed in place."""

    @property
    def open(self) -> bool:
        """Whether the table still tells this walk of changes."""
        return self in self.table.held.walks

    def close(self) -> None:
        """Ends the walk; may be called again."""
        if self.open:
            self.table.held.walks.remove(self)
        self.at = self.table.held.tokens
