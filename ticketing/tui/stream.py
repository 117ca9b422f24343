"""Follows the event stream of whoever leads: what no two readings tell, and when to read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from ticketing.cli.admin_client import AdminError
from ticketing.tui.events import Event, told_event
from ticketing.tui.planes import Planes

KINDS = "leader,gate,member,overload,audit"
CHANGING = ("leader", "gate", "member")
"""Kinds after which a reading differs."""
AGAIN_S = 1.0
REFUSED_AGAIN_S = 30.0
"""A node that has no stream for us (an older version, or too many readers) is not asked on and on."""


class Stream:
    """One reader of one node's events at a time."""

    def __init__(
        self,
        planes: Planes,
        *,
        whom: Callable[[], tuple[str, str]],
        noted: Callable[[Event], None],
        changed: Callable[[], None],
        wall_ms: Callable[[], int],
    ) -> None:
        """`whom` gives place and address of the leader (empty: none). `changed` is told when a reading would differ."""
        self._planes = planes
        self._whom = whom
        self._noted = noted
        self._changed = changed
        self._wall_ms = wall_ms

    async def follow(self) -> None:
        """Until it is cancelled. A stream that ends is a reason to read, too."""
        while True:
            place, address = self._whom()
            pause_s = AGAIN_S
            if address:
                try:
                    await self._read(place, address)
                    pause_s = 0.0
                except AdminError as error:
                    if error.code != "unreachable":
                        pause_s = REFUSED_AGAIN_S
                    self._changed()
            await asyncio.sleep(pause_s)

    async def _read(self, place: str, address: str) -> None:
        """One stream, until it ends or another node leads."""
        async with aclosing(self._planes.lines(address, "/v1/events", {"kinds": KINDS})) as lines:
            async for line in lines:
                if self._whom()[1] not in (address, ""):
                    return
                if line.strip():
                    self._take(line, place)

    def _take(self, line: bytes, place: str) -> None:
        try:
            told = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return
        if not isinstance(told, dict):
            return
        event = told_event(told, place, self._wall_ms())
        if event is not None:
            self._noted(event)
        if told.get("kind") in CHANGING:
            self._changed()
