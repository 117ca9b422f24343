"""The list of locks, and one key in full with its queue."""

from __future__ import annotations

from collections.abc import Iterable

from ticketing.tui.events import Event, Moment
from ticketing.tui.model import KeyDetail, LockRow, WaiterRow
from ticketing.tui.render.columns import Column
from ticketing.tui.render.figures import UNKNOWN, bar, count, duration
from ticketing.tui.render.moments import wall_time
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone, safe

BAR_WIDTH = 8
LEASE_WARNED = 0.2
"""Share of the lease below which a holder is late with its release."""

COLUMNS = (
    Column("key", "KEY", 18, grow=3, middle=True),
    Column("holder", "HOLDER", 12, rank=1, grow=2, most=60),
    Column("remote", "FROM", 15, rank=5, grow=1, most=45, middle=True),
    Column("token", "TOKEN", 16, rank=4, right=True, most=19),
    Column("age", "HELD", 6, right=True),
    Column("lease_left", "LEFT", 6, right=True),
    Column("bar", "LEASE", BAR_WIDTH, rank=3),
    Column("queue", "WAIT", 6, right=True),
    Column("longest", "LONGEST", 7, rank=2, right=True),
)
WAITER_COLUMNS = (
    Column("place", "#", 5, right=True),
    Column("name", "WHO", 20, grow=2),
    Column("remote", "FROM", 15, rank=1, grow=1, most=45, middle=True),
    Column("waited", "WAITED", 6, right=True),
    Column("left", "GIVES UP", 8, right=True),
    Column("lease", "LEASE", 6, rank=2, right=True),
    Column("owner", "OWNER", 20, rank=3, right=True),
)
SORT_RISES = {"queue": False, "age": False, "lease_left": True, "key": True}
"""The direction of each order: the longest queue, the longest held, the least lease and the first key come first."""


def lock_cells(row: LockRow, glyphs: Glyphs, *, changed: bool = False) -> list[Cell]:
    """One cell for each of `COLUMNS`; `changed`: it has another holder than a moment ago."""
    ascii_only = glyphs.ascii
    held = Tone.CHANGED if changed else Tone.PLAIN
    if row.token:
        holder = Cell(safe(row.name, ascii_only=ascii_only) or f"owner {row.owner}", held)
    else:
        holder = Cell("nobody", Tone.WARN)
    late = row.left_share is not None and row.left_share < LEASE_WARNED
    over = row.left_ms is not None and row.left_ms <= 0
    left_tone = Tone.BAD if over else Tone.WARN if late else Tone.PLAIN
    return [
        Cell(safe(row.key, ascii_only=ascii_only), Tone.NAME),
        holder,
        Cell(safe(row.remote, ascii_only=ascii_only) or UNKNOWN, Tone.DIM),
        Cell(safe(row.token) or UNKNOWN, held if changed else Tone.DIM),
        Cell(duration(row.held_ms)),
        Cell("over" if over else duration(row.left_ms), left_tone),
        Cell(bar(row.left_share, BAR_WIDTH, glyphs), Tone.WARN if late else Tone.BAR),
        Cell(count(row.waiting), Tone.NAME if row.waiting else Tone.DIM),
        Cell(
            duration(row.longest_wait_ms) if row.waiting else UNKNOWN, Tone.PLAIN if row.waiting else Tone.DIM
        ),
    ]


def waiter_cells(row: WaiterRow, glyphs: Glyphs) -> list[Cell]:
    """One cell for each of `WAITER_COLUMNS`."""
    ascii_only = glyphs.ascii
    return [
        Cell(str(row.place), Tone.DIM),
        Cell(safe(row.name, ascii_only=ascii_only) or UNKNOWN),
        Cell(safe(row.remote, ascii_only=ascii_only) or UNKNOWN, Tone.DIM),
        Cell(duration(row.waited_ms)),
        Cell(
            duration(row.left_ms),
            Tone.WARN if row.left_ms is not None and row.left_ms < 1_000 else Tone.PLAIN,
        ),
        Cell(duration(row.lease_ms)),
        Cell(safe(row.owner) or UNKNOWN, Tone.DIM),
    ]


def detail_lines(detail: KeyDetail | None, key: str, now_ns: int, glyphs: Glyphs) -> list[Line]:
    """A key's holder and lease: always five lines, so that the queue below stands still."""
    ascii_only = glyphs.ascii
    lines: list[Line] = [[Cell("key     ", Tone.DIM), Cell(safe(key, ascii_only=ascii_only), Tone.NAME)]]
    if detail is None:
        return [*lines, [Cell("asking for it", Tone.DIM)], [], [], []]
    lock = detail.lock
    note: list[Cell] = []
    if detail.error:
        old = f"; what is here is {duration((now_ns - detail.taken_ns) / 1e6)} old" if detail.taken_ns else ""
        note = [Cell(f"! {safe(detail.error, ascii_only=ascii_only)}{old}", Tone.BAD)]
    waiting = [
        Cell("queue   ", Tone.DIM),
        Cell(count(detail.waiting), Tone.NAME if detail.waiting else Tone.PLAIN),
        Cell(" waiting"),
    ]
    if detail.more and detail.waiting is not None:
        waiting.append(Cell(f", the first {count(len(detail.waiters))} are listed", Tone.DIM))
    if lock is None or not lock.token:
        return [*lines, [Cell("holder  ", Tone.DIM), Cell("nobody", Tone.PLAIN)], [], waiting, note]
    holder = [
        Cell("holder  ", Tone.DIM),
        Cell(safe(lock.name, ascii_only=ascii_only) or f"owner {lock.owner}", Tone.NAME),
    ]
    if lock.remote:
        holder.append(Cell(f" from {safe(lock.remote, ascii_only=ascii_only)}"))
    holder.append(Cell(f"  token {safe(lock.token)}", Tone.PLAIN))
    lease = [
        Cell("lease   ", Tone.DIM),
        Cell(bar(lock.left_share, 2 * BAR_WIDTH, glyphs), Tone.BAR),
        Cell(
            f" {duration(lock.left_ms)} left of {duration(lock.lease_ms)}, held for {duration(lock.held_ms)}"
        ),
    ]
    if lock.renewal:
        lease.append(Cell(f", extended {lock.renewal} times", Tone.DIM))
    return [*lines, holder, lease, waiting, note]


def event_lines(events: Iterable[Event], lines: int, glyphs: Glyphs) -> list[Line]:
    """The last `lines` events, newest last."""
    last = list(events)[-lines:] if lines > 0 else []
    return [
        [
            Cell(wall_time(event.wall_ms) + " ", Tone.DIM),
            Cell(safe(event.text, ascii_only=glyphs.ascii), event.tone),
        ]
        for event in last
    ]


def moment_lines(moments: Iterable[Moment], lines: int, glyphs: Glyphs) -> list[Line]:
    """What was seen of a key, newest last."""
    last = list(moments)[-lines:] if lines > 0 else []
    return [
        [Cell(wall_time(moment.wall_ms) + " ", Tone.DIM), Cell(safe(moment.text, ascii_only=glyphs.ascii))]
        for moment in last
    ]
