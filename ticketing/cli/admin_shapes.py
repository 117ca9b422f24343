"""The shapes of docs/admin.md, made sure of where an answer comes in.

What is no table or no list of tables where one has to be counts as not told. So whatever a node of another version, or
something else on its port, may answer, everything behind this can go by the shapes.
"""

from __future__ import annotations

from typing import Any

_TABLES = frozenset(
    (
        "addresses",
        "change",
        "clock",
        "leader",
        "learner",
        "links",
        "lock",
        "loop",
        "membership",
        "process",
        "raft",
        "sessions",
    )
)
_LISTS = frozenset(("changes", "members", "nodes", "peers", "waiters"))
_WORDS = frozenset(("missing", "remotes", "waiting_for"))
_NUMBERS = (
    "_ms",
    "_s",
    "_ppm",
    "_max",
    "redundancy",
    "redundancy_after",
    "steps",
    "waiting",
    "lag",
)


def sound(value: dict[str, Any]) -> dict[str, Any]:
    """The same answer without what has another shape than the documented one."""
    return {key: _sound(key, item) for key, item in value.items()}


def _sound(key: str, value: Any) -> Any:
    if key in _TABLES:
        return sound(value) if isinstance(value, dict) else None
    if key in _LISTS:
        return _rows(value)
    if key in _WORDS:
        return [str(word) for word in value] if isinstance(value, list) else []
    if key == "locks":  # figures in a status, rows in a list
        return sound(value) if isinstance(value, dict) else _rows(value) if isinstance(value, list) else None
    if key.endswith(_NUMBERS):
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return (
        str(value) if isinstance(value, dict | list) and key in ("place", "role", "domain", "why") else value
    )


def _rows(value: Any) -> list[dict[str, Any]]:
    return [sound(row) for row in value if isinstance(row, dict)] if isinstance(value, list) else []
