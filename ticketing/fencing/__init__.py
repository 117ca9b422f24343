"""Fencing at the database: the lock orders turns, the database refuses stale writes (spec 11, `docs/fencing.md`).

The mark of a key is compared and advanced in the transaction of the business write: `advance_mark` first, then the
write, one commit. The ticket is released only when the commit or the rollback is known.
"""

from ticketing.fencing.asynchronous import advance_mark_async, create_marks_async
from ticketing.fencing.blocking import advance_mark, create_marks
from ticketing.fencing.marks import TABLE, NoTransactionError, StaleTokenError, marks_schema

__all__ = [
    "TABLE",
    "NoTransactionError",
    "StaleTokenError",
    "advance_mark",
    "advance_mark_async",
    "create_marks",
    "create_marks_async",
    "marks_schema",
]
