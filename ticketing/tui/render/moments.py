"""Moments of the wall clock, in UTC: logs of several machines are read side by side."""

from __future__ import annotations

from datetime import UTC, datetime


def wall_time(wall_ms: int) -> str:
    """`14:03:59`, in UTC."""
    return _moment(wall_ms).strftime("%H:%M:%S")


def wall_moment(wall_ms: int) -> str:
    """`2026-11-30 14:03:59 UTC`."""
    return _moment(wall_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _moment(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC)
