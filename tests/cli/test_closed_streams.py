"""Commands whose standard streams the caller has closed (`2>&-`), as some supervisors and scripts leave them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticketing.cli.dev_cluster import DevCluster

WITHIN_S = 30.0
LOOK = """
import os, sys
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
seen = "".join(str(number) for number in range(3) if is_open(number))
with open(sys.argv[1], "w") as file:
    file.write(seen)
"""
"""Writes which of its standard streams are open."""


def run(closed: str, *words: str, config: Path | str = "nowhere") -> tuple[int, str, str]:
    """A command by a shell that closes these of its streams first; what is left of its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "ticketing", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**clean, "TICKETING_CONFIG": str(config)},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["acquire", "k"], ["status"], ["frobnicate"]], ids=" ".join)
def test_what_is_said_for_people_never_gets_into_the_result(words: list[str]) -> None:
    code, out, err = run("", *words)
    assert (code, out) == (2, "")
    assert err
    assert run("2>&-", *words) == (2, "", "")


@pytest.mark.parametrize(
    "words",
    [
        ["config", "show", "--addr", "a:1"],
        ["--version"],
        ["completion", "bash"],
        ["--help"],
        ["acquire", "-h"],
    ],
)
def test_a_result_that_cannot_be_told_is_an_error(words: list[str]) -> None:
    code, out, err = run(">&-", *words, config="")
    assert (code, out) == (1, "")
    assert err.startswith("error: cannot write the result: ")
    assert "Traceback" not in err
    assert run("<&- >&- 2>&-", *words, config="") == (1, "", "")
    assert run("<&- 2>&-", *words, config="")[0] == 0


@pytest.fixture(scope="module")
def served() -> Iterator[Path]:
    """The `client.toml` of a node that serves."""
    with DevCluster(1) as running:
        running.wait_for(running.view, "a node that serves", within_s=WITHIN_S)
        yield running.config


@pytest.mark.process
class TestLocks:
    def test_a_lock_is_had_and_given_back_without_standard_error(self, served: Path) -> None:
        code, out, err = run("2>&-", "acquire", "k", "--wait", "0", config=served)
        assert (code, err) == (0, "")
        assert run("2>&-", "release", "k", out.strip(), config=served) == (0, "released\n", "")
        assert run("2>&-", "release", "k", out.strip(), config=served) == (10, "", "")

    def test_a_lock_whose_token_nobody_gets_is_not_kept(self, served: Path) -> None:
        code, _, err = run(">&-", "acquire", "k", "--wait", "0", config=served)
        assert code == 1
        assert err.startswith("error: cannot write the result: ")
        assert run("", "acquire", "k", "--wait", "0", config=served)[0] == 0

    @pytest.mark.parametrize(
        ("closed", "still_open"), [("<&-", "12"), (">&-", "02"), ("2>&-", "01"), ("<&- >&- 2>&-", "")]
    )
    def test_a_command_has_the_streams_that_we_have(
        self, served: Path, tmp_path: Path, closed: str, still_open: str
    ) -> None:
        seen = tmp_path / "seen"
        words = (sys.executable, "-S", "-c", LOOK, str(seen))
        assert run(closed, "acquire", "own", "--", *words, config=served) == (0, "", "")
        assert seen.read_text() == still_open
