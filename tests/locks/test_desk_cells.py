"""Every cell of the table "request by key state" (spec 5): see `cells.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.locks.cells import CELLS, Cell
from tests.locks.desk_bench import OWNER, Bench, Client
from ticketing.locks.commands import Cancel, Extend, Turn
from ticketing.locks.desk import DeskLimits
from ticketing.locks.table import LockTable

OTHER_TOKEN = 7
NAMES = {1: "a", 2: "h", 9: "me"}


class Scene:
    """A bench with the persons of `cells.py`, brought into a state by its name."""

    def __init__(self, state: str) -> None:
        self.a, self.h, self.me = Client("a"), Client("h"), Client("me")
        self.token = 0
        words, _, rest = state.partition(": ")
        legacy = words == "resend"
        state = rest if legacy else state
        base, *notes = state.split(", ")
        limits = DeskLimits(waiters_per_key=0) if "at a bound" in notes else None
        table = LockTable(1_000)
        if base == "held from an earlier term":
            table.apply([Turn(b"k", 0, OWNER + 1, 20)], 0)
        self.bench = Bench(limits, legacy=legacy, table=table)
        self.bench.now = 15_000_000_000  # before the end of the lease that the earlier term left
        self._base(base, waited="waited" in notes)
        if "closed" in notes:
            self.bench.desk.gate_open = False
        if "no room" in notes:
            self.bench.desk.room = self.bench.desk.reserved_room = 0
        if "no room for grants" in notes:
            self.bench.desk.room = 0
        if "waited" in notes and base != "held":
            self.bench.ask(self.h, 2)
        self.bench.write()
        self.bench.desk.probes.clear()

    def _base(self, base: str, *, waited: bool) -> None:
        bench, a, h = self.bench, self.a, self.h
        if base.startswith(("held", "hand-over", "extend", "ending", "expiry", "lost hand-over")):
            if not base.endswith("earlier term"):
                bench.hold(a, 1)
            self.token = bench.table.held[b"k"].token
        if base == "held by an ended session":
            bench.leave(a)
        elif base == "held" and waited:
            bench.ask(h, 2)
        elif base == "hand-over in flight":
            bench.ask(h, 2)
            bench.release(a, self.token)
        elif base == "extend in flight":
            bench.extend(a, self.token)
        elif base == "ending in flight":
            bench.release(a, self.token)
        elif base == "expiry in flight":
            bench.wait(20)
            bench.run()
        elif base == "grant in flight":
            bench.ask(a, 1)
        elif base.startswith("lost"):
            gone = Client("gone")
            bench.ask(gone, 9)
            if base == "lost hand-over in flight":
                bench.release(a, self.token)
            bench.propose()
            bench.end(gone)
        bench.propose()

    def request(self, words: str) -> None:
        bench, me, token = self.bench, self.me, self.token
        requests: dict[str, Callable[[], None]] = {
            "acquire": lambda: bench.ask(me, 9),
            "acquire longer": lambda: bench.ask(me, 9, lease=21),
            "acquire as a": lambda: bench.ask(me, 1),
            "acquire longer as a": lambda: bench.ask(me, 1, lease=21),
            "acquire as h": lambda: bench.ask(me, 2),
            "try": lambda: bench.ask(me, 9, wait=0),
            "try longer": lambda: bench.ask(me, 9, wait=0, lease=21),
            "try as a": lambda: bench.ask(me, 1, wait=0),
            "release": lambda: bench.release(me, token),
            "release other": lambda: bench.release(me, OTHER_TOKEN),
            "extend": lambda: bench.extend(me, token),
            "extend other": lambda: bench.extend(me, OTHER_TOKEN),
            "cancel": lambda: bench.cancel(me, 9),
            "cancel a": lambda: bench.cancel(me, 1),
            "cancel h": lambda: bench.cancel(me, 2),
        }
        if words in requests:
            requests[words]()
        elif words == "acquire being cancelled":
            bench.cancel(Client("canceller"), 9)
            bench.propose()
            bench.ask(me, 9)
        elif words.endswith("cancelled"):
            bench.table.ring.add(OWNER + 9)
            requests[words.split(maxsplit=1)[0]]()
        elif words == "cancel h twice":
            bench.cancel(me, 2)
            bench.cancel(me, 2)
        elif words == "cancel mine asked twice":
            bench.ask(me, 9)
            bench.ask(me, 9)
            bench.cancel(me, 9)
        else:
            bench.ask(me, 9, wait=0 if words == "cancel my try" else 10)
            bench.cancel(me, 9)

    def proposed(self) -> str:
        """What the request sent to Raft."""
        bench = self.bench
        before = len(bench.log)
        bench.run()
        bench.propose()
        words = [self._command(command) for entry in bench.log[before:] for command in entry]
        if bench.desk.barrier_wanted:
            words.append("barrier")
        return ", ".join(words)

    def _command(self, command: object) -> str:
        if isinstance(command, Turn):
            expect = "a" if command.expect else "0"
            return f"turn {expect}>{NAMES[command.owner - OWNER] if command.owner else '-'}"
        return {Extend: "extend", Cancel: "cancel"}[type(command)]  # type: ignore[index]

    def told(self, client: Client) -> str:
        """Letters and owner numbers; the holder's own token reads 1, as its owner does."""
        return " ".join(
            word.replace(str(self.token), "1") if self.token else word for word in self.bench.said(client)
        )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.request} - {cell.state}")
def test_cell(cell: Cell) -> None:
    scene = Scene(cell.state)
    bench = scene.bench
    token_before = bench.table.next_token
    scene.request(cell.request)
    at_once = scene.told(scene.me)
    assert at_once == cell.at_once
    assert scene.proposed() == cell.proposed
    probed = [f"probe {session}" for session in bench.desk.probes]
    bench.turn()
    after = " ".join(filter(None, (at_once, scene.told(scene.me))))
    assert after == cell.me
    others = [f"{person}:{word}" for person in (scene.a, scene.h) for word in scene.told(person).split()]
    assert ",".join((*probed, *others)) == cell.others
    holder = cell.holder.removesuffix(" anew")
    assert (NAMES[bench.holder] if bench.holder else "-") == holder
    if cell.holder.endswith("anew"):
        # Its own grant, not the one that was in flight: that one was released, for nobody was left to be
        # told.
        assert bench.table.next_token == token_before + 2
        assert bench.desk.counters["undeliverable"] == 1


def test_no_cell_is_listed_twice() -> None:
    assert len({(cell.request, cell.state) for cell in CELLS}) == len(CELLS)
