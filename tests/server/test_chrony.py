"""What chrony's own tool says, and what is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticketing.server import chrony

Run = Callable[[Any], Any]

LINE = (
    "A9FEA97B,169.254.169.123,4,1700000000.123456789,-0.000002313,-0.000001000,0.000010,"
    "-12.345,0.001,0.02,0.000400,0.000200,16.2,Normal\n"
)


def line(**fields: str) -> str:
    parts = LINE.strip().split(",")
    at = {"stratum": 2, "offset": 4, "delay": 10, "dispersion": 11, "leap": 13}
    for name, value in fields.items():
        parts[at[name]] = value
    return ",".join(parts) + "\n"


def test_a_synchronised_clock_is_inside_with_its_bound_in_the_detail() -> None:
    verdict = chrony.judge(LINE, 0.25)
    assert verdict.synchronised
    assert verdict.detail == "chrony: stratum 4, within 0.4 ms"


@pytest.mark.parametrize(
    "output",
    [
        "",
        "506 Cannot talk to daemon\n",
        LINE + LINE,
        LINE.strip() + ",more\n",
        line(stratum="x"),
        line(offset="nan"),
        line(stratum="0"),
        line(stratum="16"),
        line(leap="Not synchronised"),
        line(leap=""),
        line(offset="-0.3"),
        line(dispersion="0.3"),
        line(delay="0.6"),
    ],
)
def test_everything_else_is_outside(output: str) -> None:
    assert not chrony.judge(output, 0.25).synchronised


def tool(folder: Path, text: str) -> str:
    path = folder / "chronyc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_tool_is_run_and_read(tmp_path: Path) -> None:
    command = tool(tmp_path, f'[ "$*" = "-c tracking" ] && echo "{LINE.strip()}"')
    assert chrony.ask(command, 0.25).synchronised


@pytest.mark.parametrize(("text", "says"), [("exit 1", "status 1"), ("echo nonsense", "cannot be read")])
def test_a_tool_that_fails_means_outside(tmp_path: Path, text: str, says: str) -> None:
    verdict = chrony.ask(tool(tmp_path, text), 0.25)
    assert not verdict.synchronised
    assert says in verdict.detail


def test_a_tool_that_is_not_there_or_does_not_answer_means_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot be run" in chrony.ask(str(tmp_path / "none"), 0.25).detail
    monkeypatch.setattr(chrony, "ANSWER_S", 0.05)
    assert "did not answer" in chrony.ask(tool(tmp_path, "exec sleep 5"), 0.25).detail


def test_before_its_first_word_the_clock_is_outside(on_loop: Run, tmp_path: Path) -> None:
    said: list[tuple[bool, str]] = []

    async def scene() -> None:
        told = asyncio.Event()

        def says(synchronised: bool, detail: str) -> None:
            said.append((synchronised, detail))
            if synchronised:
                told.set()

        command = tool(tmp_path, f'echo "{LINE.strip()}"')
        following = asyncio.ensure_future(chrony.follow(command, 0.25, says))
        await told.wait()
        following.cancel()
        await asyncio.wait([following])

    on_loop(scene())
    assert [synchronised for synchronised, _ in said] == [False, True]
