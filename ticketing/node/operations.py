"""What operators do: end an ownership, replace a node or take that back, ask whether one may stop.

Each leaves an audit line that says who, what and why. Everything that changes replicated state goes by an id that is
part of it, so the same command twice, on whatever node, acts once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ticketing.locks.commands import Revoke, Turn
from ticketing.locks.desk import LOST
from ticketing.locks.table import NO_EFFECT, LockTable
from ticketing.node.asked import CannotError, need_governing, need_lead, need_state
from ticketing.node.checksums import Told
from ticketing.node.governing import Announced
from ticketing.node.leave import FIRST_SECOND_NS
from ticketing.node.liveness import redundancy
from ticketing.node.membership_messages import TEXT_MAX
from ticketing.raft.types import MS, Member

if TYPE_CHECKING:
    from ticketing.node.node import Node


class Operations:
    """The operator's commands on one node. Each is a call of its own in a turn; `CannotError` says why not."""

    def __init__(self, node: Node) -> None:
        self._node = node

    # --- locks

    def revoke(
        self,
        key: bytes,
        token: int,
        *,
        command_id: str,
        who: str,
        why: str,
        told: Callable[[dict[str, Any] | None], None],
    ) -> None:
        """Ends exactly this grant, by consensus; the head of the queue is next.

        `told` gets the answer once the entry is applied, or None where the lead ended first: then whether it acts
        is open, and the same command under the same id may be given again. The holder is not told.
        """
        assert command_id, "a command without id would be taken for every other without"
        node = self._node
        now_ns = node.turn()
        _raft, state, lead = need_lead(node)
        held = state.table.held.get(key)
        if command_id in state.table.admin_ids:
            if held is not None and held.token == token:
                raise CannotError("id_used", "another command had this id: nothing was done")
            # What came of it then is not remembered, but this token holds nothing any more.
            told({"revoked": None, "repeated": True})
            return

        def done(outcome: int) -> None:
            if outcome == LOST:
                told(None)
            else:
                told({"revoked": outcome != NO_EFFECT, "next_token": str(outcome) if outcome > 0 else None})

        command = Revoke(command_id, Turn(key, token), who[:TEXT_MAX], why[:TEXT_MAX])
        lead.desk.revoke(command, done, now_ns)

    def revoked(self, table: LockTable) -> None:
        """Revocations were applied: an audit line on every node, whoever leads."""
        revocations, table.revocations = table.revocations, []
        for command, owner, name, next_token in revocations:
            facts = {
                "key": command.turn.key.decode("utf-8", "replace"),
                "token": str(command.turn.expect),
                "owner": str(owner),
                "name": name,
                "next_token": str(next_token) if next_token else None,
                "who": command.who,
                "why": command.why,
            }
            self._node.shell.log("audit", "lock revoked", command=command.command_id, **facts)
            self._node.events.add("lock", what="revoked", **facts)

    # --- replacing a node

    def replace(
        self,
        place: str,
        *,
        command_id: str,
        who: str,
        why: str,
        addresses: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Allows a process that names this command to take the place, also of a voter that lives.

        Nothing is changed by it: the process itself asks, and the command is remembered with what it does. The answer
        is the change as `members` shows it, with the command to be put into the process's folder.
        """
        node = self._node
        now_ns = node.turn()
        _raft, state, governing = need_governing(node)
        self._check_place(place)
        members = state.members
        if command_id in members.undone:
            raise CannotError("no_replace", "this command was undone: use another id")
        if command_id in members.used:
            raise CannotError("no_replace", f"{place} was replaced by this command already")
        for record in members.records:
            if record.place != place and not {record.client, record.peer, record.admin}.isdisjoint(addresses):
                raise CannotError("no_replace", f"these addresses are those of {record.place}")
        refusal = governing.replacement.refuses(place, governing.facts(), now_ns)
        if refusal is not None:
            raise CannotError("no_replace", refusal)
        known = governing.announced.get(place)
        if known is None or known.command_id != command_id:
            governing.announced[place] = Announced(command_id, who, why, node.shell.wall_ns() // MS)
            node.shell.log(
                "audit",
                "replacement announced",
                of=place,
                command=command_id,
                who=who,
                why=why,
                addresses=list(addresses),
            )
        change = self.announced(place)
        assert change is not None, place
        return {"change": change}

    def announced(self, place: str) -> dict[str, Any] | None:
        """A replacement that waits for its process, as `members` shows it; None where there is none (any more)."""
        _raft, state, governing = need_governing(self._node)
        known = governing.announced.get(place)
        members = state.members
        if known is None:
            return None
        if (
            known.command_id in members.used
            or known.command_id in members.undone
            or any(record.command_id == known.command_id for record in members.records)
        ):
            del governing.announced[place]
            return None
        return {
            "place": place,
            "state": "announced",
            "why": f"its process has not asked yet ({known.who or 'nobody named'}: {known.why or 'no reason given'})",
            "since_ms": known.since_ms,
            "operator": True,
            "command_id": known.command_id,
            "learner": None,
        }

    def undo(self, place: str, *, command_id: str, who: str, why: str) -> dict[str, Any]:
        """Takes a replacement back, up to its swap. `command_id`: of the replacement, where its process has not
        asked yet and another leader than this one announced it.
        """
        node = self._node
        now_ns = node.turn()
        _raft, _state, governing = need_governing(node)
        self._check_place(place)
        facts = governing.facts()
        proposal = governing.replacement.undo(place, who, why, facts)
        if isinstance(proposal, str):
            known = governing.announced.get(place)
            command_id = command_id or (known.command_id if known is not None else "")
            if command_id:
                proposal = governing.replacement.undo_command(place, command_id, who, why, facts)
        if isinstance(proposal, str):
            raise CannotError("no_undo", proposal)
        refused = governing.propose(proposal.change, proposal.audit, now_ns)
        if refused is not None:
            raise CannotError("no_undo", refused)
        governing.announced.pop(place, None)
        return {"undone": True}

    def _check_place(self, place: str) -> None:
        names = [known.name for known in self._node.settings.places]
        if place not in names:
            raise CannotError("not_found", f"{place} is no place of this cluster ({', '.join(names)})")

    # --- stopping

    def can_stop(self, place: str) -> dict[str, Any]:
        """Whether the voter of a place would be given leave now, and what would be left. Nothing is changed."""
        node = self._node
        now_ns = node.shell.elapsed_ns()
        raft, state, governing = need_governing(node)
        self._check_place(place)
        facts = governing.facts()
        record = state.members.voter_of(place, raft.configuration)
        if record is None:
            return {"can_stop": True, "reason": f"{place} has no voter", "redundancy_after": None}
        reason = governing.leaves.could_stop(
            record.member, facts, governing.replacement.busy(facts, now_ns), now_ns
        )

        def left(member: Member) -> bool:
            return member != record.member and facts.living(member, now_ns)

        return {
            "can_stop": reason is None,
            "reason": reason,
            "redundancy_after": redundancy(raft.configuration, left),
        }

    def transfer(self, place: str | None) -> None:
        """Gives the lead to a place, or to whoever is fit."""
        node = self._node
        now_ns = node.turn()
        need_lead(node)
        refused = node.membership.transfer(place, now_ns)
        if refused is not None:
            raise CannotError("no_transfer", _TRANSFER.get(refused, refused))

    def leave(self, place: str | None, told: Callable[[bool, str], None], *, again: bool = False) -> None:
        """This process stops if the leader gives leave within some seconds, else it stays: `told` which, once.

        `again`: its exit status asks whatever supervises it to start it again.
        """
        node = self._node
        self._check_own(place)
        now_ns = node.turn()
        governing = node.membership.governing
        if governing is not None and node.raft is not None:
            # Giving the lead away drops the queues: not for a leave that the next leader would not give. That this one
            # has just begun passes by itself.
            facts = governing.facts()._replace(ready=True, since_ns=now_ns - FIRST_SECOND_NS)
            busy = governing.replacement.busy(facts, now_ns)
            refused = governing.leaves.could_stop(node.raft.me, facts, busy, now_ns)
            if refused is not None:
                told(False, refused)
                return
        node.membership.departure.leave(now_ns, told, again=again)

    def checksum(self, index: int, told: Told) -> None:
        """The checksum of this node's whole state at an index, or where it stands if that is passed or not reached."""
        node = self._node
        now_ns = node.turn()
        node.checksums.ask(need_state(node), index, now_ns, told)

    def stop_at_once(self, place: str | None) -> None:
        """This process ends without anybody's leave."""
        self._check_own(place)
        self._node.begin_stop(force=True)

    def _check_own(self, place: str | None) -> None:
        node = self._node
        if place is None or place == node.settings.place:
            return
        self._check_place(place)
        target = next(known for known in node.settings.places if known.name == place)
        where = {"place": target.name, "client": target.client, "admin": target.admin or None}
        if node.state is not None and node.raft is not None:
            record = node.state.members.voter_of(place, node.raft.configuration)
            if record is not None:
                where = {"place": place, "client": record.client, "admin": record.admin or None}
        raise CannotError("other_place", f"{place} alone can do that: ask it", node=where)


_TRANSFER = {
    "no_such_voter": "that place has no voter that is linked, up to date and not about to stop",
    "no_other_voter": "no other voter is linked, up to date and not about to stop",
}
