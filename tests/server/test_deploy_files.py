"""The files in `deploy/` speak of what the program serves."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.server.asking import ask_raw
from tests.server.certificates import Authority
from tests.server.test_admin_real import desk

Run = Callable[[Any], Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
LEADERS_OF_CLUSTERS = {
    "ticketing_member_lag_entries",
    "ticketing_learner_lag_entries",
    "ticketing_clock_difference_seconds",
    "ticketing_clock_error_seconds",
}
"""What a standalone node without peers or learners has nothing to tell of."""


def test_every_figure_that_the_dashboard_draws_is_served(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    text = (DEPLOY / "grafana-dashboard.json").read_text()
    dashboard = json.loads(text)
    drawn = set(re.findall(r"ticketing_\w+", " ".join(_expressions(dashboard))))
    assert len(drawn) > 30

    async def scene() -> None:
        files = authority.issue("dashboard", "127.0.0.1")
        async with desk(tmp_path, authority.client_context, tls=files) as it:
            context = authority.client_context()
            while it.service.certificate_ends_ms is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            _, _, content = await ask_raw(it.admin, "GET", "/metrics", tls=context)
            served = set(re.findall(r"^(ticketing_\w+)", content.decode(), re.MULTILINE))
            assert drawn - served <= LEADERS_OF_CLUSTERS

    on_loop(scene())


def _expressions(dashboard: dict[str, Any]) -> list[str]:
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [target["expr"] for target in targets] + [
        note["expr"] for note in dashboard["annotations"]["list"]
    ]


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    spots = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(spots) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
