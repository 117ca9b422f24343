"""The snapshots of one node: when one is sent, on which link, and what becomes of one that has arrived (spec 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketing.locks.restore import BadSnapshot
from ticketing.node import snapshots
from ticketing.node.handshake import LinkPeer
from ticketing.node.link import PeerKind
from ticketing.node.shell import Link
from ticketing.raft.election import Role
from ticketing.raft.plausible import check_base
from ticketing.raft.types import Member

if TYPE_CHECKING:
    from ticketing.node.node import Node

SNAPSHOT = "snapshot"


class SnapshotTraffic:
    """At most one snapshot goes out at a time; each link that brings one in has a receiver."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.sender: snapshots.SnapshotSender | None = None
        self._link: Link | None = None
        """Dialled for the present sender."""
        self.receivers: dict[Link, snapshots.SnapshotReceiver] = {}

    @property
    def busy(self) -> bool:
        """Whether `step` is to be called soon."""
        if self.sender is not None:
            return True
        return bool(self.receivers) and any(receiver.finishing for receiver in self.receivers.values())

    def step(self, now_ns: int) -> None:
        """One slice of everything under way."""
        if self.sender is not None:
            self._step_sender(self.sender, now_ns)
        for link, receiver in list(self.receivers.items()):
            if receiver.finishing:
                try:
                    self._step_receiver(link, receiver)
                except BadSnapshot as error:
                    node = self._node
                    node.shell.log("warning", "bad snapshot", remote=link.address, reason=str(error))
                    node.peers.close(link, now_ns)

    # --- out

    def wanted(self, member: Member, now_ns: int) -> None:
        """Raft cannot bring a member up to date from its log."""
        node = self._node
        raft, state = node.raft, node.state
        assert raft is not None
        assert state is not None
        if self.sender is not None:
            return  # one at a time; Raft asks again
        record = state.members.find(member)
        if record is None or not node.peers.is_up(member.incarnation):
            return
        base = raft.snapshot_base()
        rate = node.settings.snapshot_bytes_per_s
        sender = snapshots.SnapshotSender(node.shell, member, state, base, rate)
        if not raft.snapshot_begun(member, base, now_ns):
            sender.close()
            return
        self.sender = sender
        self._link = node.peers.dial_snapshot(record.peer)
        node.shell.log("info", "sending a snapshot", to=record.place, keys=sender.total_records)

    def progress(self, member: Member) -> str:
        """How the snapshot to this member stands, for people; empty where none is under way."""
        sender = self.sender
        if sender is None or sender.member != member:
            return ""
        return f"snapshot: {sender.sent_records} of {sender.total_records} keys sent"

    def percent(self, member: Member) -> int | None:
        """The share of the snapshot to this member that was sent; None where none is under way."""
        sender = self.sender
        if sender is None or sender.member != member:
            return None
        return 100 * sender.sent_records // max(1, sender.total_records)

    def link_up(self, peer: LinkPeer, link: Link) -> None:
        """A dialled link is up; it must lead to the very process that the present snapshot is for."""
        sender = self.sender
        if sender is None or link is not self._link or sender.member.incarnation != peer.facts.incarnation:
            self._node.peers.close(link, self._node.shell.elapsed_ns())
            return
        sender.connected(link)

    def link_down(self, link: Link) -> None:
        """A link, out or in, is over."""
        receiver = self.receivers.pop(link, None)
        unfinished = None if receiver is None else receiver.abandon()
        if unfinished is not None:
            self._node.retire(unfinished)
        if link is self._link:
            self.stop_sending()

    def writable(self, link: Link, now_ns: int) -> None:
        """A link takes more."""
        if self.sender is not None and self.sender.link is link:
            self._step_sender(self.sender, now_ns)

    def drop(self, member: Member) -> None:
        """Gives up the snapshot to this member, if there is one."""
        if self.sender is not None and self.sender.member == member:
            self.stop_sending()

    def stop_sending(self) -> None:
        """Gives up the snapshot that is under way, also while its link is still being dialled."""
        sender, node = self.sender, self._node
        if sender is None:
            return
        self._end(sender)
        if node.raft is not None:
            node.raft.snapshot_failed(sender.member, node.shell.elapsed_ns())

    def _end(self, sender: snapshots.SnapshotSender) -> None:
        self.sender = None
        link, self._link = self._link, None
        sender.link = None
        sender.close()
        if link is not None:
            self._node.peers.close(link, self._node.shell.elapsed_ns())

    def _step_sender(self, sender: snapshots.SnapshotSender, now_ns: int) -> None:
        sender.step(now_ns)
        if sender.stalled(now_ns):
            self._node.shell.log("warning", "snapshot stalled", member=str(sender.member))
            self.stop_sending()
        elif self._silent(sender.member, now_ns):
            self._node.shell.log("warning", "snapshot to a silent member given up", member=str(sender.member))
            self.stop_sending()

    def _silent(self, member: Member, now_ns: int) -> bool:
        raft = self._node.raft
        progress = raft.progress(member) if raft is not None else None
        return progress is not None and now_ns - progress.heard_ns > snapshots.SILENT_NS

    # --- in

    def stop_receiving(self) -> None:
        """The domain is left: what its members send is of no use."""
        for link in list(self.receivers):
            self._node.peers.close(link, self._node.shell.elapsed_ns())

    def message(self, peer: LinkPeer, link: Link, payload: bytes) -> None:
        """A frame of kind SNAPSHOT. Raises `BadSnapshot` or `msgspec.DecodeError`: its link is to be closed."""
        node = self._node
        # A reading made after the bytes were read: stamps rest on it (spec 7).
        now_ns = node.shell.elapsed_ns()
        message = snapshots.decode(payload)
        if isinstance(message, snapshots.Installed):
            self._installed(peer, message, now_ns)
            return
        if peer.purpose != SNAPSHOT or node.state is None:
            return
        receiver = self.receivers.get(link)
        if receiver is None:
            receiver = snapshots.SnapshotReceiver(node.state.domain.domain_id)
            self.receivers[link] = receiver
        if isinstance(message, snapshots.Begin):
            assert node.raft is not None
            check_base(node.raft.term, message.base)
        receiver.receive(message, now_ns)
        if receiver.finishing:
            self._step_receiver(link, receiver)

    def _installed(self, peer: LinkPeer, message: snapshots.Installed, now_ns: int) -> None:
        sender, raft = self.sender, self._node.raft
        if sender is None or sender.member.incarnation != peer.facts.incarnation:
            return
        if message.index != sender.base.index:
            return  # of an earlier one
        self._end(sender)
        if raft is not None:
            raft.snapshot_done(sender.member, now_ns)

    def _step_receiver(self, link: Link, receiver: snapshots.SnapshotReceiver) -> None:
        state = receiver.step()
        if state is None:
            return
        del self.receivers[link]
        node = self._node
        raft, base = node.raft, receiver.base
        assert raft is not None
        assert base is not None
        # A leader's log holds all that a former one's snapshot tells, and its desk stands on the table that it has.
        if raft.role is Role.LEADER or not raft.restore(base, node.shell.elapsed_ns()):
            node.retire(state.table)
        else:
            node.take_state(state)
            node.shell.log("info", "snapshot installed", index=base.index, keys=len(state.table.held))
        peer = link.logic.peer
        installed = snapshots.encode(snapshots.Installed(base.index))
        node.peers.send(peer.facts.incarnation, PeerKind.SNAPSHOT, installed)
