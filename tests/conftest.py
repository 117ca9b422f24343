"""What all tests have in common."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_WITHOUT_LOOPBACK = (
    "chaos/",
    "locks/",
    "mutants/",
    "node/",
    "operations/test_runbook.py",
    "protocol/",
    "raft/",
)
"""Tests that share no port with others: without sockets, or on namespaces of their own. The simulator's seeds are not
among them: they have both processors to themselves, after all these.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where two processes share the tests, one of them has all that take ports of loopback: no two choose the same."""
    for item in items:
        file = item.path.relative_to(_HERE).as_posix()
        group = file if file.startswith(_WITHOUT_LOOPBACK) else "loopback"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True, scope="session")
def _bytecode_for_children() -> Iterator[None]:
    """Installed programs have their bytecode; without it every process that a test starts takes twice as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(Path(tempfile.gettempdir()) / "ticketing-tests-bytecode"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _signals_for_children() -> Iterator[None]:
    """A test run in the background of a script, or under nohup, ignores these, and so would all that tests start."""
    ignored = [
        number
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
