"""What operators ask of a node that it cannot do here, or not now; and who leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticketing.node.status import leader_facts

if TYPE_CHECKING:
    from ticketing.node.governing import Governing
    from ticketing.node.lead import Lead
    from ticketing.node.node import Node
    from ticketing.node.state import ReplicatedState
    from ticketing.raft.core import Raft


class CannotError(Exception):
    """Not here, or not now. `code` is for programs and one of those of docs/admin.md."""

    def __init__(self, code: str, message: str, *, node: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.node = node
        """Whom to ask instead: `{"place", "client", "admin"}`."""


def need_state(node: Node) -> ReplicatedState:
    """The replicated state; `CannotError` without membership."""
    if node.state is None:
        raise CannotError(
            "no_leader", "this process is no member of a domain (yet): status says what it waits for"
        )
    return node.state


def need_lead(node: Node) -> tuple[Raft, ReplicatedState, Lead]:
    """What only the leader has that serves; `CannotError` names the leader elsewhere, if one is known."""
    state = need_state(node)
    raft, lead = node.raft, node.lead
    assert raft is not None, "state without a log"
    if lead is not None and lead.serving:
        return raft, state, lead
    if lead is not None:
        raise CannotError("no_leader", "this node leads and does not serve yet: ask again in a moment")
    leader = leader_facts(node)
    if leader is None:
        raise CannotError("no_leader", "no leader is known here: ask again in a moment")
    raise CannotError("not_leader", f"{leader['place']} leads", node=leader)


def need_governing(node: Node) -> tuple[Raft, ReplicatedState, Governing]:
    """What decides on members; standalone nodes have none."""
    raft, state, _lead = need_lead(node)
    governing = node.membership.governing
    if governing is None:
        raise CannotError("standalone", "a standalone node has no other members")
    return raft, state, governing
