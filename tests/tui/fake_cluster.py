"""A cluster's admin planes on loopback, scripted: what they answer is what the test says. Run it to look."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from ticketing.cli.admin_client import AdminAccess

TOKEN = "admin-token"
FIRST_TOKEN = 1_883_295_221_547_008


@dataclass
class Waiter:
    owner: str
    name: str = "waiter/host/9"
    remote: str = "10.0.0.9:40000"
    waited_ms: int = 1_500
    wait_left_ms: int = 20_000
    lease_s: int = 30


@dataclass
class Lock:
    key: str
    token: int
    name: str = "shop/web-1/417"
    remote: str = "10.0.0.7:51544"
    owner: str = "13835058055282163712"
    lease_s: int = 30
    lease_left_ms: int = 21_000
    held_ms: int = 9_000
    renewal: int = 0
    waiters: list[Waiter] = field(default_factory=list)

    def shown(self, wall_ms: int) -> dict[str, Any]:
        first = self.waiters[0].waited_ms if self.waiters else None
        return {
            "key": self.key,
            "token": str(self.token),
            "owner": self.owner,
            "name": self.name,
            "remote": self.remote,
            "lease_s": self.lease_s,
            "lease_left_ms": self.lease_left_ms,
            "renewal": self.renewal,
            "granted_at_ms": wall_ms - self.held_ms,
            "waiting": len(self.waiters),
            "longest_wait_ms": first,
        }


class FakeNode:
    """One admin plane. `up` and `deaf` are changed by `FakeCluster`'s methods."""

    def __init__(self, cluster: FakeCluster, place: str, node_id: int) -> None:
        self.cluster = cluster
        self.place = place
        self.node_id = node_id
        self.address = ""
        self.deaf = asyncio.Event()
        self.deaf.set()
        self.runner: web.AppRunner | None = None
        self.asked: list[str] = []
        self.happened: asyncio.Queue[Any] = asyncio.Queue()
        """What goes to whoever reads its events."""
        self.readers = 0
        self.busy = 0
        self.busy_max = 0

    async def start(self, port: int = 0, *, lists: bool = True) -> None:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/v1/status", self._status)
        if lists:
            app.router.add_get("/v1/locks", self._locks)
        app.router.add_get("/v1/locks/{key}", self._lock)
        app.router.add_post("/v1/locks/{key}/revoke", self._revoke)
        app.router.add_get("/v1/members", self._members)
        if lists:
            app.router.add_get("/v1/events", self._events)
        app.router.add_post("/v1/members/{place}/replace", self._replace)
        app.router.add_post("/v1/transfer", self._transfer)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", port)
        await site.start()
        self.address = f"127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    @property
    def up(self) -> bool:
        return self.runner is not None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        self.busy += 1
        self.busy_max = max(self.busy_max, self.busy)
        try:
            await self.deaf.wait()
            if request.headers.get("Authorization") != f"Bearer {self.cluster.token}":
                return _error(401, "unauthorized", "the admin token is missing or wrong")
            if request.path != "/v1/status" and self.cluster.leader != self.place:
                return self._not_leader()
            try:
                answer: web.StreamResponse = await handler(request)
            except web.HTTPNotFound:
                return _error(404, "not_found", "Not Found")
            return answer
        finally:
            self.busy -= 1

    def _not_leader(self) -> web.Response:
        leader = self.cluster.nodes.get(self.cluster.leader or "")
        named = {"place": leader.place, "client": "", "admin": leader.address} if leader is not None else None
        return _json({"error": {"code": "not_leader", "message": "", "hint": "", "leader": named}}, 421)

    async def _status(self, _request: web.Request) -> web.Response:
        return _json(self.cluster.status(self))

    async def _locks(self, request: web.Request) -> web.Response:
        query, cluster = request.query, self.cluster
        limit = int(query.get("limit", "100"))
        if not 1 <= limit <= 1000:
            return _error(400, "bad_request", "limit is 1..1000")
        order, prefix = query.get("order", "key"), query.get("prefix", "")
        found = [lock for lock in cluster.by(order) if lock.key.startswith(prefix)]
        if order == "key":
            found = [lock for lock in found if lock.key > query.get("after", "")]
        page = found[:limit]
        following = page[-1].key if order == "key" and len(found) > limit else None
        return _json({"locks": [lock.shown(cluster.wall_ms) for lock in page], "next": following})

    async def _lock(self, request: web.Request) -> web.Response:
        lock = self.cluster.locks.get(request.match_info["key"])
        if lock is None:
            return _json({"lock": None, "waiters": [], "waiting": 0, "next": None})
        limit = int(request.query.get("limit", "100"))
        waiters = [vars(waiter) for waiter in lock.waiters[:limit]]
        following = "x" if len(lock.waiters) > limit else None
        shown = lock.shown(self.cluster.wall_ms) if lock.token else None
        return _json({"lock": shown, "waiters": waiters, "waiting": len(lock.waiters), "next": following})

    async def _revoke(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        key = request.match_info["key"]
        self.cluster.commands.append(("revoke", key, body))
        lock = self.cluster.locks.get(key)
        if lock is None or str(lock.token) != body["token"]:
            return _json({"revoked": False})
        del self.cluster.locks[key]
        return _json({"revoked": True})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.readers += 1
        try:
            while True:
                await response.write(msgspec.json.encode(await self.happened.get()) + b"\n\n")
        finally:
            self.readers -= 1

    async def _members(self, _request: web.Request) -> web.Response:
        return _json({"members": [], "changes": self.cluster.changes, "highest_node_id": "3"})

    async def _replace(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        self.cluster.commands.append(("replace", request.match_info["place"], body))
        return _json({"change": {}})

    async def _transfer(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        self.cluster.commands.append(("transfer", "", body))
        if self.cluster.refuses:
            return _error(409, "no_transfer", self.cluster.refuses)
        return _json({"accepted": True})


class FakeCluster:
    """Some nodes, one of which leads."""

    def __init__(self, places: int = 3) -> None:
        self.nodes = {f"node-{n}": FakeNode(self, f"node-{n}", n) for n in range(1, places + 1)}
        self.leader: str | None = "node-1"
        self.token = TOKEN
        self.term = 4
        self.locks: dict[str, Lock] = {}
        self.counters: dict[str, int] = {"lock_granted": 0, "lock_handed_over": 0, "lock_timeout": 0}
        self.gate = "open"
        self.wall_ms = 1_796_051_000_000
        self.commands: list[tuple[str, str, dict[str, Any]]] = []
        self.changes: list[dict[str, Any]] = []
        self.refuses = ""
        self.odd: dict[str, Any] = {}
        """Laid over every status."""
        self._orders: dict[str, list[Lock]] = {}

    async def __aenter__(self) -> FakeCluster:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.deaf.set()
            await node.stop()

    def access(self) -> AdminAccess:
        return AdminAccess(tuple((node.place, node.address) for node in self.nodes.values()), TOKEN)

    # --- the script

    def hold(self, *locks: Lock) -> None:
        for lock in locks:
            self.locks[lock.key] = lock

    def hold_many(self, count: int) -> None:
        """Many locks, in orders that are made once: a fake must not be what a benchmark measures."""
        self.hold(*(Lock(f"event/{n:06d}", FIRST_TOKEN + n) for n in range(count)))
        self._orders = {order: self.by(order) for order in ("queue", "age", "lease_left", "key")}

    def by(self, order: str) -> list[Lock]:
        if order in self._orders:
            return self._orders[order]
        locks = list(self.locks.values())
        if order == "queue":
            locks = [lock for lock in locks if lock.waiters]
            return sorted(locks, key=lambda lock: (-len(lock.waiters), lock.key))
        if order == "age":
            return sorted(locks, key=lambda lock: lock.token)
        if order == "lease_left":
            return sorted(locks, key=lambda lock: lock.lease_left_ms)
        return sorted(locks, key=lambda lock: lock.key.encode())

    async def kill(self, place: str) -> None:
        await self.nodes[place].stop()
        if self.leader == place:
            self.leader = None

    def elect(self, place: str, *, terms: int = 1) -> None:
        self.leader = place
        self.term += terms

    def status(self, node: FakeNode) -> dict[str, Any]:
        leads = self.leader == node.place
        living = sum(other.up for other in self.nodes.values()) or len(self.nodes) - 1
        facts: dict[str, Any] = {
            "format": 1,
            "version": "0.1.0",
            "place": node.place,
            "standalone": False,
            "node_id": str(node.node_id),
            "incarnation": str(1_000 + node.node_id),
            "domain": f"{FIRST_TOKEN}.0123456789abcdef",
            "wall_ms": self.wall_ms,
            "role": "leader" if leads else "follower",
            "serving": leads,
            "leader": None,
            "stopping": False,
            "serves_in_s": 0,
            "membership": {"state": "", "waiting_for": []},
            "sessions": {"open": 12, "unauthenticated": 0},
            "counters": dict(self.counters) if leads else {},
            "clock": {
                "gate": self.gate,
                "delta_ms": 500,
                "peers": [
                    {"place": other.place, "verdict": "inside", "difference_ms": 0.4, "error_ms": 0.2}
                    for other in self.nodes.values()
                    if other is not node
                ],
            },
            "raft": {
                "term": str(self.term),
                "commit_index": "104233",
                "applied_index": "104233",
                "last_index": "104233",
                "joint": False,
                "transferring": False,
                "redundancy": living - (len(self.nodes) // 2 + 1),
                "members": [
                    {
                        "place": other.place,
                        "node_id": str(other.node_id),
                        "role": "voter",
                        "admin": other.address,
                        "linked": other.up,
                        "lag": 0 if leads else None,
                    }
                    for other in self.nodes.values()
                ],
            },
            "locks": {"held": len(self.locks), "next_token": str(FIRST_TOKEN + 5_000)},
            "process": {
                "client_connections": 12,
                "loop_busy": 0.07,
                "certificate_ends_ms": self.wall_ms + 300 * 86_400_000,
            },
        }
        if leads:
            waited = [len(lock.waiters) for lock in self.locks.values() if lock.waiters]
            facts["locks"] |= {"waiting": sum(waited), "keys_waited_for": len(waited)}
        return facts | self.odd


def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _error(status: int, code: str, message: str) -> web.Response:
    return _json({"error": {"code": code, "message": message, "hint": ""}}, status)


def crowd(key: str, token: int, waiters: int) -> Lock:
    """A key with a queue."""
    queue = [
        Waiter(str(2**63 + n), f"shop/web-{n % 9}/{400 + n}", f"10.0.0.{n % 250}:5{n:04d}", 60_000 - 40 * n)
        for n in range(waiters)
    ]
    return Lock(key, token, waiters=queue)


def _write_admin_file(text: str) -> Path:
    folder = Path(tempfile.gettempdir()) / "ticketing-fake"
    folder.mkdir(exist_ok=True)
    file = folder / "admin.toml"
    file.write_text(text)
    file.chmod(0o600)
    return folder


async def _serve() -> None:
    """For eyes: a lively fake cluster until it is interrupted."""
    async with FakeCluster() as cluster:
        cluster.hold(crowd("event/2026/seat/A-12", FIRST_TOKEN + 900, 1_000))
        cluster.hold(crowd("[bold red]x[/] [@click=app.quit]y", FIRST_TOKEN + 3, 7))
        cluster.hold(
            crowd("좌석/가나다라/あいうえお", FIRST_TOKEN + 4, 3), crowd("שלום/עולם", FIRST_TOKEN + 5, 2)
        )
        cluster.hold(Lock("e\u0301te\u0301/\u202eevil\x1b[2J", FIRST_TOKEN + 6))
        cluster.hold(*(Lock(f"stock/{n}", FIRST_TOKEN + 10 + n, lease_left_ms=n * 300) for n in range(200)))
        nodes = "".join(
            f'\n[[nodes]]\nname = "{n.place}"\nadmin = "{n.address}"\n' for n in cluster.nodes.values()
        )
        folder = _write_admin_file(f'token = "{TOKEN}"\ntls = "off"\n{nodes}')
        print(f"ticketing top --admin-config {folder}/admin.toml", flush=True)
        began = time.monotonic()
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(0.2)
                cluster.counters["lock_granted"] += 50 + int(time.monotonic() * 10) % 37
                cluster.counters["lock_timeout"] += int(time.monotonic()) % 3
                if time.monotonic() - began > 1e9:
                    break


if __name__ == "__main__":
    asyncio.run(_serve())
