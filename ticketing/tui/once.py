"""One frame and no terminal: `ticketing top --once` and `-o json`."""

from __future__ import annotations

import asyncio

from ticketing.cli.admin_client import AdminAccess
from ticketing.tui.board import Board
from ticketing.tui.reader import Reader
from ticketing.tui.want import Want

RATE_S = 1.0
"""Rates are differences: between the two readings of one frame lies so much time."""


def look(access: AdminAccess, want: Want, *, rate_s: float = RATE_S) -> Board:
    """Two readings, for rates need two; one where no leader serves. `AdminError` where the CA file cannot be used."""
    return asyncio.run(_look(access, want, rate_s))


async def _look(access: AdminAccess, want: Want, rate_s: float) -> Board:
    reader, board = Reader(access), Board()
    try:
        board.take(await reader.read(want))
        assert board.reading is not None, "it was just taken"
        if board.reading.view.served:
            await asyncio.sleep(rate_s)
            board.take(await reader.read(want, hurry=True))
        return board
    finally:
        await reader.aclose()
