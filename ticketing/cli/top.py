"""`ticketing top`: the live dashboard."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from ticketing.cli.admin_client import AdminAccess, AdminError, failed
from ticketing.cli.arguments import wants_json, whole_number
from ticketing.cli.errors import CommandFailed, ExitCode, usage_error
from ticketing.cli.options import AdminConfig, Config, Output, admin_of, new_app
from ticketing.cli.output import write_json, write_line
from ticketing.config.client_file import Typed

ORDERS = {"queue": "queue", "age": "age", "lease": "lease_left", "key": "key"}
ROWS_MAX = 1_000

app = new_app()


@app.command(epilog="Example: ticketing top --interval 2")
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one plain frame and exit.")] = False,
    interval: Annotated[
        str, typer.Option(metavar="SECONDS", help="Between two refreshes; 0.25 to 60 are possible.")
    ] = "1",
    admin: Annotated[
        bool, typer.Option("--admin", help="Bind the keys that change something; each asks first.")
    ] = False,
    sort: Annotated[str, typer.Option(metavar="ORDER", help="queue, age, lease or key.")] = "queue",
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Only keys that begin with it.")] = "",
    rows: Annotated[str, typer.Option(metavar="N", help="Locks in a frame of --once or -o json.")] = "20",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII alone.")] = False,
    config: Config = None,
    admin_config: AdminConfig = None,
    output: Output = "text",
) -> int:
    """Nodes, locks and queues of a cluster, live. `?` shows the keys, `q` quits. Reads only, unless --admin."""
    as_json = wants_json(output)
    if sort not in ORDERS:
        raise usage_error(f"--sort must be one of {', '.join(ORDERS)}, not {sort!r}")
    interval_s = _seconds(interval)
    count = whole_number(rows, "--rows", 1, ROWS_MAX)
    access = admin_of(Typed(config=config, admin_config=admin_config))
    from ticketing.tui.want import Want

    want = Want(order=ORDERS[sort], prefix=prefix)
    try:
        if once or as_json:
            return _frame(access, want, count, as_json=as_json, ascii_only=ascii_only)
        return live(access, want, interval_s=interval_s, admin=admin, ascii_only=ascii_only)
    except AdminError as error:
        raise failed(error) from None


def live(
    access: AdminAccess, want: object, *, interval_s: float, admin: bool, ascii_only: bool = False
) -> int:
    """The dashboard on this terminal until it is quit; refused where there is none."""
    need_terminal()
    from ticketing.tui.start import run_live
    from ticketing.tui.terminal import glyphs_for
    from ticketing.tui.want import Want

    assert isinstance(want, Want), want
    glyphs = glyphs_for(sys.stdout.encoding, os.environ, ascii_only=ascii_only)
    return run_live(access, want, glyphs, interval_s=interval_s, admin=admin)


def need_terminal() -> None:
    """`CommandFailed` where no live picture can be drawn: a pipe, a file, cron, or a terminal without a cursor."""
    from ticketing.tui.terminal import can_draw

    if not can_draw((sys.stdin, sys.stdout, sys.stderr), os.environ):
        raise CommandFailed(
            "needs a terminal: standard input, output and error",
            ExitCode.USAGE,
            hint="`ticketing top --once` prints one plain frame, -o json one object",
        )


def _frame(access: AdminAccess, want: object, count: int, *, as_json: bool, ascii_only: bool) -> int:
    from dataclasses import replace

    from ticketing.tui.once import look
    from ticketing.tui.record import record
    from ticketing.tui.render.frame import frame
    from ticketing.tui.render.summary import Freshness
    from ticketing.tui.terminal import glyphs_for
    from ticketing.tui.want import Want

    assert isinstance(want, Want), want
    asked = replace(want, limit=count)
    board = look(access, asked)
    reading = board.reading
    assert reading is not None, "a look takes a reading"
    if as_json:
        write_json(record(board))
    else:
        glyphs = glyphs_for(sys.stdout.encoding, os.environ, ascii_only=ascii_only)
        width = max(80, shutil.get_terminal_size((120, 24)).columns)
        age = board.data_age_ms(reading.taken_ns)
        freshness = Freshness(age, old=age is None, paused=False, interval_s=1.0)
        for line in frame(board, asked, freshness, width, glyphs, rows=count):
            write_line(line)
    if reading.view.served:
        return ExitCode.DONE
    refused = any(node.error_code in ("unauthorized", "tls") for node in reading.nodes if node.error)
    nobody = not any(node.answers for node in reading.nodes)
    return ExitCode.REFUSED if refused and nobody else ExitCode.UNREACHABLE


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise usage_error(f"--interval must be a number of seconds above 0, not {text!r}")
    return value
