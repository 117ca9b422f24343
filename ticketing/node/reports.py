"""What operators read: pages of locks, one key with its queue, members and their changes, clocks (docs/admin.md).

Everything is ready for JSON, 64-bit numbers as strings. Whoever holds a key is known on every node, queues to the
leader alone. Nothing here sorts the table or walks it in one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticketing.locks.held import Held
from ticketing.locks.lists import PAGE_MAX, KeyPage
from ticketing.locks.table import LockTable
from ticketing.node.asked import need_lead, need_state
from ticketing.node.clock_health import read_together
from ticketing.node.settings import S
from ticketing.node.status import clock, consensus
from ticketing.raft.types import MS, Member

if TYPE_CHECKING:
    from ticketing.node.lead import Lead
    from ticketing.node.node import Node

ORDERS = ("age", "lease_left", "queue")
LOOKED_AT_MAX = 2_000
"""With a prefix, so many at the head of an order are looked at for those that have it."""
REMOTES_MAX = 8
SLICE = 2_048
"""Keys that one step of a page looks at: some hundred microseconds."""


class KeyListing:
    """A page of held keys by their bytes, found in slices between which the node goes on.

    Call `step` until it returns True, then read `answer`; call `close` in any case.
    """

    def __init__(self, node: Node, prefix: bytes, after: bytes, limit: int) -> None:
        assert 0 < limit <= PAGE_MAX, limit
        self._node = node
        self._wanted = (after, prefix, limit)
        self._table: LockTable
        self._page: KeyPage
        self.answer: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        self._table = need_state(self._node).table
        self._page = self._table.page(*self._wanted)

    def step(self) -> bool:
        """One slice. True once `answer` is complete; `CannotError` where the membership ended meanwhile."""
        if self._node.state is None or self._node.state.table is not self._table:
            # A snapshot has put another table in its place.
            self._page.close()
            self._begin()
        if not self._page.step(SLICE):
            return False
        last_key = self._page.last_key
        self.answer = {
            "locks": locks_of(self._node, self._page.result),
            "next": None if last_key is None else last_key.decode(),
        }
        return True

    def close(self) -> None:
        """Gives the page up; a second time is harmless."""
        self._page.close()


class Reports:
    """The reports of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    # --- locks

    def keys(self, prefix: bytes, after: bytes, limit: int) -> KeyListing:
        """A page by key, to be stepped through. Every node has it."""
        return KeyListing(self._node, prefix, after, limit)

    def first(self, order: str, prefix: bytes, limit: int) -> dict[str, Any]:
        """The first page in one of `ORDERS`, from orders that are kept anyway; by `queue` on the leader alone."""
        node = self._node
        assert order in ORDERS, order
        count = LOOKED_AT_MAX if prefix else limit
        if order == "queue":
            _raft, state, lead = need_lead(node)
            queues = [view for view in lead.desk.longest_queues(count) if view.key.startswith(prefix)]
            held = state.table.held
            rows = [
                _lock(node, holder, lead)
                if (holder := held.get(view.key)) is not None
                else _free(node, view.key, view.waiting, lead)
                for view in queues[:limit]
            ]
            _add_remotes(node, rows)
            return {"locks": rows, "next": None}
        table = need_state(node).table
        found = table.oldest(count) if order == "age" else table.least_left(count)
        if prefix:
            found = [holder for holder in found if holder.key.startswith(prefix)][:limit]
        return {"locks": locks_of(node, found), "next": None}

    def key(self, key: bytes, after: tuple[int, int] | None, limit: int) -> dict[str, Any]:
        """One key in full: its holder, and a page of those that wait, in the order in which they are served."""
        node = self._node
        _raft, state, lead = need_lead(node)
        now_ns = node.shell.elapsed_ns()
        held = state.table.held.get(key)
        lock = None
        if held is not None:
            lock = _lock(node, held, lead) | {"remotes": self._remotes(held.name)}
        page = lead.desk.queue_page(key, after, limit)
        waiters = [
            {
                "owner": str(view.owner),
                "name": view.name,
                "remote": view.source,
                "waited_ms": max(0, now_ns - view.since_ns) // MS,
                "wait_left_ms": max(0, view.due_ns - now_ns) // MS,
                "lease_s": view.lease,
            }
            for view in page.queue
        ]
        behind = f"{page.queue[-1].since_ns}.{page.queue[-1].owner}" if page.more else None
        return {
            "lock": lock,
            "waiters": waiters,
            "waiting": lead.desk.waiting_for(key),
            "next": behind,
        }

    def _remotes(self, name: str) -> list[str]:
        """Where the sessions come from that go by the holder's name: the table keeps names, not connections."""
        return self._node.clients.remotes_of(name, REMOTES_MAX) if name else []

    # --- members

    def members(self) -> dict[str, Any]:
        """Who belongs to the domain, and what is being changed about it; the leader's to tell."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        raft, state, _lead = need_lead(node)
        governing = node.membership.governing
        changes = []
        if governing is not None:
            views = governing.views(now_ns)
            for view in views:
                member = Member(view.node_id, view.incarnation)
                progress = raft.progress(member) if view.node_id else None
                learner = None
                if view.node_id:
                    learner = {
                        "node_id": str(view.node_id),
                        "match_index": None if progress is None else str(progress.match),
                        "lag": None if progress is None else max(0, raft.last_index - progress.match),
                        "snapshot_percent": node.snapshots.percent(member),
                    }
                changes.append(
                    {
                        "place": view.place,
                        "state": view.stage,
                        "why": view.text,
                        "since_ms": node.watch.since_ms(view.place, view.incarnation),
                        "operator": view.operator,
                        "learner": learner,
                    }
                )
            asking = {view.place for view in views}
            changes += [
                change
                for place in list(governing.announced)
                if place not in asking
                if (change := node.operations.announced(place)) is not None
            ]
        return {
            "members": consensus(node, raft, now_ns)["members"],
            "changes": changes,
            "highest_node_id": str(state.members.highest),
        }

    # --- numbers

    def figures(self) -> dict[str, Any]:
        """What metrics need beside `status`; `None` where only the leader knows."""
        node = self._node
        desk = node.lead.desk if node.lead is not None and node.lead.serving else None
        return {
            "waits": node.figures.waits,
            "holds": node.figures.holds,
            "leader_changes": node.watch.leader_changes,
            "gate_closings": node.watch.gate_closings,
            "waiting": None if desk is None else desk.waiting,
            "keys_waited_for": None if desk is None else desk.keys_waited_for,
            "longest_queue": None if desk is None else desk.longest_queue,
            "longest_wait_s": None if desk is None else desk.longest_wait_ns(node.shell.elapsed_ns()) / S,
        }

    # --- clocks

    def clock(self) -> dict[str, Any]:
        """This node's view of all clocks, and what the others have said of themselves lately."""
        node = self._node
        now_ns, wall_ns = read_together(node.shell.elapsed_ns, node.shell.wall_ns)
        own = clock(node, now_ns, wall_ns)
        nodes: list[dict[str, Any]] = [
            {"place": node.settings.place, "inside": own["gate"] == "open", "peers": own["peers"]}
        ]
        views = node.clock.verdicts(now_ns, wall_ns)
        for peer in node.peers.reachable():
            view = views.get(peer.facts.incarnation)
            inside = None if view is None else view.reports_inside
            nodes.append({"place": peer.place, "inside": inside, "peers": None})
        nodes[1:] = sorted(nodes[1:], key=lambda row: str(row["place"]))
        return {
            "place": node.settings.place,
            "gate": own["gate"],
            "delta_ms": own["delta_ms"],
            "wall_ms": wall_ns // MS,
            "steps": own["steps"],
            "last_step_ms": own["last_step_ms"],
            "source": own["source"],
            "nodes": nodes,
        }


def locks_of(node: Node, found: list[Held]) -> list[dict[str, Any]]:
    """Rows of a list; how many wait is null on a node that does not lead."""
    lead = node.lead if node.lead is not None and node.lead.serving else None
    rows = [_lock(node, held, lead) for held in found]
    if lead is not None:
        _add_remotes(node, rows)
    return rows


def _add_remotes(node: Node, rows: list[dict[str, Any]]) -> None:
    """`remote` of each row: where a session that goes by the holder's name comes from, if one stands here.

    The table keeps names, not connections. One pass over the sessions serves the page: a millisecond at 20,000.
    """
    remotes = node.clients.remotes_by_name({row["name"] for row in rows if row["name"]})
    for row in rows:
        row["remote"] = remotes.get(row["name"])


def _lock(node: Node, held: Held, lead: Lead | None) -> dict[str, Any]:
    return {
        "key": held.key.decode(),
        "token": str(held.token),
        "owner": str(held.owner),
        "name": held.name,
        "lease_s": held.lease,
        "lease_left_ms": max(0, held.stamp_ns + held.lease * S - node.shell.elapsed_ns()) // MS,
        "renewal": held.renewal,
        "granted_at_ms": held.granted_wall_ms,
        "waiting": None if lead is None else lead.desk.waiting_for(held.key),
        "longest_wait_ms": None if lead is None else _longest_wait_ms(node, held.key, lead),
        "remote": None,
    }


def _longest_wait_ms(node: Node, key: bytes, lead: Lead) -> int | None:
    """How long the head of a key's queue has waited; None where nobody waits."""
    queue = lead.desk.queue_page(key, None, 1).queue if lead.desk.waiting_for(key) else ()
    return max(0, node.shell.elapsed_ns() - queue[0].since_ns) // MS if queue else None


def _free(node: Node, key: bytes, waiting: int, lead: Lead) -> dict[str, Any]:
    """A key that nobody holds and somebody waits for: a grant is on its way, or the clock gate is closed."""
    return {
        "key": key.decode(),
        "token": None,
        "owner": None,
        "name": None,
        "lease_s": None,
        "lease_left_ms": None,
        "renewal": None,
        "granted_at_ms": None,
        "waiting": waiting,
        "longest_wait_ms": _longest_wait_ms(node, key, lead),
        "remote": None,
    }
