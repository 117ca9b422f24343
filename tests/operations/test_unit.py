"""The shipped systemd unit and the program's exit statuses fit each other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operations.machines import LIBRARY, UNIT
from tests.operations.unit import read_unit
from ticketing.cli.errors import ExitCode
from ticketing.node.rejoin import FAILED, REMOVED, START_AGAIN
from ticketing.node.settings import NodeSettings, S

SHIPPED = read_unit(UNIT, "node-1")


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (0, False),  # systemctl stop, ticketing node stop
        (FAILED, True),
        (ExitCode.USAGE, False),
        (REMOVED, False),
        (START_AGAIN, True),
        (-9, True),  # killed, out of memory
        (-11, True),
        (-15, False),
        (-1, True),  # reloaded before it could listen
    ],
)
def test_a_process_that_ended_is_started_again_where_that_helps(status: int, again: bool) -> None:
    assert SHIPPED.starts_again(status) is again


def test_the_statuses_are_those_of_the_command_line() -> None:
    assert (REMOVED, START_AGAIN) == (ExitCode.REMOVED, ExitCode.START_AGAIN)


def test_a_node_has_time_to_ask_for_leave() -> None:
    default_s = NodeSettings(place="a", places=()).stop_wait_ns / S
    assert SHIPPED.stop_s >= 2 * default_s


def test_it_starts_the_node_of_its_own_folder() -> None:
    assert SHIPPED.start[1:] == ["node", "start", "--config", f"{LIBRARY}/node-1/node.toml"]


def test_systemd_understands_every_line_of_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the unit is verified by `systemd-analyze` (Debian: apt-get install systemd)")
    unit = tmp_path / "ticketing@node-1.service"
    program = SHIPPED.start[0]
    text = UNIT.read_text().replace(program, sys.executable)
    assert text != UNIT.read_text()
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_verifying_sees_what_systemd_would_pass_over(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the unit is verified by `systemd-analyze` (Debian: apt-get install systemd)")
    unit = tmp_path / "ticketing@node-1.service"
    unit.write_text(UNIT.read_text().replace("RestartSec=", "RestartSecs="))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "RestartSecs" in done.stderr
