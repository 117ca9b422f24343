"""Machines of a network of their own: a namespace each, one wire, and what can be wrong with it.

A cut, a loss or a reset is a rule of nftables where packets of a certain source arrive: it meets packets of standing
connections and of new ones alike, and either direction can be cut alone. A slow path leads through a TUN device to
`tests.chaos.forwarder`, which delays, overtakes, loses and doubles packets.

Names hold the id of this process, so that runs can live beside each other; `remove` takes away all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

from tests.chaos.forwarder import DEVICE

SWITCH = "switch"
"""The machine that has the bridge, and nothing else."""
CUT = "drop"
RESET = "meta l4proto tcp reject with tcp reset"
"""As by a firewall that has forgotten the connection."""
_CLONE_NEWNET = 0x4000_0000
_FOLDER = Path("/run/netns")
_PREFIX = "ticketing-chaos-"


def lost(percent: int) -> str:
    """So many of a hundred packets are lost."""
    return f"numgen random mod 100 < {percent} drop"


class Network:
    """Namespaces on one bridge."""

    def __init__(self, machines: Sequence[str]) -> None:
        self._run = f"{os.getpid()}.{next(_numbers)}"
        self._addresses = {name: f"10.91.7.{number}" for number, name in enumerate(machines, start=1)}
        self._rules: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in machines}
        """By machine: source and action, and how many want it done to packets from there that arrive."""
        self._slow: Counter[tuple[str, str]] = Counter()

    @property
    def machines(self) -> list[str]:
        return list(self._addresses)

    def address(self, machine: str) -> str:
        return self._addresses[machine]

    def namespace(self, machine: str) -> str:
        return f"{_PREFIX}{self._run}-{machine}"

    def prefix(self, machine: str) -> list[str]:
        """What stands before a command that is to run there; the process it starts is the command's own."""
        return ["ip", "netns", "exec", self.namespace(machine)]

    # --- made and removed

    def make(self) -> None:
        remove_left_over()
        _ip("netns", "add", self.namespace(SWITCH))
        self._in(SWITCH, "link", "add", "wire", "type", "bridge", "forward_delay", "0")
        self._in(SWITCH, "link", "set", "wire", "up")
        for number, (machine, address) in enumerate(self._addresses.items(), start=1):
            _ip("netns", "add", self.namespace(machine))
            self._in(machine, "link", "set", "lo", "up")
            port = f"port{number}"
            peer = self.namespace(SWITCH)
            self._in(machine, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", peer)
            self._in(SWITCH, "link", "set", port, "master", "wire", "up")
            self._in(machine, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(machine, "link", "set", "eth0", "up")
            # What comes by one way and is answered by another is not forged here.
            for where in ("all", "default"):
                self._write(machine, f"/proc/sys/net/ipv4/conf/{where}/rp_filter", "0")
            self._nft(machine, f"add table inet {_TABLE}; add chain inet {_TABLE} {_CHAIN} {_HOOK}")

    def remove(self) -> None:
        """Whatever of it was made. The processes in it have to be over."""
        for machine in (*self._addresses, SWITCH):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.namespace(machine))

    # --- what is wrong with the wire

    def rule(self, paths: Iterable[tuple[str, str]], action: str) -> None:
        """Has it done (`CUT`, `RESET`, `lost(…)`) to packets of each source that arrive at its target; the other
        direction is as it was.
        """
        touched = set()
        for source, target in paths:
            self._rules[target][source, action] += 1
            touched.add(target)
        self._apply(touched)

    def mend(self, paths: Iterable[tuple[str, str]], action: str) -> None:
        """Takes such a rule back. What others have done to the same path stays."""
        touched = set()
        for source, target in paths:
            self._rules[target][source, action] -= 1
            touched.add(target)
        self._apply(touched)

    def slow(self, paths: Iterable[tuple[str, str]]) -> None:
        """Packets of these directions go through the forwarder."""
        for source, target in paths:
            self._slow[source, target] += 1
            if self._slow[source, target] == 1:
                self._route("add", source, target)

    def quick(self, paths: Iterable[tuple[str, str]]) -> None:
        """They go straight again, where nobody else slows them; what is under way still arrives."""
        for source, target in paths:
            self._slow[source, target] -= 1
            if self._slow[source, target] == 0:
                self._route("del", source, target)

    def _route(self, verb: str, source: str, target: str) -> None:
        way = ("dev", DEVICE, "src", self.address(source))
        self._in(source, "route", verb, f"{self.address(target)}/32", *way)

    def _apply(self, targets: Iterable[str]) -> None:
        for target in targets:
            rules = "".join(
                f"; add rule inet {_TABLE} {_CHAIN} ip saddr {self.address(source)} {action}"
                for (source, action), count in self._rules[target].items()
                if count > 0
            )
            # One transaction: there is no moment without the rules that stay.
            self._nft(target, f"flush chain inet {_TABLE} {_CHAIN}{rules}")

    # --- commands

    def device_up(self, machine: str) -> None:
        """The forwarder has made its device there."""
        self._in(machine, "link", "set", DEVICE, "up")

    def _in(self, machine: str, *words: str) -> None:
        _ip("-n", self.namespace(machine), *words)

    def _nft(self, machine: str, script: str) -> None:
        _run([*self.prefix(machine), "nft", script])

    def _write(self, machine: str, file: str, text: str) -> None:
        _run([*self.prefix(machine), "sh", "-c", f"echo {text} > {file}"])


_numbers = count(1)
_TABLE, _CHAIN = "chaos", "arriving"
_HOOK = "{ type filter hook input priority 0; policy accept; }"


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(words: Sequence[str]) -> None:
    subprocess.run(
        words, check=True, capture_output=True, text=True, timeout=60, env={**os.environ, "LC_ALL": "C"}
    )


def remove_left_over() -> None:
    """Namespaces of runs that were killed before they could remove them."""
    for file in _FOLDER.glob(f"{_PREFIX}*"):
        process = file.name.removeprefix(_PREFIX).partition(".")[0]
        if not Path(f"/proc/{process}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", file.name)


def enter(namespace: str) -> None:
    """Moves the calling thread into a namespace."""
    descriptor = os.open(_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def network(machines: Sequence[str]) -> Iterator[Network]:
    """A network that is gone afterwards, whatever happens."""
    made = Network(machines)
    try:
        made.make()
        yield made
    finally:
        made.remove()


_libc = ctypes.CDLL(None, use_errno=True)
