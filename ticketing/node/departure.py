"""How this process stops: with the leader's leave where it can be had, and with what it says to the others meanwhile
(spec 9, Stopping). What is decided is in `leave`; this carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ticketing.node.handshake import LinkPeer
from ticketing.node.leave import AskLeave, GiveLeadAway, Leaving, StayOn, StopNow
from ticketing.node.link import PeerKind
from ticketing.node.membership_messages import LeaveAsk, LeaveMessage, encode
from ticketing.node.rejoin import FAILED, REMOVED, START_AGAIN
from ticketing.node.settings import S
from ticketing.raft.core import Raft
from ticketing.raft.election import Role
from ticketing.raft.types import Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

LEAVE_WITHIN_NS = 5 * S
"""How long an operator's `leave` waits for the leader's. It spans the second in which a new leader gives none."""
LEAVERS_MAX = 64
LEAVER_NS = 3 * S
"""How long a process that said that it wants to stop is given no lead."""


class Departure:
    """The end of one process, and what it knows of others that want to stop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.stopping = False
        self._leaving: Leaving | None = None
        self._leave_asked: list[Callable[[bool, str], None]] = []
        """Operators who wait to be told whether this process goes."""
        self._ending = False
        self._again = False
        """Whether the process is stopped for another one to be started in its place."""
        self._leavers: dict[int, int] = {}
        """By incarnation: when a process last said that it wants to stop."""

    @property
    def waiting_for(self) -> str:
        """What a process that stops waits for, for people; empty where it does not stop."""
        return self._leaving.waiting_for if self._leaving is not None else ""

    def tick(self, now_ns: int) -> None:
        """Called every 50 ms."""
        if self._leaving is not None:
            self._go_on(self._leaving, now_ns)

    def begin_stop(self, now_ns: int, *, force: bool) -> None:
        """Leaves in good order: the lead is given away first. `force`, or a second call, stops at once."""
        node = self._node
        leaving = self._leaving
        if force:
            self._again = False
        if not force and leaving is not None and leaving.stays:
            # An operator has asked whether it may go; now it is told to.
            self._again = False
            self._leaving = Leaving(now_ns, node.settings.stop_wait_ns)
            return
        if force or self.stopping:
            self.end(0, "stopped at once")
            return
        self.stopping = True
        node.clients.stopping = True
        if node.raft is None or node.settings.standalone:
            self.end(0, "stopped")
            return
        self._leaving = Leaving(now_ns, node.settings.stop_wait_ns)
        self._go_on(self._leaving, now_ns)

    def leave(self, now_ns: int, told: Callable[[bool, str], None], *, again: bool = False) -> None:
        """Stops if leave is given within a few seconds, else stays. `told` once: whether it goes, and why (not).

        `again`: for whatever supervises the process to start it again, which its exit status says.
        """
        node = self._node
        self._leave_asked.append(told)
        if self.stopping:
            return
        self._again = again
        if node.raft is None or node.settings.standalone:
            self.begin_stop(now_ns, force=False)
            return
        self.stopping = node.clients.stopping = True
        self._leaving = Leaving(now_ns, min(LEAVE_WITHIN_NS, node.settings.stop_wait_ns), stays=True)
        self._go_on(self._leaving, now_ns)

    def _tell_leave(self, reason: str, *, given: bool) -> None:
        asked, self._leave_asked = self._leave_asked, []
        for told in asked:
            told(given, reason)

    def _stay(self, reason: str) -> None:
        self._leaving = None
        self._again = False
        self.stopping = self._node.clients.stopping = False
        self._node.shell.log("info", "no leave was given, so it stays", reason=reason)
        self._tell_leave(reason, given=False)

    def _go_on(self, leaving: Leaving, now_ns: int) -> None:
        node = self._node
        raft = node.raft
        if raft is None:
            self.end(0, "stopped")
            return
        action = leaving.step(
            now_ns,
            me=raft.me,
            voter=raft.configuration.is_voter(raft.me),
            leading=raft.role is Role.LEADER,
            leader=raft.leader,
            term=raft.term,
        )
        match action:
            case GiveLeadAway():
                self._say_leaving(raft)
                refused = node.membership.transfer(None, now_ns)
                node.shell.log("info", "giving the lead away", refused=refused)
            case AskLeave():
                self._say_leaving(raft)
            case StayOn(reason):
                self._stay(reason)
            case StopNow(reason, warning):
                if warning:
                    node.shell.log("error", reason)
                self._tell_leave(reason, given=not warning)
                self.end(0, reason)

    def _say_leaving(self, raft: Raft) -> None:
        """The leader is asked for its leave, and every other member told the same: or two that stop would give the
        lead to each other, and a new leader gives no leave in its first second.
        """
        ask = encode(LeaveAsk(raft.me.node_id, raft.me.incarnation, raft.term))
        for member in raft.configuration.members():
            if member != raft.me:
                self._node.peers.send(member.incarnation, PeerKind.LEAVE, ask)

    def leaves(self, member: Member, now_ns: int) -> bool:
        """Whether this member has said lately that it wants to stop."""
        said_ns = self._leavers.get(member.incarnation)
        return said_ns is not None and now_ns - said_ns <= LEAVER_NS

    def end(self, status: int, reason: str) -> None:
        """The process stops; a second time is harmless."""
        node = self._node
        if self._ending:
            return
        self._ending = True
        self._tell_leave(reason, given=True)
        if not status and self._again:
            status, reason = START_AGAIN, f"{reason}; to be started again"
        node.shell.log("error" if status in (FAILED, REMOVED) else "info", "stopping", reason=reason)
        node.clients.close_all("shutting_down")
        node.shell.stop(status, reason)

    def receive(self, peer: LinkPeer, message: LeaveMessage, now_ns: int) -> None:
        """A message about leave."""
        node = self._node
        raft = node.raft
        sender = node.traffic.member_of(peer)
        if raft is None or sender is None:
            return
        if isinstance(message, LeaveAsk):
            self._leavers[sender.incarnation] = now_ns
            while len(self._leavers) > LEAVERS_MAX:
                del self._leavers[next(iter(self._leavers))]
            governing = node.membership.governing
            if governing is not None and (message.node_id, message.incarnation) == sender:
                node.peers.send(
                    sender.incarnation, PeerKind.LEAVE, governing.asked_for_leave(message, now_ns)
                )
        elif self._leaving is not None:
            self._leaving.answered(message, sender, me=raft.me, leader=raft.leader, term=raft.term)
            self._go_on(self._leaving, now_ns)
