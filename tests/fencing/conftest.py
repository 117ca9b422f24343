from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fencing.postgres import Postgres, binaries


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; skipped where none is installed."""
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    server = Postgres(found)
    try:
        server.start()
        yield server
    finally:
        server.stop()
