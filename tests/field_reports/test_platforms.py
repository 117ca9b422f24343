"""Where POSIX is missing elsewhere ends the program (field report F150)."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.e2e.cluster import PROJECT, NodeProcess

PROGRAM = """
import asyncio, os, signal, socket, sys, time

for module in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[module] = None
for name in ("fork", "register_at_fork", "getpgid", "killpg", "geteuid"):
    delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL"):
    delattr(signal, name)
for name in [name for name in dir(time) if name.startswith(("CLOCK_", "clock_gettime"))]:
    delattr(time, name)


def missing(*_):
    raise NotImplementedError


asyncio.BaseEventLoop.add_signal_handler = missing
asyncio.SelectorEventLoop.add_signal_handler = missing
sys.platform = "win32"

from ticketing.client import TicketBroker


async def main(address, token):
    async with TicketBroker([address], token=token) as broker:
        assert await broker.wait_ready(15)
        async with await broker.acquire("F150", 5, 30, 2) as ticket:
            assert await ticket.extend()
            assert 20 < ticket.conservative_remaining() <= 30
    with TicketBroker([address], token=token) as broker:
        with broker.acquire_sync("F150", 5, 30, 2) as after:
            assert after.token > ticket.token


asyncio.run(main(sys.argv[1], os.environ["TOKEN"]))
print("done")
"""


def test_the_client_works_where_posix_is_missing(node: NodeProcess) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, node.client],
        cwd=PROJECT,
        env=os.environ | {"TOKEN": node.client_token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
