"""Signals as events of the loop, with where they came from: a terminal sends Ctrl-C to the child as well.

On Linux they are read from a signalfd, which tells a signal of the kernel's (a terminal's) from one that a process
sent. Elsewhere an ordinary handler is used, and Ctrl-C counts as the terminal's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterable

_INFO_BYTES = 128
_SI_KERNEL = 0x80
_SFD_NONBLOCK = os.O_NONBLOCK
_SFD_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_SIGSET_BYTES = 128

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

OnSignal = Callable[[int, bool], None]
"""Called with the number, and whether the terminal sent it."""


class SignalRelay:
    """Takes signals over from the moment it is made until `close`. Signals ignored until then stay ignored (nohup)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        numbers: Iterable[int],
        on_signal: OnSignal,
        *,
        senders: bool = True,
    ) -> None:
        """Has to be made before the program starts threads: these take over its signal mask.

        `senders`: who sent a signal matters. Where it does not, an ordinary handler is the quicker way.
        """
        self._loop = loop
        self._numbers = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        self._on_signal = on_signal
        self._descriptor = -1
        self.former_mask: set[int] | None = None
        """What a child's mask has to be set to; None: nothing was changed."""
        if senders and sys.platform.startswith("linux"):
            self.former_mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers))
            self._descriptor = _signalfd(self._numbers)
            loop.add_reader(self._descriptor, self._read)
        else:
            for number in self._numbers:
                loop.add_signal_handler(number, on_signal, number, number in (signal.SIGINT, signal.SIGQUIT))

    def close(self) -> None:
        """Gives the signals back; a second time is harmless. What is still pending then takes its usual effect."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            signal.pthread_sigmask(signal.SIG_SETMASK, self.former_mask or ())
        elif self.former_mask is None:
            for number in self._numbers:
                self._loop.remove_signal_handler(number)
            self._numbers = []

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while content := os.read(self._descriptor, _INFO_BYTES):
                number, _errno, code = struct.unpack_from("Iii", content)
                self._on_signal(number, code == _SI_KERNEL)
                if self._descriptor < 0:
                    return


def _signalfd(numbers: Iterable[int]) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    libc.sigemptyset(mask)
    for number in numbers:
        libc.sigaddset(mask, int(number))
    descriptor: int = libc.signalfd(-1, mask, _SFD_NONBLOCK | _SFD_CLOEXEC)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor
