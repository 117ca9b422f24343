"""chrony itself: a `chronyd -x`, which leaves the machine's clock alone, asked by its own `chronyc`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ticketing.server import chrony

pytestmark = pytest.mark.process
STARTS_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for a socket's name; chronyd wants it to itself."""
    with tempfile.TemporaryDirectory(prefix="chrony-") as name:
        yield Path(name)


@contextmanager
def chronyd(folder: Path, *lines: str) -> Iterator[str]:
    """A daemon with these lines of configuration; its tool, as `[clock] chronyc` would name it."""
    if os.geteuid() != 0:
        pytest.skip("chronyd is started by root alone")
    if shutil.which("chronyd") is None or shutil.which("chronyc") is None:
        pytest.skip("chrony is not installed (Debian: apt-get install chrony)")
    socket, configuration = folder / "command", folder / "chrony.conf"
    own = ("port 0", "cmdport 0", f"bindcmdaddress {socket}", f"pidfile {folder / 'pid'}")
    configuration.write_text("\n".join([*own, *lines, ""]))
    tool = folder / "chronyc"
    tool.write_text(f'#!/bin/sh\nexec chronyc -h {socket} "$@"\n')
    tool.chmod(0o755)
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            ["chronyd", "-x", "-d", "-u", "root", "-f", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + STARTS_S
        while not socket.exists():
            assert daemon.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.02)
        yield str(tool)
    finally:
        daemon.kill()
        daemon.wait(10)


def test_a_chrony_that_has_a_time_is_inside(folder: Path) -> None:
    with chronyd(folder, "local stratum 8") as tool:
        verdict = chrony.ask(tool, 0.25)
    assert verdict == chrony.Verdict(True, "chrony: stratum 8, within 0.0 ms")


def test_a_chrony_without_a_source_is_outside(folder: Path) -> None:
    with chronyd(folder) as tool:
        verdict = chrony.ask(tool, 0.25)
    assert verdict == chrony.Verdict(False, "chrony: not synchronised")


def test_a_chrony_that_has_ended_is_outside(folder: Path) -> None:
    with chronyd(folder, "local stratum 8") as tool:
        assert chrony.ask(tool, 0.25).synchronised
    verdict = chrony.ask(tool, 0.25)
    assert not verdict.synchronised
    assert "ended with status 1" in verdict.detail
