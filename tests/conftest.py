"""What all tests have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _bytecode_for_children() -> Iterator[None]:
    """Installed programs have their bytecode; without it every process that a test starts takes twice as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(Path(tempfile.gettempdir()) / "ticketing-tests-bytecode"))
        yield
