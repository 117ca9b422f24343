"""Machines of a network of their own: one namespace each, names that all of them know, and one wire."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_NAMES = Path("/etc/netns")
"""`ip netns exec NAME` lays the files of `NAME/` here over those of /etc."""


class Network:
    """Namespaces on one bridge. The first is the operator's and has the bridge."""

    def __init__(self, operator: str, hosts: Sequence[str]) -> None:
        self._id = secrets.token_hex(3)
        self._addresses = {
            name: f"10.77.0.{number}" for number, name in enumerate((operator, *hosts), start=1)
        }
        self._operator = operator

    def namespace(self, host: str) -> str:
        return f"tk-{self._id}-{list(self._addresses).index(host)}"

    def prefix(self, host: str) -> list[str]:
        """What stands before a command that is to run on that host; the process it starts is the command's own."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def make(self) -> None:
        names = "".join(f"{address} {host}\n" for host, address in self._addresses.items())
        for host in self._addresses:
            folder = _NAMES / self.namespace(host)
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            _ip("netns", "add", self.namespace(host))
            self._in(host, "link", "set", "lo", "up")
        operator = self._operator
        self._in(operator, "link", "add", "wire", "type", "bridge", "forward_delay", "0")
        self._in(operator, "addr", "add", f"{self._addresses[operator]}/24", "dev", "wire")
        self._in(operator, "link", "set", "wire", "up")
        for number, (host, address) in enumerate(self._addresses.items()):
            if host == operator:
                continue
            here = self.namespace(operator)
            self._in(
                host, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", here
            )
            self._in(operator, "link", "set", f"port{number}", "master", "wire", "up")
            self._in(host, "addr", "add", f"{address}/24", "dev", "eth0")
            self._in(host, "link", "set", "eth0", "up")

    def cut(self, host: str) -> None:
        """The host's cable is pulled out."""
        self._in(host, "link", "set", "eth0", "down")

    def mend(self, host: str) -> None:
        self._in(host, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Whatever of it was made. The processes in it have to be over."""
        for host in self._addresses:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.namespace(host))
            shutil.rmtree(_NAMES / self.namespace(host), ignore_errors=True)
        with contextlib.suppress(OSError):
            _NAMES.rmdir()

    def _in(self, host: str, *words: str) -> None:
        _ip("-n", self.namespace(host), *words)


def _ip(*words: str) -> None:
    subprocess.run(
        ["ip", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
        env={**os.environ, "LC_ALL": "C"},
    )


@contextlib.contextmanager
def network(operator: str, hosts: Sequence[str]) -> Iterator[Network]:
    """A network that is gone afterwards, whatever happens."""
    made = Network(operator, hosts)
    try:
        made.make()
        yield made
    finally:
        made.remove()
