from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.planes import Planes, facts, running
from ticketing.cli.main import main

Tell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planes]:
    """Three healthy nodes, and a folder from which commands find them."""
    for name in [name for name in os.environ if name.startswith("TICKETING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with running() as found:
        found.statuses(facts(1), facts(2), facts(3))
        found.on("GET", "/v1/checksum", {"index": "40", "checksum": "00112233445566ff", "held": 2})
        monkeypatch.chdir(found.write_files(tmp_path / "cluster"))
        yield found


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Runs a command in this process: exit code, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is polled is polled without waiting, where a test does not say otherwise."""
    monkeypatch.setattr("ticketing.cli.node_stop._POLL_S", 0.001)
    monkeypatch.setattr("ticketing.cli.node_restart._POLL_S", 0.001)
    monkeypatch.setattr("ticketing.cli.node_replace._POLL_S", 0.001)
    monkeypatch.setattr("ticketing.cli.form.POLL_S", 0.001)
    monkeypatch.setattr("ticketing.cli.admin_leader.AGAIN_S", 0.001)
