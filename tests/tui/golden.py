"""Pictures as text files. `TICKETING_REWRITE_GOLDEN=1` writes them anew: look at the difference before it is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).with_name("golden")


def same_as_golden(name: str, lines: Sequence[str]) -> None:
    """Compares with the file of that name."""
    path = FOLDER / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("TICKETING_REWRITE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
