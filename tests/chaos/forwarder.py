"""Slow paths: `python -m tests.chaos.forwarder SEED NAMESPACE=ADDRESS …` moves packets between TUN devices.

It makes a device in each namespace, says so with a line, and then takes one path a line from its input:
`{"source", "target", "delay_ms", "jitter_ms", "in_order", "loss", "twice", "bytes_per_s"}`. Each packet of the path is
held back for delay ± jitter; where the order need not be kept, packets overtake each other. `loss` and `twice` are
shares of 1; `bytes_per_s` 0 is as fast as it goes. A path that was never named is passed on at once. What would wait
behind more than `WAITING_MAX` packets is lost, as in any router. It ends with its input.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import select
import struct
import sys
import time
from random import Random
from typing import IO, NamedTuple

DEVICE = "slow0"
WAITING_MAX = 20_000
"""Packets under way."""
_QUEUE_MAX_S = 1.0
"""What a narrow path keeps; more is lost."""
_TUNSETIFF = 0x4004_54CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET_MAX = 65_536
_SOURCE, _TARGET = slice(12, 16), slice(16, 20)
"""Of an IPv4 header."""


class Path(NamedTuple):
    """How packets of one direction fare."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    in_order: bool = True
    loss: float = 0.0
    twice: float = 0.0
    bytes_per_s: float = 0.0


class Forwarder:
    """Decides for each packet when it arrives, if at all. Times are seconds of the caller's clock."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._paths: dict[tuple[bytes, bytes], Path] = {}
        self._free_at: dict[tuple[bytes, bytes], float] = {}
        """When a narrow path has sent what it has."""
        self._last_at: dict[tuple[bytes, bytes], float] = {}
        self._due: list[tuple[float, int, bytes]] = []
        self._number = 0

    def set_path(self, source: bytes, target: bytes, path: Path) -> None:
        self._paths[source, target] = path

    def take(self, packet: bytes, now: float) -> None:
        """A packet has left its machine."""
        ends = packet[_SOURCE], packet[_TARGET]
        path = self._paths.get(ends, _STRAIGHT)
        if len(self._due) >= WAITING_MAX or self._rng.random() < path.loss:
            return
        at = now
        if path.bytes_per_s:
            at = max(now, self._free_at.get(ends, now)) + len(packet) / path.bytes_per_s
            if at > now + _QUEUE_MAX_S:
                return
            self._free_at[ends] = at
        at += max(0.0, path.delay_s + self._rng.uniform(-path.jitter_s, path.jitter_s))
        if path.in_order:
            at = self._last_at[ends] = max(at, self._last_at.get(ends, at))
        self._put(at, packet)
        if self._rng.random() < path.twice:
            self._put(at + path.jitter_s * self._rng.random(), packet)

    def _put(self, at: float, packet: bytes) -> None:
        self._number += 1
        heapq.heappush(self._due, (at, self._number, packet))

    def due(self, now: float) -> list[bytes]:
        """The packets that arrive now, in their order."""
        found = []
        while self._due and self._due[0][0] <= now:
            found.append(heapq.heappop(self._due)[2])
        return found

    def next_at(self) -> float | None:
        """When the next packet arrives."""
        return self._due[0][0] if self._due else None


_STRAIGHT = Path()


class Paths:
    """What tells the process of its paths."""

    def __init__(self, told: IO[bytes]) -> None:
        self._told = told

    def set_path(self, source: str, target: str, **path: float | bool) -> None:
        """How packets fare from now on that go through the forwarder; by default they are passed on at once."""
        facts: dict[str, object] = {
            "source": source,
            "target": target,
            "delay_ms": 0,
            "jitter_ms": 0,
            "in_order": True,
            "loss": 0.0,
            "twice": 0.0,
            "bytes_per_s": 0,
        }
        self._told.write(json.dumps(facts | path).encode() + b"\n")
        self._told.flush()


def open_device() -> int:
    """A TUN device in the namespace of the calling thread."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def main(arguments: list[str]) -> None:
    from tests.chaos.network import enter

    seed, *places = arguments
    devices: dict[bytes, int] = {}
    for place in places:
        namespace, _, address = place.partition("=")
        enter(namespace)
        devices[_packed(address)] = open_device()
    print("ready", flush=True)
    _forward(Forwarder(Random(int(seed))), devices)


def _forward(forwarder: Forwarder, devices: dict[bytes, int]) -> None:
    poll = select.poll()
    for device in devices.values():
        poll.register(device, select.POLLIN)
    poll.register(0, select.POLLIN)
    told = b""
    while True:
        next_at = forwarder.next_at()
        left_ms = None if next_at is None else max(0.0, (next_at - time.monotonic()) * 1000)
        for ready, _ in poll.poll(left_ms):
            if ready == 0:
                read = os.read(0, _PACKET_MAX)
                if not read:
                    return
                *lines, told = (told + read).split(b"\n")
                for line in lines:
                    _configure(forwarder, line)
            else:
                _drain(forwarder, ready)
        for packet in forwarder.due(time.monotonic()):
            if (target := devices.get(packet[_TARGET])) is not None:
                _deliver(target, packet)


def _drain(forwarder: Forwarder, device: int) -> None:
    while True:
        try:
            packet = os.read(device, _PACKET_MAX)
        except BlockingIOError:
            return
        if packet[:1] and packet[0] >> 4 == 4:
            forwarder.take(packet, time.monotonic())


def _deliver(device: int, packet: bytes) -> None:
    try:
        os.write(device, packet)
    except BlockingIOError:
        return  # its queue is full: lost, as any packet may be


def _configure(forwarder: Forwarder, line: bytes) -> None:
    told = json.loads(line)
    path = Path(
        told["delay_ms"] / 1000,
        told["jitter_ms"] / 1000,
        told["in_order"],
        told["loss"],
        told["twice"],
        told["bytes_per_s"],
    )
    forwarder.set_path(_packed(told["source"]), _packed(told["target"]), path)


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))


if __name__ == "__main__":
    main(sys.argv[1:])
