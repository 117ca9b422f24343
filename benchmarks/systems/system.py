"""What the harness wants of a system, and of the clients that are measured on it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from benchmarks.systems.processes import ServerProcess


class System(contextlib.AbstractContextManager["System"]):
    """Servers that run between entering and leaving the context."""

    name: ClassVar[str]
    """In results and on the command line."""
    title: ClassVar[str]
    """In tables and plots."""
    promises: ClassVar[str]
    """What a grant means there: the caveat beside its figures."""
    warm_up_s: ClassVar[float] = 0.0
    """How long it is under load before anything is measured."""
    fifo: ClassVar[bool] = False
    """Whether waiters of a key are promised their turn in the order of asking."""

    def target(self) -> dict[str, Any]:
        """What a client needs to reach it, as JSON."""
        raise NotImplementedError

    def leader(self) -> ServerProcess | None:
        """The process that leads the others, where it says so to whoever asks."""
        raise NotImplementedError

    def pids(self) -> list[int]:
        """All server processes."""
        raise NotImplementedError

    def interpreter(self) -> str:
        """The Python of its clients."""
        return sys.executable

    def version(self) -> str:
        """Of the servers and the clients."""
        return ""


class AsyncClient(Protocol):
    """Acquires and releases on one loop; many calls at a time."""

    style: ClassVar[str] = "async"

    async def open(self) -> None: ...

    async def acquire(self, key: str) -> Any:
        """The grant."""
        ...

    async def release(self, grant: Any) -> None: ...

    async def close(self) -> None: ...


class BlockingClient(Protocol):
    """Acquires and releases on threads, one worker each."""

    style: ClassVar[str] = "blocking"

    def open(self) -> None: ...

    def acquire(self, worker: int, key: str) -> Any: ...

    def release(self, grant: Any) -> None: ...

    def close(self) -> None: ...


class CallbackClient(Protocol):
    """No future and no task a request: what is called back is all there is."""

    style: ClassVar[str] = "callback"

    async def open(self) -> None: ...

    def acquire(self, key: bytes, granted: Callable[[Any], None]) -> None: ...

    def release(self, grant: Any, released: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...


Client = AsyncClient | BlockingClient | CallbackClient
