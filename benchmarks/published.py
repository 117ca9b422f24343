"""The published client (PyPI `ticketing` 0.3.0) in a folder of its own: its import name is also our alias package's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.systems.processes import PROJECT

PACKAGE = "ticketing==0.3.0"
TOOLS = PROJECT / ".bench"
"""What benchmarks install; never part of the project's environment."""


def published_client() -> Path:
    """The folder with the package; installed on the first call."""
    folder = TOOLS / "published"
    if not (folder / "saro_ticketing").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, PACKAGE], check=True)
    return folder
