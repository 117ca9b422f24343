"""Reads the golden frames; the same file is read by the test-suites of other languages."""

import json
from pathlib import Path
from typing import Any

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("golden.json").read_text("utf-8")
)


def named(section: str) -> tuple[list[dict[str, Any]], list[str]]:
    """A section's cases and their names, as pytest's parametrize wants them."""
    cases = GOLDEN[section]
    return cases, [case.get("name", "") for case in cases]
