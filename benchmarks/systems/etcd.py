"""etcd, three members, their data in memory or on disk with fsync: its Lock service by gRPC.

The Lock service is one call to acquire and one to release (api/v3lock in its source). No Python client has it, so its
messages, of one or two fields each, are written by hand here; the channel is grpc.aio. A lock belongs to an etcd
lease, and the same lease takes the same lock again at once, so each caller has a lease of its own.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any, ClassVar, NamedTuple

from benchmarks.peers import package_version
from benchmarks.systems.peer import Peer, first_line
from benchmarks.systems.processes import HOST, ServerProcess, free_ports, wait_until

LEASE_S = 600
MEMBERS = 3


class Etcd(Peer):
    """Three members whose data folder is in memory: fsync costs nothing, and a lost host loses its data."""

    name = "etcd-memory"
    title = "etcd, 3 nodes, in memory"
    promises = "order of arrival, a lease, revisions that can fence; Raft, here without a disk"
    fifo = True

    def __enter__(self) -> Etcd:
        ports = free_ports(2 * MEMBERS)
        self.ports, peers = ports[:MEMBERS], ports[MEMBERS:]
        everybody = ",".join(f"node{n}=http://{HOST}:{port}" for n, port in enumerate(peers))
        for number, (client, peer) in enumerate(zip(self.ports, peers, strict=True)):
            here, there = f"http://{HOST}:{client}", f"http://{HOST}:{peer}"
            self.run(
                *("etcd", "--name", f"node{number}", "--data-dir", str(self.folder / f"node{number}")),
                *("--listen-client-urls", here, "--advertise-client-urls", here),
                *("--listen-peer-urls", there, "--initial-advertise-peer-urls", there),
                *("--initial-cluster", everybody, "--initial-cluster-token", self.folder.name),
                *("--logger", "zap", "--log-level", "error"),
            )
        wait_until(lambda: self.leader() is not None, self.title, self.processes)
        return self

    def target(self) -> dict[str, Any]:
        return {"ports": self.ports}

    def leader(self) -> ServerProcess | None:
        """The process that says of itself that it leads."""
        for port, process in zip(self.ports, self.processes, strict=True):
            try:
                status = _post(port, "/v3/maintenance/status")
            except OSError:
                continue
            if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                return process
        return None

    def version(self) -> str:
        server = first_line(["etcd", "--version"]).split(": ")[1]
        return f"etcd {server}, grpcio {package_version('grpcio')}"


class EtcdFsync(Etcd):
    """Three members on one disk, each write synced before it is answered."""

    name = "etcd-fsync"
    title = "etcd, 3 nodes, fsync"
    promises = (
        "order of arrival, a lease, revisions that can fence; Raft on disk: survives a loss of all power"
    )
    on_disk = True


def _post(port: int, path: str) -> Any:
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", data=b"{}", method="POST")
    with urllib.request.urlopen(request, timeout=1) as answer:
        return json.load(answer)


class Grant(NamedTuple):
    """A lock and the lease it hangs on."""

    key: bytes
    lease: int


class LockClient:
    """A channel to all members; leases are kept and used again, one a caller at a time."""

    style: ClassVar[str] = "async"

    def __init__(self, target: dict[str, Any]) -> None:
        self._ports: list[int] = target["ports"]
        self._leases: list[int] = []

    async def open(self) -> None:
        import grpc.aio

        addresses = ",".join(f"{HOST}:{port}" for port in self._ports)
        self._channel = grpc.aio.insecure_channel(f"ipv4:{addresses}")
        self._lock = self._channel.unary_unary("/v3lockpb.Lock/Lock")
        self._unlock = self._channel.unary_unary("/v3lockpb.Lock/Unlock")
        self._grant = self._channel.unary_unary("/etcdserverpb.Lease/LeaseGrant")
        await self.release(await self.acquire("first"))

    async def acquire(self, key: str) -> Grant:
        lease = self._leases.pop() if self._leases else await self._new_lease()
        # LockRequest: name = 1, lease = 2. LockResponse: header = 1, key = 2.
        answer = await self._lock(text_field(1, key.encode()) + number_field(2, lease))
        return Grant(fields(answer)[2], lease)

    async def release(self, grant: Grant) -> None:
        # UnlockRequest: key = 1.
        await self._unlock(text_field(1, grant.key))
        self._leases.append(grant.lease)

    async def _new_lease(self) -> int:
        # LeaseGrantRequest: TTL = 1. LeaseGrantResponse: header = 1, ID = 2, TTL = 3.
        lease = fields(await self._grant(number_field(1, LEASE_S)))[2]
        assert isinstance(lease, int)
        return lease

    async def close(self) -> None:
        await self._channel.close()


# Protocol buffers as far as these messages need them (their encoding guide: varint, length-delimited).


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number_field(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def text_field(field: int, text: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(text)) + text


def fields(message: bytes) -> dict[int, Any]:
    """The fields of a message: numbers, and bytes that may be text or a message."""
    found: dict[int, Any] = {}
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        field, kind = divmod(number(), 8)
        if kind == 0:
            found[field] = number()
        elif kind == 2:
            size = number()
            found[field] = message[position : position + size]
            position += size
        else:
            raise ValueError(f"a field of wire type {kind}")
    return found
