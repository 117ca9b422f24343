"""The lines on top: is there a leader, is a majority well, how old is this, what is held and awaited."""

from __future__ import annotations

from dataclasses import dataclass

from ticketing.tui.history import History
from ticketing.tui.model import ChangeRow, ClusterView, LockList
from ticketing.tui.render.figures import count, duration, rate, sparkline
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone, safe

SEPARATOR = "  "
LOOKED_AT = 2_000
"""With a filter a node looks at so many at the head of an order (docs/admin.md); by key at all of them."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the picture is, and what it waits for."""

    age_ms: float | None
    """Of the leader's facts; None where there never were any."""
    old: bool
    paused: bool
    interval_s: float


def health_line(view: ClusterView, freshness: Freshness, glyphs: Glyphs) -> Line:
    """The first line: leader, majority, clocks, age of the data."""
    line = [*_leader(view, glyphs), *_majority(view)]
    if view.served:
        tone = {"open": Tone.GOOD, "closed": Tone.BAD}.get(view.gate, Tone.WARN)
        word = "open" if view.gate == "open" else f"{view.gate}: nothing is granted"
        line += [Cell(SEPARATOR + "clocks "), Cell(word if view.gate != "unknown" else view.gate, tone)]
    if view.transferring:
        line.append(Cell(SEPARATOR + "lead moves", Tone.WARN))
    return [*line, *_age(freshness)]


def _leader(view: ClusterView, glyphs: Glyphs) -> list[Cell]:
    if view.served:
        return [
            Cell(f"{glyphs.alive} leader ", Tone.GOOD),
            Cell(safe(view.leader, ascii_only=glyphs.ascii), Tone.NAME),
            Cell(f" term {view.term}" if view.term is not None else "", Tone.PLAIN),
        ]
    if view.serves_in_s:
        return [Cell(f"{glyphs.gone} a new domain, which serves in {view.serves_in_s:.0f} s", Tone.WARN)]
    return [Cell(f"{glyphs.gone} NO LEADER", Tone.BAD)]


def _majority(view: ClusterView) -> list[Cell]:
    answering = f"{view.answering}/{len(view.nodes)} answer"
    if view.redundancy is None:
        tone = Tone.PLAIN if view.answering == len(view.nodes) else Tone.WARN
        return [Cell(SEPARATOR), Cell(answering, tone)]
    if view.redundancy > 0:
        return [Cell(SEPARATOR), Cell(f"{view.redundancy} may fail", Tone.GOOD), Cell(f" ({answering})")]
    if view.redundancy == 0:
        word = "none may fail" if len(view.nodes) > 1 else "one node"
        return [Cell(SEPARATOR), Cell(word, Tone.WARN), Cell(f" ({answering})")]
    return [Cell(SEPARATOR), Cell("NO MAJORITY", Tone.BAD), Cell(f" ({answering})")]


def _age(freshness: Freshness) -> list[Cell]:
    cells = [Cell(SEPARATOR)]
    if freshness.paused:
        cells.append(Cell("PAUSED ", Tone.WARN))
    if freshness.age_ms is None:
        cells.append(Cell("no data yet", Tone.WARN))
    elif freshness.old:
        cells.append(Cell(f"data {duration(freshness.age_ms)} old", Tone.BAD))
    elif freshness.paused:
        cells.append(Cell(f"data {duration(freshness.age_ms)} old", Tone.DIM))
    else:
        cells.append(Cell(f"every {freshness.interval_s:g}s", Tone.DIM))
    return cells


def totals_line(view: ClusterView, glyphs: Glyphs) -> Line:
    """The second line: what is held and awaited, and the domain."""
    waiting = Tone.NAME if view.waiting else Tone.PLAIN
    keys = f" for {count(view.keys_waited_for)} keys" if view.waiting else ""
    line = [
        Cell("locks "),
        Cell(count(view.held), Tone.NAME),
        Cell(" held"),
        Cell(SEPARATOR),
        Cell(count(view.waiting), waiting),
        Cell(" waiting" + keys),
    ]
    if view.next_token:
        line.append(Cell(f"{SEPARATOR}next token {safe(view.next_token)}", Tone.DIM))
    if view.domain:
        line.append(Cell(f"{SEPARATOR}domain {safe(view.domain, ascii_only=glyphs.ascii)}", Tone.DIM))
    return line


def alarm_line(view: ClusterView, changes: tuple[ChangeRow, ...], glyphs: Glyphs) -> Line:
    """The faults in one line, the first one in full; replacements under way before them. Empty without any."""
    parts = [change_text(change) for change in changes]
    tone = Tone.WARN
    faults = [fault for fault in view.faults if fault != "no leader serves"]
    if faults and not parts:
        tone = Tone.BAD
    parts += faults
    if not parts:
        return []
    more = f" (+{len(parts) - 1} more)" if len(parts) > 1 else ""
    return [Cell("! " + safe(parts[0], ascii_only=glyphs.ascii) + more, tone)]


def change_text(change: ChangeRow) -> str:
    """A replacement's progress, for people."""
    text = f"{change.place} is being replaced: {change.state or 'under way'}"
    if change.snapshot_percent is not None:
        text += f", snapshot {change.snapshot_percent:.0f}%"
    if change.lag is not None:
        text += f", {count(change.lag)} entries behind"
    return text


RATES = (
    ("grants", "grants/s", ""),
    ("waits", "wait p50/p99", "p99"),
    ("timeouts", "timeouts/s", ""),
    ("expiries", "expiries/s", ""),
    ("busy", "busy/s", ""),
    ("waiting", "waiting", ""),
)
_LABEL = 13
_VALUE = 13


def rate_lines(history: History, width: int, lines: int, glyphs: Glyphs) -> list[Line]:
    """Rates with their courses, as many to a line as `lines` demand, in the order of what matters at night."""
    if lines <= 0 or width <= 0:
        return []
    in_a_row = max(1, min(3, -(-len(RATES) // lines), (width + 2) // (_LABEL + _VALUE + 4)))
    cell_width = (width - 2 * (in_a_row - 1)) // in_a_row
    shown = RATES[: in_a_row * lines]
    found: list[Line] = []
    for start in range(0, len(shown), in_a_row):
        line: list[Cell] = []
        for name, label, course in shown[start : start + in_a_row]:
            if line:
                line.append(Cell("  "))
            line += _rate(history, name, label, course or name, cell_width, glyphs)
        found.append(line)
    return found


def _rate(history: History, name: str, label: str, course: str, width: int, glyphs: Glyphs) -> list[Cell]:
    latest = history.latest(name) if name != "waits" else None
    tone = Tone.PLAIN
    if name == "waits":
        value = f"{duration(history.latest('p50'))}/{duration(history.latest('p99'))}"
    elif name == "waiting":
        value = count(None if latest is None else int(latest))
    else:
        value = rate(latest)
        if latest and name in ("expiries", "busy", "timeouts"):
            tone = Tone.WARN
    spark = max(0, width - _LABEL - _VALUE - 1)
    return [
        Cell(label.ljust(_LABEL)[:_LABEL], Tone.DIM),
        Cell(value.rjust(_VALUE), tone),
        Cell(" " + sparkline(list(history.series[course]), spark, glyphs), Tone.BAR),
    ]


def locks_title(
    locks: LockList | None, view: ClusterView, order: str, prefix: str, now_ns: int, glyphs: Glyphs
) -> Line:
    """Above the list of locks: the order, the filter, how much of it is shown, and its age where that matters."""
    names = {"queue": "longest queue", "age": "held longest", "lease_left": "least lease left", "key": "key"}
    line = [Cell("Locks", Tone.NAME), Cell(f" by {names.get(order, order)}", Tone.DIM)]
    if prefix:
        line.append(Cell(f"{SEPARATOR}filter: {safe(prefix, ascii_only=glyphs.ascii)}*", Tone.WARN))
    if locks is None:
        return line
    if locks.after:
        line.append(Cell(f"{SEPARATOR}after {safe(locks.after, ascii_only=glyphs.ascii)}", Tone.WARN))
    shown = len(locks.locks)
    whole = "" if prefix or view.held is None or shown >= view.held else f" of {count(view.held)}"
    line.append(Cell(f"{SEPARATOR}{count(shown)}{whole} shown", Tone.DIM))
    if prefix and order in ("age", "lease_left") and (view.held or 0) > LOOKED_AT:
        line.append(Cell(f"{SEPARATOR}of the first {count(LOOKED_AT)} in this order", Tone.WARN))
    if locks.error:
        line.append(Cell(f"{SEPARATOR}{safe(locks.error, ascii_only=glyphs.ascii)}", Tone.BAD))
    if locks.taken_ns and (age := (now_ns - locks.taken_ns) / 1e6) > 1_500:
        line.append(Cell(f"{SEPARATOR}list {duration(age)} old", Tone.DIM if not locks.error else Tone.WARN))
    return line
