"""The outside of one simulated node: `ticketing.node.shell.Shell` on virtual clocks, network and disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.sim.network import End, Network
from tests.sim.world import MS, Clock, S, Violation, World
from ticketing.node import clock_messages
from ticketing.node.handshake import Refusal
from ticketing.node.link import PeerKind
from ticketing.node.session import ClientSession
from ticketing.node.shell import Link
from ticketing.raft.election import Role

if TYPE_CHECKING:
    from tests.sim.process import Process
    from ticketing.node.shell import Shell

SLOW_NS = 5 * S
ANSWERS = (b"A", b"G", b"T", b"R", b"N", b"X")
"""Opcodes of frames that say something of the lock state."""
FALSE_HERE = frozenset(
    (
        "a peer says what cannot be true",
        "a peer's message cannot be read",
        "bad snapshot",
        "member shows a shorter log than it acknowledged",
        "peer link closed",
        "too many peer links",
    )
)
"""Alarms of the node about its peers. Here no process goes back in time, no byte between peers is forged, and no frame
is torn, so all of them are false.
"""
WRITE_BUFFER_BYTES = 256 * 1024
KIND_AT = 4
"""Where a peer frame's kind stands."""
WHOLE_STREAM = (PeerKind.HANDSHAKE, PeerKind.SNAPSHOT)
"""Frames that are never lost or moved on their own: they are parts of one exchange in order."""


class Disk:
    """The files of one `state/` folder; they outlive processes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def lose(self, *, but: str = "") -> None:
        """Another disk, empty but for the file of that name; what was still being written went to the old one."""
        self.files = {name: content for name, content in self.files.items() if name == but}


class SimLink(Link):
    """A peer link with its end of the connection."""

    __slots__ = ("end",)

    end: End


class SimShell:
    """See the module. `opening` is the connection whose session is being opened."""

    def __init__(
        self,
        world: World,
        network: Network,
        clock: Clock,
        disk: Disk,
        process: Process,
        places: dict[str, str],
    ) -> None:
        self.world = world
        self.network = network
        self.disk = disk
        self.process = process
        self.places = places
        """Machine by address."""
        self.elapsed_ns = clock.elapsed_ns
        self.wall_ns = clock.wall_ns
        self.opening: End | None = None
        self.stopped = False
        self.replied: dict[object, int] = {}
        """By process: when, by its elapsed clock, the newest of its probes left that is answered from here early enough
        for a sample.
        """
        self.acts = 0
        """How often the node has had something done: sent, written, dialled, hung up, stored."""
        self.on_store: Callable[[str], None] = lambda _name: None
        """Called when a file is about to be written."""
        self.disk_ns = (100_000, 20 * MS)
        self._rng = Random(world.rng.getrandbits(64))

    def random_bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def request_flush(self) -> None:
        self.process.ask_flush()

    # --- client sessions

    def write(self, session: ClientSession, data: bytes) -> None:
        self.acts += 1
        end = self._end(session)
        if self.process.doubtful_term:
            self._check_doubt(session, data)
        self.network.send(end, data)
        if end.queued_bytes > WRITE_BUFFER_BYTES:
            self.world.after(SLOW_NS, lambda: self._look_if_slow(session, end))

    def _check_doubt(self, session: ClientSession, data: bytes) -> None:
        """After a long gap a leader answers nothing before a majority has confirmed it (spec 9)."""
        raft = self.process.node.raft
        leads = raft is not None and raft.role is Role.LEADER and raft.term == self.process.doubtful_term
        if self.process.node.settings.standalone:
            return  # it is its own majority
        if leads and session.handshake is None and data[:1] in ANSWERS:
            raise Violation("no answer after a gap without a majority", f"{self.process.name}: {data[:60]!r}")

    def _end(self, session: ClientSession) -> End:
        if session.io is None:
            assert self.opening is not None, "a session that no connection belongs to"
            session.io = self.opening
        assert isinstance(session.io, End)
        return session.io

    def _look_if_slow(self, session: ClientSession, end: End) -> None:
        if end.queued_bytes > WRITE_BUFFER_BYTES and not end.ended:
            self.process.slow(session, end)

    def finish(self, session: ClientSession, last: bytes) -> None:
        self.acts += 1
        end = self._end(session)
        self.network.send(end, last)
        self.network.send(end, None)
        self.process.finishing(end)

    def refuse(self, session: ClientSession, last: bytes) -> None:
        end = self._end(session)

        def answer() -> None:
            if not end.ended and self.process.alive:
                self.finish(session, last)

        self.world.after(S, answer)

    def admitted(self, session: ClientSession) -> None:
        pass

    # --- peer links

    def dial(self, address: str, purpose: str) -> Link:
        self.acts += 1
        link = SimLink(address, inbound=False, purpose=purpose)
        process = self.process
        target = self.places.get(address, "nowhere")
        link.end = self.network.dial(process, process.machine, address, target, purpose)
        link.end.io = link
        return link

    def send(self, link: Link, frame: bytes) -> None:
        self.acts += 1
        assert isinstance(link, SimLink)
        if frame[KIND_AT] in WHOLE_STREAM:
            self.network.send(link.end, frame)
        else:
            self.network.send_frame(link.end, frame)
            if frame[KIND_AT] == PeerKind.CLOCK:
                self._note_reply(link.end, frame)

    def _note_reply(self, end: End, frame: bytes) -> None:
        reply, other = clock_messages.decode(frame[KIND_AT + 1 :]), end.other
        # It may stand there twice, or before what was sent ahead of it.
        due_ns = min((due_ns for due_ns, data in end.queue if data == frame), default=None)
        if not isinstance(reply, clock_messages.ClockReply) or other is None or due_ns is None:
            return
        process = self.process.peer_at(other)
        if process is None:
            return
        # That it is read when it arrives, or at all, is not said.
        round_trip_ns = due_ns - process.clock.true_ns(reply.sent_ns)
        most_ns = self.process.node.settings.delta_ns // 2 + reply.replied_ns - reply.received_ns
        if round_trip_ns <= most_ns + most_ns // 30 + MS:
            self.replied[process] = max(self.replied.get(process, reply.sent_ns), reply.sent_ns)

    def buffered(self, link: Link) -> int:
        assert isinstance(link, SimLink)
        return self.network.buffered(link.end)

    def hang_up(self, link: Link) -> None:
        self.acts += 1
        assert isinstance(link, SimLink)
        link.end.io = None
        self.network.hang_up(link.end)

    # --- disk and life

    def store(self, name: str, content: bytes, done: Callable[[], None]) -> None:
        self.acts += 1
        process, files = self.process, self.disk.files
        self.on_store(name)

        def written() -> None:
            # A process that was killed meanwhile may or may not have got as far as the rename.
            if process.alive or self.world.chance(0.5):
                files[name] = content
            process.call(done)

        self.world.after(self.world.between(*self.disk_ns), written)

    def remove(self, name: str) -> None:
        files = self.disk.files

        def removed() -> None:
            files.pop(name, None)

        self.world.after(self.world.between(*self.disk_ns), removed)

    def stop(self, status: int, reason: str) -> None:
        if not self.stopped:
            self.stopped = True
            self.process.exit(status, reason)

    def log(self, level: str, event: str, **facts: object) -> None:
        world = self.world
        if event in FALSE_HERE or facts.get("reason") == Refusal.ROLLED_BACK:
            raise Violation("members say what is true", f"{self.process.name}: {event}: {facts}")
        if world.log is not None:
            shown = " ".join(f"{name}={value}" for name, value in facts.items())
            world.say(self.process.name, f"{level}: {event}", shown)


if TYPE_CHECKING:

    def _is_shell(shell: SimShell) -> Shell:
        return shell
