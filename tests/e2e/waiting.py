"""Waiting for a condition with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

STEP_S = 0.01


async def until(probe: Callable[[], T | None], what: str, within_s: float = 15.0) -> T:
    """Calls `probe` until it answers with something true; fails at the deadline."""

    async def asked() -> T | None:
        return probe()

    return await until_told(asked, what, within_s)


async def until_told(probe: Callable[[], Awaitable[T | None]], what: str, within_s: float = 15.0) -> T:
    """As `until`, for a probe that has to ask somebody."""
    deadline = time.monotonic() + within_s
    while not (found := await probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(STEP_S)
    return found
