"""What is done to the wire reaches packets of standing connections and of new ones, one way or both."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.needs import need_chaos
from tests.chaos.network import CUT, RESET, Network, enter, lost, network
from tests.chaos.run import forwarder_process
from tests.e2e.cluster import PROJECT

PORT = 7000
SOON_S = 0.3
"""What is not there after so long was cut; what is there comes within a millisecond on a good wire."""
PATIENCE_S = 20.0


@pytest.fixture
def wires() -> Iterator[Network]:
    need_chaos()
    with network(["a", "b"]) as made:
        yield made


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def socket_in(
    wires: Network,
    machine: str,
    opened: contextlib.ExitStack,
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> socket.socket:
    """A socket of that machine: it stays in the namespace in which it was made."""
    made: list[socket.socket] = []

    def make() -> None:
        enter(wires.namespace(machine))
        made.append(socket.socket(socket.AF_INET, kind))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    (found,) = made
    found.settimeout(PATIENCE_S)
    return opened.enter_context(found)


class Pair:
    """A connection from a to b."""

    def __init__(self, wires: Network, opened: contextlib.ExitStack) -> None:
        listener = socket_in(wires, "b", opened)
        listener.bind((wires.address("b"), PORT))
        listener.listen()
        self.a = socket_in(wires, "a", opened)
        self.a.connect((wires.address("b"), PORT))
        accepted, _ = listener.accept()
        self.b = opened.enter_context(accepted)
        self.b.settimeout(PATIENCE_S)


def arrives(source: socket.socket, target: socket.socket, within_s: float = PATIENCE_S) -> bool:
    """Whether one more byte does."""
    source.send(b".")
    target.settimeout(within_s)
    try:
        return target.recv(1) == b"."
    except TimeoutError:
        return False


def connects(wires: Network, opened: contextlib.ExitStack, source: str, target: str) -> bool:
    """Whether a new connection reaches the other machine, where nobody listens: it is refused then."""
    fresh = socket_in(wires, source, opened)
    fresh.settimeout(SOON_S)
    try:
        fresh.connect((wires.address(target), PORT + 1))
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False
    raise AssertionError("somebody listens there")


def test_a_cut_drops_what_stands_and_what_is_new_and_one_way_only(
    wires: Network, opened: contextlib.ExitStack
) -> None:
    pair = Pair(wires, opened)
    assert arrives(pair.a, pair.b)
    wires.rule([("a", "b")], CUT)
    assert not arrives(pair.a, pair.b, SOON_S)
    assert arrives(pair.b, pair.a), "the other way is as it was"
    assert not connects(wires, opened, "a", "b")
    assert not connects(wires, opened, "b", "a"), "nor can it answer"
    wires.rule([("a", "b")], CUT)
    wires.mend([("a", "b")], CUT)
    assert not connects(wires, opened, "a", "b"), "two have cut it, and one of them has mended it"
    wires.mend([("a", "b")], CUT)
    pair.b.settimeout(PATIENCE_S)
    assert pair.b.recv(1) == b".", "what was sent meanwhile comes after all"
    assert connects(wires, opened, "a", "b")


def test_a_share_of_the_packets_is_lost(wires: Network, opened: contextlib.ExitStack) -> None:
    wires.rule([("a", "b")], lost(50))
    target = socket_in(wires, "b", opened, socket.SOCK_DGRAM)
    target.bind((wires.address("b"), PORT))
    source = socket_in(wires, "a", opened, socket.SOCK_DGRAM)
    source.connect((wires.address("b"), PORT))
    for _ in range(400):
        source.send(b".")
    target.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while target.recv(1):
            count += 1
    assert 120 < count < 280


def test_a_reset_ends_connections(wires: Network, opened: contextlib.ExitStack) -> None:
    pair = Pair(wires, opened)
    wires.rule([("a", "b")], RESET)
    pair.a.send(b".")
    with pytest.raises(ConnectionResetError):
        pair.a.recv(1)
    wires.mend([("a", "b")], RESET)
    assert connects(wires, opened, "a", "b")


def test_a_slow_path_takes_its_time_one_way(wires: Network, opened: contextlib.ExitStack) -> None:
    pair = Pair(wires, opened)
    with forwarder_process(1, wires) as forwarder:
        forwarder.set_path(wires.address("a"), wires.address("b"), delay_ms=200)
        wires.slow([("a", "b")])
        began = time.monotonic()
        assert arrives(pair.a, pair.b)
        assert time.monotonic() - began >= 0.2
        began = time.monotonic()
        assert connects_slowly(wires, opened)
        assert time.monotonic() - began >= 0.2
        wires.quick([("a", "b")])
    assert arrives(pair.a, pair.b), "it goes straight again, without the forwarder"


def connects_slowly(wires: Network, opened: contextlib.ExitStack) -> bool:
    fresh = socket_in(wires, "a", opened)
    with pytest.raises(ConnectionRefusedError):
        fresh.connect((wires.address("b"), PORT + 1))
    return True


def test_namespaces_of_a_run_that_was_killed_are_removed_by_the_next(wires: Network) -> None:
    program = (
        "import os, signal\n"
        "from tests.chaos.network import Network\n"
        "made = Network(['a', 'b'])\n"
        "made.make()\n"
        "print(made.namespace('a'), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    left = Path("/run/netns") / killed.stdout.strip()
    assert left.name.startswith("ticketing-chaos-"), killed
    assert left.exists()
    with network(["c"]) as other:
        assert not left.exists()
        assert Path("/run/netns", other.namespace("c")).exists()
        assert Path("/run/netns", wires.namespace("a")).exists(), "those of runs that live stay"
    assert not Path("/run/netns", other.namespace("c")).exists()
