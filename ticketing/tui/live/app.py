"""The application: asks the cluster on and on, and shows what it knows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen

from ticketing.cli.admin_client import AdminError
from ticketing.tui.board import Board, is_old
from ticketing.tui.events import Event
from ticketing.tui.live.admin_screens import AdminKeyScreen, AdminMainScreen, AdminNodeScreen
from ticketing.tui.live.base import TopScreen
from ticketing.tui.live.detail_screens import KeyScreen, NodeScreen
from ticketing.tui.live.dialogs import ConfirmScreen, HelpScreen
from ticketing.tui.live.keybar import help_lines, live_bindings
from ticketing.tui.live.look import SHEET
from ticketing.tui.live.main_screen import MainScreen
from ticketing.tui.model import LockRow
from ticketing.tui.planes import key_path
from ticketing.tui.reader import Reader
from ticketing.tui.render.summary import Freshness
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone, safe
from ticketing.tui.stream import Stream
from ticketing.tui.want import Want, clamped, rows_for

THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "ansi-dark", "ansi-light")
INTERVALS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SOON_S = 0.2
"""A refresh follows so soon upon an event that changes the picture."""
TICK_S = 1.0
"""How often the age of old data is drawn anew, and whether the terminal is still there."""


class TopApp(App[None]):
    """`ticketing top` on a terminal."""

    TITLE = "ticketing top"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Help", id="help", tooltip="All keys that work here"),
        Binding("q", "quit", "Quit", id="quit", tooltip="Leave the dashboard"),
        Binding(
            "ctrl+c", "quit", "Quit", show=False, priority=True, id="interrupt", tooltip="Leave the dashboard"
        ),
        Binding("p,space", "pause", "Pause", id="pause", tooltip="Stop and resume the refreshes"),
        Binding("r", "refresh_now", "Refresh", id="refresh", tooltip="Refresh now"),
        Binding(
            "plus,equals_sign", "slower", "Slower", show=False, id="slower", tooltip="Refresh less often"
        ),
        Binding("minus", "faster", "Faster", show=False, id="faster", tooltip="Refresh more often"),
        Binding("m", "next_theme", "Theme", show=False, id="theme", tooltip="The next theme"),
        Binding(
            "S",
            "picture",
            "Screenshot",
            show=False,
            id="screenshot",
            tooltip="Save the screen as an SVG file",
        ),
    ]
    CSS = SHEET

    def __init__(
        self,
        reader: Reader,
        glyphs: Glyphs,
        *,
        interval_s: float = 1.0,
        admin: bool = False,
        want: Want | None = None,
        no_color: bool = False,
        theme: str | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        pictures: Path | None = None,
    ) -> None:
        """`reader` is closed when the application ends; `pictures` is where screenshots go (here, by default)."""
        # The framework reads the variable, takes even an empty one for set, and settles how to filter colours here.
        os.environ.pop("NO_COLOR", None)
        if no_color:
            os.environ["NO_COLOR"] = "1"
        super().__init__(ansi_color=True if no_color else None)
        self.reader = reader
        self.glyphs = glyphs
        self.board = Board()
        self.want = want or Want()
        self.interval_s = clamped(interval_s)
        self.paused = False
        self.admin = admin
        self._clock_ns = clock_ns
        self._pictures = pictures
        self._wake = asyncio.Event()
        self._hurry = False
        self._soon = False
        self._ended_by: int | None = None
        self._detail_open = False
        if no_color:
            self.theme = "ansi-dark"
        elif theme is not None:
            self.theme = theme

    # --- life

    def get_default_screen(self) -> Screen[None]:
        """All nodes and locks."""
        return AdminMainScreen(self.glyphs) if self.admin else MainScreen(self.glyphs)

    def on_mount(self) -> None:
        """Begins to ask."""
        self.set_class(self.glyphs.ascii, "ascii")
        self.animation_level = "none"
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Not on every system, and only in the main thread.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._end_by, number)
        self.run_worker(self._follow(), name="follow", exclusive=True, group="follow", exit_on_error=True)
        stream = Stream(
            self.reader.planes,
            whom=self._whom,
            noted=self._noted,
            changed=self._changed,
            wall_ms=lambda: time.time_ns() // 1_000_000,
        )
        self.run_worker(stream.follow(), name="events", exclusive=True, group="events", exit_on_error=True)
        self.set_interval(TICK_S, self._tick)

    async def on_unmount(self) -> None:
        """Ends what is under way."""
        await self.reader.aclose()

    @property
    def ended_by(self) -> int | None:
        """The signal that ended it, if one did."""
        return self._ended_by

    @property
    def failure(self) -> Exception | None:
        """The fault of ours that ended it, if one did."""
        return self._exception

    def _print_error_renderables(self) -> None:
        """Nothing: the framework would show the values of variables, and one of them is the admin token."""
        self._exit_renderables.clear()

    def _end_by(self, number: int) -> None:
        self._ended_by = number
        self.exit()

    def _tick(self) -> None:
        if self._terminal_is_gone():
            self._end_by(signal.SIGHUP)
            return
        freshness = self.freshness()
        if freshness.old or freshness.paused:
            for screen in self.screen_stack:
                if isinstance(screen, TopScreen) and screen.is_mounted:
                    with contextlib.suppress(NoMatches):
                        screen.show_age()

    def _terminal_is_gone(self) -> bool:
        """Where SIGHUP is ignored (nohup), the hang-up still shows on the descriptor."""
        if self.is_headless:
            return False
        try:
            poll = select.poll()
            poll.register(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0, 0)
            return any(
                happened & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, happened in poll.poll(0)
            )
        except (AttributeError, OSError, ValueError):
            return False

    async def _follow(self) -> None:
        """One refresh after the other, never two at once."""
        while True:
            began_ns = self._clock_ns()
            self._wake.clear()
            hurry, self._hurry = self._hurry, False
            self.board.take(await self.reader.read(self.want, hurry=hurry))
            self._show()
            spent_s = (self._clock_ns() - began_ns) / 1e9
            left_s = None if self.paused else max(0.05, self.interval_s - spent_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()

    def _whom(self) -> tuple[str, str]:
        reading = self.board.reading
        return ("", "") if reading is None else (reading.view.leader, reading.leader_address)

    def _noted(self, event: Event) -> None:
        self.board.log.note(event)
        if not self.paused:
            self._show()

    def _changed(self) -> None:
        """A node says that something is different: the next refresh comes soon, many events make one."""
        if not self.paused and not self._soon:
            self._soon = True
            self.set_timer(SOON_S, self._now)

    def _now(self) -> None:
        self._soon = False
        self._wake.set()

    def _show(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, TopScreen) and screen.is_mounted:
                # A screen that is just being taken down has lost its widgets already.
                with contextlib.suppress(NoMatches):
                    screen.show()

    # --- what screens use

    def now_ns(self) -> int:
        """The monotonic clock by which readings are dated."""
        return self._clock_ns()

    def freshness(self) -> Freshness:
        """How old the picture is."""
        age = self.board.data_age_ms(self._clock_ns())
        return Freshness(age, is_old(age, self.interval_s), self.paused, self.interval_s)

    def ask(self, **changes: Any) -> None:
        """Changes what is asked for; other lists are asked for at once."""
        wanted = replace(self.want, **changes)
        if wanted == self.want:
            return
        self.want = wanted
        self._wake.set()

    def say(self, text: str, *, bad: bool = False) -> None:
        """A note that goes away by itself."""
        self.notify(
            safe(text, ascii_only=self.glyphs.ascii),
            severity="error" if bad else "information",
            markup=False,
            timeout=6,
        )

    def copy(self, text: str, what: str) -> None:
        """To the clipboard of the terminal, where it allows that."""
        self.copy_to_clipboard(text)
        self.say(f"copied {what}: {text}")

    def open_key(self, key: str) -> None:
        """Shows one key in full."""
        self.board.watch_key(key)
        self.ask(key=key, locks=False, waiters=rows_for(self.size.height))
        self._push(AdminKeyScreen(self.glyphs, key) if self.admin else KeyScreen(self.glyphs, key))

    def open_node(self, place: str) -> None:
        """Shows one node in full."""
        self._push(AdminNodeScreen(self.glyphs, place) if self.admin else NodeScreen(self.glyphs, place))

    def _push(self, screen: TopScreen) -> None:
        if not self._detail_open:
            self._detail_open = True
            self.push_screen(screen)

    def close_detail(self) -> None:
        """Back to the first screen."""
        if self._detail_open:
            self._detail_open = False
            self.pop_screen()
        self.board.watch_key(None)
        self.ask(key=None, locks=True)

    # --- keys

    def action_keys(self) -> None:
        """All keys that work on this screen."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.glyphs, help_lines(live_bindings(self.screen))))

    def action_pause(self) -> None:
        """Stops the refreshes, or goes on."""
        self.paused = not self.paused
        if not self.paused:
            self._wake.set()
        self._show()

    def action_refresh_now(self) -> None:
        """Once, also while paused."""
        self._hurry = True
        self._wake.set()

    def action_slower(self) -> None:
        """The next longer interval."""
        self._set_interval(next((s for s in INTERVALS_S if s > self.interval_s), INTERVALS_S[-1]))

    def action_faster(self) -> None:
        """The next shorter interval."""
        self._set_interval(next((s for s in reversed(INTERVALS_S) if s < self.interval_s), INTERVALS_S[0]))

    def _set_interval(self, interval_s: float) -> None:
        self.interval_s = clamped(interval_s)
        self._wake.set()
        self._show()

    def action_next_theme(self) -> None:
        """The next theme."""
        if self.no_color:
            self.say("NO_COLOR is set")
            return
        at = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(at + 1) % len(THEMES)]

    def action_picture(self) -> None:
        """Saves the screen."""
        name = time.strftime("ticketing-top-%Y%m%dT%H%M%SZ.svg", time.gmtime())
        path = (self._pictures or Path.cwd()) / name
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self.export_screenshot())
        except OSError as error:
            self.say(f"cannot save {path}: {(error.strerror or str(error)).lower()}", bad=True)
        else:
            self.say(f"saved {path}")

    # --- commands

    def revoke(self, lock: LockRow) -> None:
        """Asks, then ends exactly this grant."""
        lines: list[Line] = [
            [Cell("Revoke this grant?", Tone.BAD)],
            [Cell("key    ", Tone.DIM), Cell(safe(lock.key, ascii_only=self.glyphs.ascii), Tone.NAME)],
            [
                Cell("holder ", Tone.DIM),
                Cell(safe(lock.name, ascii_only=self.glyphs.ascii) or f"owner {lock.owner}"),
            ],
            [Cell("token  ", Tone.DIM), Cell(safe(lock.token))],
            [],
            [Cell("The holder is not told. Only fencing at the database stops it.", Tone.WARN)],
        ]

        def do(reason: str) -> None:
            body = {"token": lock.token, "reason": reason}
            self._command("revoke", "POST", key_path(lock.key) + "/revoke", body, _revoked)

        self._confirm(lines, do, asks_reason=True)

    def transfer(self, place: str | None) -> None:
        """Asks, then gives the lead away."""
        to = place or "whoever is fit"
        lines: list[Line] = [
            [Cell(f"Transfer the lead to {safe(to)}?", Tone.WARN)],
            [Cell("Queues are dropped: waiters are told to ask again.", Tone.DIM)],
        ]
        self._confirm(
            lines,
            lambda _: self._command(
                "transfer", "POST", "/v1/transfer", {"to": place}, _said("the lead moves")
            ),
        )

    def replace(self, place: str) -> None:
        """Asks, then starts the replacement of a node."""
        lines: list[Line] = [
            [Cell(f"Start the replacement of {safe(place)}?", Tone.WARN)],
            [
                Cell(
                    "A new process has to be started at its address (`ticketing node replace` prepares it);",
                    Tone.DIM,
                )
            ],
            [Cell("it takes the place once it has caught up.", Tone.DIM)],
        ]
        path = f"/v1/members/{place}/replace"
        self._confirm(
            lines, lambda _: self._command("replace", "POST", path, {}, _said(f"{place} is to be replaced"))
        )

    def _confirm(self, lines: list[Line], do: Callable[[str], None], *, asks_reason: bool = False) -> None:
        def answered(reason: str | None) -> None:
            if reason is not None:
                do(reason)

        self.push_screen(ConfirmScreen(self.glyphs, lines, asks_reason=asks_reason), answered)

    def _command(
        self, name: str, method: str, path: str, body: dict[str, Any], told: Callable[[dict[str, Any]], str]
    ) -> None:
        self.run_worker(self._carry_out(name, method, path, body, told), group="commands", exit_on_error=True)

    async def _carry_out(
        self, name: str, method: str, path: str, body: dict[str, Any], told: Callable[[dict[str, Any]], str]
    ) -> None:
        reading = self.board.reading
        address = reading.leader_address if reading is not None else ""
        if not address:
            self.say(f"{name}: no leader serves", bad=True)
            return
        try:
            answer = await self.reader.planes.call(
                address, method, path, body=body | {"id": secrets.token_hex(8)}
            )
        except AdminError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.say(f"{name}: {error}{hint}", bad=True)
        else:
            self.say(told(answer))
        self.action_refresh_now()


def _said(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda _: text


def _revoked(answer: dict[str, Any]) -> str:
    return "revoked" if answer.get("revoked") else "not held by that token any more: nothing was changed"
