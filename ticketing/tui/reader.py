"""Asks the cluster, refresh by refresh: every node's status, and lists of the one that leads.

One `read` at a time, and of one node never more than one status question at a time. A node that is late (stopped,
behind a dead link) is not waited for again: its question stays out, the picture goes on without it, and the answer
counts when it comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ticketing.cli.admin_client import AdminAccess, AdminError
from ticketing.tui.model import (
    ChangeRow,
    ClusterView,
    KeyDetail,
    LockList,
    LockRow,
    NodeReading,
    Reading,
    change_rows,
    cluster_view,
    key_detail,
    lock_row,
    number,
    rows,
    serving_reading,
    table,
    text,
)
from ticketing.tui.planes import NotLeaderError, Planes, key_path
from ticketing.tui.want import Want

PATIENCE_S = 1.0
"""A refresh waits so long for a status; what comes later belongs to the next one."""

LIST_S = 1.5
"""And so long for lists."""

WALKED_PER_S = 20_000
"""A list by key, or with a filter, looks at every held key; it is asked for so rarely that the leader looks at no
more than so many a second (at 100,000 held keys: every five seconds)."""

MEMBERS_MAX = 16


@dataclass(slots=True)
class _Node:
    """What is known of one place."""

    place: str
    configured: str
    """Its address in `admin.toml`; empty for a place that only the members tell of."""
    address: str
    facts: dict[str, Any] | None = None
    facts_ns: int = 0
    error: str | None = None
    code: str = "unreachable"
    task: asyncio.Task[dict[str, Any]] | None = None
    asked_ns: int = 0
    late: bool = False


@dataclass(slots=True)
class _Lists:
    """The latest lists."""

    locks: LockList | None = None
    page: tuple[str, str, str] = ("", "", "")
    limit: int = 0
    detail: KeyDetail | None = None
    changes: tuple[ChangeRow, ...] = field(default=())


class Reader:
    """Follows one cluster through leader changes, node loss and replacement."""

    def __init__(
        self,
        access: AdminAccess,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`AdminError` where the CA file cannot be used."""
        self.planes = Planes(access.token, access.tls)
        self._clock_ns = clock_ns
        self._wall_ms = wall_ms
        self._patience_s = patience_s
        self._nodes = {place: _Node(place, address, address) for place, address in access.nodes}
        self._lists = _Lists()
        self._fresh_ns = 0

    async def aclose(self) -> None:
        """Gives up what is under way and ends all connections."""
        tasks = [node.task for node in self._nodes.values() if node.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.planes.aclose()

    async def read(self, want: Want, *, hurry: bool = False) -> Reading:
        """One refresh. Never raises for what the network or a node does. `hurry`: the user asked for it now."""
        await self._ask_all()
        readings = tuple(self._reading(node) for node in self._nodes.values())
        view = cluster_view(readings)
        leader = serving_reading(readings, view.leader)
        if leader is not None:
            self._fresh_ns = leader.facts_ns
            self._follow_members(leader.facts or {})
            await self._ask_lists(leader, view, want, hurry=hurry)
        else:
            self._without_leader(want)
        return Reading(
            taken_ns=self._clock_ns(),
            wall_ms=self._wall_ms(),
            nodes=readings,
            view=view,
            locks=self._lists.locks,
            detail=self._lists.detail,
            changes=self._lists.changes,
            leader_address=leader.address if leader is not None else "",
            fresh_ns=self._fresh_ns,
        )

    # --- statuses

    async def _ask_all(self) -> None:
        awaited = []
        for node in self._nodes.values():
            if node.task is None:
                node.asked_ns = self._clock_ns()
                node.task = asyncio.create_task(self.planes.call(node.address, "GET", "/v1/status"))
            if not node.late:
                awaited.append(node.task)
        if awaited:
            await asyncio.wait(awaited, timeout=self._patience_s)
        else:
            await asyncio.sleep(0)
        for node in self._nodes.values():
            self._harvest(node)

    def _harvest(self, node: _Node) -> None:
        task = node.task
        assert task is not None, "every node was asked"
        if not task.done():
            asked_s = (self._clock_ns() - node.asked_ns) / 1e9
            if not node.late or node.error is None or asked_s >= self._patience_s:
                node.error, node.code = f"no answer for {asked_s:.0f} s", "unreachable"
            node.late = True
            return
        node.task = None
        try:
            node.facts = task.result()
        except AdminError as error:
            # A late one goes on being late until it answers: its next question must not hold up the picture either.
            node.error, node.code = str(error), error.code
            return
        node.late = False
        node.facts_ns = self._clock_ns()
        node.error = None

    def _reading(self, node: _Node) -> NodeReading:
        return NodeReading(
            node.place, node.address, node.facts, node.facts_ns, node.error, node.task is not None, node.code
        )

    def _follow_members(self, facts: Mapping[str, Any]) -> None:
        """Addresses and places as the leader knows them: a replaced node may live elsewhere."""
        members = rows(table(table(facts).get("raft")).get("members"))
        voting: dict[str, str] = {}
        for row in members:
            # While a place is being replaced it has two members, and the one that votes is meant.
            place, address = text(row.get("place")), text(row.get("admin"))
            if row.get("role") == "voter" or place not in voting:
                voting[place] = address
        for place, address in list(voting.items())[:MEMBERS_MAX]:
            node = self._nodes.get(place)
            if not place or not address or (node is not None and node.address == address):
                continue
            if node is not None and address != node.configured and not self.planes.may_learn(address):
                continue
            if node is None:
                if self.planes.may_learn(address):
                    self._nodes[place] = _Node(place, "", address)
            else:
                self._move(node, address)
        gone = [node for node in self._nodes.values() if not node.configured and node.place not in voting]
        for node in gone if voting else ():
            if node.task is not None:
                node.task.cancel()
            del self._nodes[node.place]

    @staticmethod
    def _move(node: _Node, address: str) -> None:
        if node.task is not None:
            node.task.cancel()
        node.task, node.late, node.address = None, False, address
        node.error = f"has moved to {address}"

    # --- lists

    async def _ask_lists(self, leader: NodeReading, view: ClusterView, want: Want, *, hurry: bool) -> None:
        facts = leader.facts or {}
        wall_ms = number(facts.get("wall_ms"))
        if wall_ms is not None:
            wall_ms += (self._clock_ns() - leader.facts_ns) / 1e6
        asks = []
        if want.locks and self._is_due(want, view, hurry=hurry):
            asks.append(self._ask_locks(leader.address, view, want, wall_ms))
        if want.key is not None:
            asks.append(self._ask_detail(leader.address, want, wall_ms))
        else:
            self._lists.detail = None
        members = rows(table(facts.get("raft")).get("members"))
        changing = view.joint or any(
            row.get("role") != "voter" or not row.get("linked", True) for row in members
        )
        if changing or self._lists.changes:
            asks.append(self._ask_changes(leader.address))
        await asyncio.gather(*asks)

    def _is_due(self, want: Want, view: ClusterView, *, hurry: bool) -> bool:
        known = self._lists.locks
        if (
            hurry
            or known is None
            or known.error
            or self._lists.page != want.page()
            or self._lists.limit < want.limit
        ):
            return True
        if want.order != "key" and not want.prefix:
            return True
        spacing_ns = (view.held or 0) * 1_000_000_000 // WALKED_PER_S
        return self._clock_ns() - known.taken_ns >= spacing_ns

    async def _ask_locks(self, address: str, view: ClusterView, want: Want, wall_ms: float | None) -> None:
        try:
            locks, following = await self._page(address, want, want.order, wall_ms)
            if want.order == "queue" and len(locks) < want.limit and len(locks) < (view.held or 0):
                locks += await self._unqueued(address, want, locks, wall_ms)
        except (AdminError, TimeoutError) as error:
            reason = str(error) or f"no list within {LIST_S:g} s"
            if isinstance(error, AdminError) and error.code == "not_found":
                reason = "this node's version does not list locks"
            self._keep_locks(want, reason)
            return
        found = LockList(
            want.order, want.prefix, want.after, tuple(locks[: want.limit]), following, self._clock_ns()
        )
        self._lists.locks, self._lists.page, self._lists.limit = found, want.page(), want.limit

    async def _page(
        self, address: str, want: Want, order: str, wall_ms: float | None
    ) -> tuple[list[LockRow], str | None]:
        query: dict[str, object] = {"limit": want.limit}
        if order != "key":
            query["order"] = order
        elif want.after:
            query["after"] = want.after
        if want.prefix:
            query["prefix"] = want.prefix
        answer = await self._of_leader(address, "/v1/locks", query)
        following = answer.get("next")
        found = [lock_row(row, wall_ms) for row in rows(answer.get("locks"))]
        return found, following if isinstance(following, str) else None

    async def _unqueued(
        self, address: str, want: Want, queued: list[LockRow], wall_ms: float | None
    ) -> list[LockRow]:
        """Keys that nobody waits for, oldest first: behind the queues there is room for them.

        With a filter by key: only that list looks at every key, the others at the head of their order.
        """
        shown = {row.key for row in queued}
        held, _ = await self._page(address, want, "key" if want.prefix else "age", wall_ms)
        return [row for row in held if row.key not in shown]

    def _keep_locks(self, want: Want, reason: str) -> None:
        """The last list stays in sight with its age, and why there is no newer one."""
        known = self._lists.locks
        if known is None or self._lists.page != want.page():
            known = LockList(want.order, want.prefix, want.after, (), None, 0)
            self._lists.page, self._lists.limit = want.page(), want.limit
        self._lists.locks = replace(known, error=reason)

    async def _ask_detail(self, address: str, want: Want, wall_ms: float | None) -> None:
        assert want.key is not None
        try:
            answer = await self._of_leader(address, key_path(want.key), {"limit": want.waiters})
        except (AdminError, TimeoutError) as error:
            self._keep_detail(want.key, str(error) or f"no answer within {LIST_S:g} s")
            return
        self._lists.detail = key_detail(want.key, answer, wall_ms, self._clock_ns())

    def _keep_detail(self, key: str, reason: str) -> None:
        known = self._lists.detail
        if known is None or known.key != key:
            known = KeyDetail(key, None, (), None, False, 0)
        self._lists.detail = replace(known, error=reason)

    async def _ask_changes(self, address: str) -> None:
        try:
            self._lists.changes = change_rows(await self._of_leader(address, "/v1/members", None))
        except (AdminError, TimeoutError):
            self._lists.changes = ()

    async def _of_leader(self, address: str, path: str, query: dict[str, object] | None) -> dict[str, Any]:
        """Asks the leader; where the lead has just moved, the one that it names."""
        async with asyncio.timeout(LIST_S):
            try:
                return await self.planes.call(address, "GET", path, query=query)
            except NotLeaderError as error:
                known = {node.address for node in self._nodes.values()}
                if error.leader_admin not in known:
                    raise
                return await self.planes.call(error.leader_admin, "GET", path, query=query)

    def _without_leader(self, want: Want) -> None:
        if want.locks:
            self._keep_locks(want, "no leader serves")
        if want.key is None:
            self._lists.detail = None
        else:
            self._keep_detail(want.key, "no leader serves")
        self._lists.changes = ()
