"""The dashboard without a terminal: started, waited for, and read as lines of text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import Screen

from ticketing.cli.admin_client import AdminAccess
from ticketing.tui.live.app import TopApp
from ticketing.tui.reader import Reader
from ticketing.tui.render.text import UNICODE, Glyphs
from ticketing.tui.want import Want

ROUNDS = 4
_CHARACTERS = {
    "slash": "/",
    "space": " ",
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}
WALL_MS = 1_796_051_045_000


class HasAccess(Protocol):
    """A cluster, scripted or real."""

    def access(self) -> AdminAccess: ...


class Watched:
    """A running dashboard and its keyboard."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, condition: Callable[[], Any], *, refresh: bool = True, tries: int = 400) -> None:
        """Refreshes until it holds; fails where it does not within some seconds."""
        for _ in range(tries):
            if condition():
                return
            if refresh:
                self.app.action_refresh_now()
            await self.pilot.pause(0.01)
        raise AssertionError("it never happened; the screen shows:\n" + "\n".join(self.lines()))

    async def until_shown(self, text: str, *, tries: int = 400) -> None:
        await self.until(lambda: self.shows(text), tries=tries)

    async def press(self, *keys: str) -> None:
        """One key after the other; returns when all that each of them set off is done."""
        for key in keys:
            self.send(key)
            await self.settle()

    def send(self, *keys: str) -> None:
        """Keys that come all at once."""
        driver = self.app._driver
        assert driver is not None
        for key in keys:
            name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
            event = events.Key(name, key if len(key) == 1 else _CHARACTERS.get(key))
            event.set_sender(self.app)
            driver.send_message(event)

    async def settle(self) -> None:
        """Until nothing is queued: what a key sets off may queue more, a few times over."""
        for _ in range(ROUNDS):
            if self.app._exit:
                return
            await self.pilot._wait_for_screen()
            self.app.screen._on_timer_update()

    async def write(self, text: str) -> None:
        await self.press(*text)

    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.lines())

    def on(self, screen: type[Screen[Any]]) -> bool:
        return isinstance(self.app.screen, screen)

    def notes(self) -> list[str]:
        return [note.message for note in self.app._notifications]


@asynccontextmanager
async def watch(
    cluster: HasAccess,
    *,
    size: tuple[int, int] = (120, 40),
    admin: bool = False,
    glyphs: Glyphs = UNICODE,
    want: Want | None = None,
    no_color: bool = False,
    frozen: bool = False,
    pictures: Path | None = None,
    patience_s: float = 1.0,
) -> AsyncIterator[Watched]:
    """`frozen`: time stands still, so that pictures are the same every time, on however busy a machine."""
    clocks: dict[str, Any] = {"clock_ns": lambda: 5_000_000_000} if frozen else {}
    patience_s = 60.0 if frozen else patience_s
    reader = Reader(cluster.access(), wall_ms=lambda: WALL_MS, patience_s=patience_s, **clocks)
    app = TopApp(
        reader, glyphs, interval_s=60, admin=admin, want=want, no_color=no_color, pictures=pictures, **clocks
    )
    async with app.run_test(size=size) as pilot:
        watched = Watched(app, pilot)
        await watched.until(lambda: app.board.reading is not None, refresh=False)
        yield watched
    assert app.failure is None
