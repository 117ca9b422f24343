"""What importing the client loads, and under which names it is found."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import {module}
heavy = {{"typer", "rich", "textual", "aiohttp", "cryptography", "msgspec", "uvloop", "tomli_w"}}
rooms = {{"server", "node", "raft", "locks", "config", "cli", "tui"}}
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(heavy & loaded), sorted(name for name in sys.modules if name.startswith("ticketing.")
      and name.split(".")[1] in rooms))
"""


def test_the_client_loads_nothing_but_the_standard_library_and_the_wire() -> None:
    for module in ("ticketing.client", "saro_ticketing"):
        script = SCRIPT.format(module=module)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[] []", module


def test_its_names_are_found_in_all_three_places() -> None:
    import saro_ticketing
    import ticketing
    from ticketing import client

    for name in client.__all__:
        assert getattr(saro_ticketing, name) is getattr(client, name) is getattr(ticketing, name)
    assert not hasattr(ticketing, "no_such_name")
