"""Draws docs/images/*.svg from a real throw-away cluster: `python -m tests.tui.screenshots`. Takes a minute."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

from ticketing.cli.dev_cluster import DevCluster
from ticketing.cli.dev_load import Load
from ticketing.config.client_file import read_client_file
from ticketing.tui.live.app import TopApp
from ticketing.tui.reader import Reader
from ticketing.tui.render.text import UNICODE

FOLDER = Path(__file__).parents[2] / "docs" / "images"
WIDE, NARROW = (124, 34), (80, 24)
COURSE_S = 24
"""So long it runs before the first picture, that the courses have something to show."""


def clean(svg: str) -> str:
    """Without fonts from elsewhere, so that a page loads nothing but the picture."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r"font-family: ?[^;]*;",
        "font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace;",
        svg,
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


async def draw(cluster: DevCluster) -> None:
    app = TopApp(Reader(cluster.access()), UNICODE, interval_s=1.0)
    async with app.run_test(size=WIDE) as pilot:

        async def save(name: str) -> None:
            await pilot.pause(0.3)
            (FOLDER / f"{name}.svg").write_text(clean(app.export_screenshot(title="ticketing top")), "utf-8")
            print(f"docs/images/{name}.svg")

        await pilot.pause(COURSE_S)
        await save("top")
        await pilot.press("enter")
        await pilot.pause(4)
        await save("top-key")
        await pilot.press("escape")
        reading = app.board.reading
        assert reading is not None
        leader = next(node for node in cluster.nodes if node.place.name == reading.view.leader)
        leader.send(signal.SIGKILL)
        await pilot.resize_terminal(*NARROW)
        await pilot.pause(6)
        await save("top-leader-killed")


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with DevCluster(3) as cluster:
        cluster.wait_for(cluster.view, "the election of a leader")
        with Load(read_client_file(cluster.config)):
            asyncio.run(draw(cluster))
    return 0


if __name__ == "__main__":
    sys.exit(main())
