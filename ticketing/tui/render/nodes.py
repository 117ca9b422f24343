"""The nodes' table, and one node in full."""

from __future__ import annotations

from ticketing.tui.model import CERTIFICATE_DAYS_WARNED, NodeView, age_ms
from ticketing.tui.render.columns import Column
from ticketing.tui.render.figures import UNKNOWN, count, difference, duration, share
from ticketing.tui.render.text import Cell, Glyphs, Line, Tone, safe

COLUMNS = (
    Column("place", "NODE", 9, grow=1, most=24, middle=True),
    Column("role", "ROLE", 9, grow=1, most=12),
    Column("term", "TERM", 5, rank=3, right=True, grow=1, most=10),
    Column("commit", "COMMIT", 8, rank=3, right=True, grow=1, most=14),
    Column("applied", "APPLIED", 8, rank=6, right=True, grow=1, most=14),
    Column("lag", "LAG", 4, rank=1, right=True, grow=1, most=8),
    Column("clock", "CLOCK ms", 10, rank=1, right=True, grow=1, most=16),
    Column("connections", "CONN", 5, rank=2, right=True, most=8),
    Column("busy", "BUSY", 4, rank=2, right=True),
    Column("version", "VERSION", 7, rank=5, grow=1, most=12),
    Column("certificate", "CERT", 5, rank=4, right=True),
    Column("age", "AGE", 5, rank=1, right=True),
)

BUSY_WARNED = 0.7
"""Above it a loop begins to be late for its heartbeats."""


def error_of(node: NodeView, glyphs: Glyphs) -> str:
    """Why a node is but a row, or empty."""
    return "" if node.reachable else safe(node.error, ascii_only=glyphs.ascii)


def node_cells(node: NodeView, leader: str, now_ns: int, interval_s: float, glyphs: Glyphs) -> list[Cell]:
    """One cell for each of `COLUMNS`. What is not heard any more is dim; its age tells why."""
    mark = glyphs.alive if node.reachable else glyphs.gone
    name = f"{mark} {safe(node.place, ascii_only=glyphs.ascii)}"
    age = age_ms(node.facts_ns, now_ns)
    if not node.reachable:
        age_cell = Cell(duration(age), Tone.BAD)
        unknown = Cell(UNKNOWN, Tone.DIM)
        return [Cell(name, Tone.BAD), Cell("no answer", Tone.BAD), *[unknown] * 9, age_cell]
    old = age is not None and age > max(2_000.0, 2_500 * interval_s)
    return [
        Cell(name, Tone.NAME if node.place == leader else Tone.PLAIN),
        _role(node, leader),
        Cell(UNKNOWN if node.term is None else str(node.term)),
        Cell(UNKNOWN if node.commit is None else str(node.commit)),
        Cell(UNKNOWN if node.applied is None else str(node.applied)),
        Cell(count(node.lag), Tone.WARN if node.lag and node.lag > 1_000 else Tone.PLAIN),
        _clock(node, glyphs),
        Cell(count(node.connections)),
        Cell(share(node.busy), Tone.WARN if (node.busy or 0) > BUSY_WARNED else Tone.PLAIN),
        Cell(safe(node.version, ascii_only=glyphs.ascii) or UNKNOWN),
        _certificate(node),
        Cell(duration(age), Tone.BAD if old else Tone.DIM),
    ]


def _role(node: NodeView, leader: str) -> Cell:
    if node.stopping:
        return Cell("stopping", Tone.WARN)
    if node.role == "leader":
        return Cell("leader", Tone.GOOD if node.place == leader and node.serving else Tone.WARN)
    if node.role in ("follower", ""):
        return Cell(node.role or UNKNOWN)
    return Cell(safe(node.role), Tone.WARN)


def _clock(node: NodeView, glyphs: Glyphs) -> Cell:
    tones = {"outside": Tone.BAD, "unclear": Tone.WARN, "rate": Tone.BAD}
    return Cell(
        difference(node.clock_ms, node.clock_error_ms, glyphs), tones.get(node.clock_verdict, Tone.PLAIN)
    )


def _certificate(node: NodeView) -> Cell:
    if node.certificate_fault:
        return Cell("BAD", Tone.BAD)
    if node.certificate_days is None:
        return Cell(UNKNOWN, Tone.DIM)
    tone = Tone.BAD if node.certificate_days < CERTIFICATE_DAYS_WARNED else Tone.PLAIN
    return Cell(f"{node.certificate_days:.0f}d", tone)


def node_lines(node: NodeView, leader: str, now_ns: int, glyphs: Glyphs) -> list[Line]:
    """A node in full, one fact a line."""

    def fact(name: str, text: str, tone: Tone = Tone.PLAIN) -> Line:
        return [Cell(name.ljust(14), Tone.DIM), Cell(safe(text, ascii_only=glyphs.ascii) or UNKNOWN, tone)]

    role = "leader, serves" if node.serving else node.role
    lines = [
        fact("place", node.place, Tone.NAME),
        fact(
            "answers",
            "yes" if node.reachable else f"no: {node.error}",
            Tone.GOOD if node.reachable else Tone.BAD,
        ),
        fact(
            "facts from", "never" if not node.facts_ns else f"{duration(age_ms(node.facts_ns, now_ns))} ago"
        ),
        fact("admin plane", node.address),
        fact("role", role, Tone.GOOD if node.place == leader else Tone.PLAIN),
        fact("NodeId", node.node_id),
        fact("incarnation", node.incarnation),
        fact("domain", node.domain),
        fact("term", "" if node.term is None else str(node.term)),
        fact("commit", "" if node.commit is None else str(node.commit)),
        fact("applied", "" if node.applied is None else str(node.applied)),
        fact("lag", count(node.lag)),
        [
            Cell("clock".ljust(14), Tone.DIM),
            Cell(difference(node.clock_ms, node.clock_error_ms, glyphs) + " ms "),
            Cell(safe(node.clock_verdict), _clock(node, glyphs).tone),
        ],
        fact("connections", count(node.connections)),
        fact("loop busy", share(node.busy)),
        fact("version", node.version),
        fact(
            "certificate",
            "none" if node.certificate_days is None else f"ends in {node.certificate_days:.0f} days",
        ),
    ]
    if node.certificate_fault:
        lines.append(fact("", node.certificate_fault, Tone.BAD))
    if node.reload_fault:
        lines.append(fact("reload", node.reload_fault, Tone.BAD))
    if node.state:
        lines.append(fact("membership", node.state))
    lines += [fact("waits for", reason, Tone.WARN) for reason in node.waiting_for]
    return lines
