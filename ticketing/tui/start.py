"""Starts the dashboard on this terminal. Loads textual."""

from __future__ import annotations

import os

from ticketing.cli.admin_client import AdminAccess
from ticketing.tui.live.app import TopApp
from ticketing.tui.reader import Reader
from ticketing.tui.render.text import Glyphs
from ticketing.tui.terminal import no_colour
from ticketing.tui.want import Want


def run_live(
    access: AdminAccess,
    want: Want,
    glyphs: Glyphs,
    *,
    interval_s: float,
    admin: bool,
    theme: str | None = None,
) -> int:
    """Runs until it is quit; the exit status. Raises the fault of ours that ended it. The terminal is restored."""
    app = TopApp(
        Reader(access),
        glyphs,
        interval_s=interval_s,
        admin=admin,
        want=want,
        no_color=no_colour(os.environ),
        theme=theme,
    )
    app.run()
    if app.failure is not None:
        raise app.failure
    if app.ended_by is not None:
        return 128 + app.ended_by
    return app.return_code or 0
