"""Whole screens, compared with text files that were looked at."""

from __future__ import annotations

import pytest

from tests.tui.fake_cluster import FIRST_TOKEN, FakeCluster, Lock, crowd
from tests.tui.golden import same_as_golden
from tests.tui.test_model import readings, view_of
from tests.tui.watching import WALL_MS, watch
from ticketing.tui.board import Board
from ticketing.tui.model import LockList, Reading, lock_row
from ticketing.tui.render.frame import frame
from ticketing.tui.render.summary import Freshness
from ticketing.tui.render.text import ASCII, UNICODE, Glyphs
from ticketing.tui.want import Want


def night(cluster: FakeCluster) -> None:
    """An evening with a sale on, and one node down."""
    cluster.hold(crowd("event/2026-11-30/seat/A-12", FIRST_TOKEN + 900, 1_000))
    cluster.hold(crowd("[bold]stock[/]/42", FIRST_TOKEN + 3, 7), crowd("좌석/가-1", FIRST_TOKEN + 4, 3))
    cluster.hold(*(Lock(f"stock/{n}", FIRST_TOKEN + 10 + n, lease_left_ms=n * 2_500) for n in range(9)))


@pytest.mark.parametrize(
    ("name", "size", "glyphs"),
    [
        ("wide", (140, 36), UNICODE),
        ("80x24", (80, 24), UNICODE),
        ("80x24-ascii", (80, 24), ASCII),
        ("least", (40, 10), UNICODE),
        ("tiny", (20, 5), UNICODE),
    ],
)
async def test_the_first_screen(name: str, size: tuple[int, int], glyphs: Glyphs) -> None:
    async with FakeCluster() as cluster:
        night(cluster)
        cluster.nodes["node-3"].address = "127.0.0.1:1"
        await cluster.kill("node-3")
        async with watch(cluster, size=size, glyphs=glyphs, frozen=True) as watched:
            await watched.until(lambda: watched.app.board.reading.locks, refresh=False)  # type: ignore[union-attr]
            await watched.settle()
            watched.app._show()
            await watched.settle()
            same_as_golden(name, watched.lines())


@pytest.mark.parametrize(
    ("name", "keys"), [("key", ["enter"]), ("node", ["tab", "enter"]), ("help", ["question_mark"])]
)
async def test_the_screens_behind_it(name: str, keys: list[str]) -> None:
    async with FakeCluster() as cluster:
        night(cluster)
        async with watch(cluster, size=(80, 24), frozen=True) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press(*keys)
            if name == "key":
                await watched.until(lambda: watched.app.board.reading.detail, refresh=False)  # type: ignore[union-attr]
            await watched.settle()
            lines = [
                line.replace(cluster.nodes["node-1"].address, "127.0.0.1:7225") for line in watched.lines()
            ]
            same_as_golden(name, lines)


@pytest.mark.parametrize(("name", "width", "glyphs"), [("frame", 100, UNICODE), ("frame-ascii", 80, ASCII)])
def test_the_plain_frame(name: str, width: int, glyphs: Glyphs) -> None:
    cluster = FakeCluster()
    night(cluster)
    rows = tuple(
        lock_row(lock.shown(cluster.wall_ms), cluster.wall_ms)
        for lock in cluster.by("queue") + cluster.by("age")
    )
    board = Board()
    for n in (1, 2):
        cluster.counters["lock_granted"] = 40 * n
        nodes = readings(cluster, silent="node-3")
        view = view_of(cluster, silent="node-3")
        listed = LockList("queue", "", "", rows, None, 5)
        board.take(Reading(1_000_000_000 * n, WALL_MS, nodes, view, listed, None, (), "", n))
    lines = frame(board, Want(), Freshness(4.0, old=False, paused=False, interval_s=1), width, glyphs)
    same_as_golden(name, lines)
