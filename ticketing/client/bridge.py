"""Between loops and threads: a loop on a thread of its own, and calls that hop to another loop.

A call whose caller leaves early (cancelled, Ctrl-C) is cancelled over there, and what it brings all the same is
handed to `unwanted`: a ticket is never dropped on the way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ticketing.client.errors import IndeterminateCancelledError, TicketError, TicketErrorKind

T = TypeVar("T")

_POLL_S = 1.0
_STOPPED_POLLS = 5
"""Looks in a row that find the other loop not running: nobody may ever run it again, and a wait would have no end."""
_END_S = 8.0
"""The end of a broker takes no longer: its drain, and the farewell of its sessions."""
_VERDICT_S = 1.0
"""How long a cancelled call waits to hear from the other loop what became of it."""


def _closed() -> TicketError:
    return TicketError(TicketErrorKind.CLOSED, "the broker's event loop was closed")


class LoopThread:
    """An event loop that runs on a daemon thread until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="ticketing-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            _ending.discard(self)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def end_with(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Has something done, after which loop and thread end; does not wait for it. The interpreter's end does."""
        _ending.add(self)
        self.loop.call_soon_threadsafe(self._end_with, work)

    def _end_with(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._last = self.loop.create_task(work())
        self._last.add_done_callback(lambda _: self.loop.stop())

    def join(self, timeout_s: float) -> None:
        """Waits for the end of the thread."""
        self._thread.join(timeout_s)

    def stop(self) -> None:
        """Ends loop and thread, and waits for it a moment."""
        if not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(self.loop.stop)
            except RuntimeError:
                return  # closed just now
        if not self.is_current:
            self._thread.join(2)


_ending: set[LoopThread] = set()
"""Those that nobody waits for, up to their end."""


def join_ending() -> None:
    """Waits for what they still have to do: they are daemons, which the interpreter would stop in the middle of it."""
    for thread in list(_ending):
        thread.join(_END_S)


class Call(Generic[T]):
    """One coroutine that runs on another thread's loop. Its state changes on that loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], Coroutine[Any, Any, T]],
        unwanted: Callable[[T], None] | None,
    ) -> None:
        self._loop = loop
        self._make: Callable[[], Coroutine[Any, Any, T]] | None = make
        self._unwanted = unwanted
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            loop.call_soon_threadsafe(self._start)
        except RuntimeError:
            raise _closed() from None

    def _start(self) -> None:
        # A call is part of a cycle with its outcome's callbacks, and must not keep what it is about.
        make, self._make = self._make, None
        if self._abandoned:
            self.outcome.set_exception(asyncio.CancelledError())
            return
        assert make is not None
        self._task = self._loop.create_task(make())
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            try:
                task.result()
            except asyncio.CancelledError as cancelled:
                # Not abandoned, so its loop went away under it.
                kept = self._abandoned or isinstance(cancelled, TicketError)
                self.outcome.set_exception(cancelled if kept else _closed())
            return
        error = task.exception()
        if error is not None:
            self.outcome.set_exception(error)
            return
        if self._abandoned and self._unwanted is not None:
            self._unwanted(task.result())
        self.outcome.set_result(task.result())

    def abandon(self) -> None:
        """The caller is gone, whatever came or comes of it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and all its sessions with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._abandoned:
            return
        self._abandoned = True
        task = self._task
        if task is None:
            return
        if not task.done():
            task.cancel()
        elif self.outcome.done() and self._unwanted is not None and self.outcome.exception() is None:
            # It arrived while its caller was leaving. Where `_done` has yet to run, that sees to it.
            self._unwanted(self.outcome.result())

    def _stopped(self) -> TicketError:
        text = "the broker's event loop has stopped running"
        if self._task is None:
            return TicketError(TicketErrorKind.CLOSED, f"{text}; nothing was sent")
        text = f"{text}; what was sent has no answer, and is given back if it runs again"
        return TicketError(TicketErrorKind.INDETERMINATE, text)

    def wait(self) -> T:
        """Blocks until the outcome is there. Left by an exception (Ctrl-C), it counts as cancelled."""
        stopped = 0
        try:
            while True:
                try:
                    return self.outcome.result(_POLL_S)
                except concurrent.futures.TimeoutError:
                    if self.outcome.done():
                        raise
                    if self._loop.is_closed():
                        raise _closed() from None
                    stopped = 0 if self._loop.is_running() else stopped + 1
                    if stopped >= _STOPPED_POLLS:
                        raise self._stopped() from None
        except BaseException:
            if not self.outcome.done() or self.outcome.exception() is None:
                self.abandon()
            raise


async def hop(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], Coroutine[Any, Any, T]],
    unwanted: Callable[[T], None] | None,
) -> T:
    """Runs a coroutine on another loop and awaits it from this one."""
    call = Call(loop, make, unwanted)
    arrived = _arrival(call)
    try:
        await asyncio.shield(arrived)
    except BaseException as error:
        call.abandon()
        if isinstance(error, asyncio.CancelledError):
            await _verdict(call, arrived, error)
        raise
    return call.outcome.result()


def _arrival(call: Call[T]) -> asyncio.Future[None]:
    here = asyncio.get_running_loop()
    arrived = here.create_future()

    def tell(_: concurrent.futures.Future[T]) -> None:
        try:
            here.call_soon_threadsafe(_set, arrived)
        except RuntimeError:
            call.abandon()  # nobody is here any more

    call.outcome.add_done_callback(tell)
    return arrived


async def _verdict(call: Call[T], arrived: asyncio.Future[None], error: asyncio.CancelledError) -> None:
    """Raises what the cancelled call ended with over there, unless it was plainly cancelled."""
    with contextlib.suppress(asyncio.CancelledError):  # cancelled once more: without the verdict
        await asyncio.wait([arrived], timeout=_VERDICT_S)
    failure = call.outcome.exception() if call.outcome.done() else None
    if isinstance(failure, IndeterminateCancelledError):
        raise failure from error
    if failure is None and call._unwanted is not None:
        text = "the call was cancelled; what it may have acquired is given back in the background"
        raise IndeterminateCancelledError(TicketErrorKind.INDETERMINATE, text) from error


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
