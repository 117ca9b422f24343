"""TCP as the node knows it: ordered bytes between machines, late, stalled, cut one way or both, refused, half open.

A connection has two ends, each on a machine with a host that is told what arrives. What is sent stands in the
sender's queue until it is delivered; a cut path holds it back, and a connection whose bytes are not acknowledged for
the user timeout is dead at the sender's end. The other end hears of that only if the path lets it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tests.sim.world import MS, S, World

DIAL_TIMEOUT_NS = 3 * S
PEER_TIMEOUT_NS = 3 * S
CLIENT_TIMEOUT_NS = 9 * S
RETRANSMIT_NS = 200 * MS
KERNEL_BYTES = 256 * 1024
"""What two kernels hold of a stream that nobody reads."""


class Host(Protocol):
    """A process, as its kernel sees it."""

    def accepted(self, end: End, purpose: str) -> None:
        """Somebody has connected."""
        ...

    def connected(self, end: End) -> None:
        """The connection that was dialled stands."""
        ...

    def refused(self, end: End, *, by_host: bool) -> None:
        """It does not: nobody listens there (`by_host`), or no answer came."""
        ...

    def arrived(self, end: End, data: bytes) -> None:
        """Bytes from the other side."""
        ...

    def lost(self, end: End, *, by_timeout: bool) -> None:
        """The connection is over."""
        ...


class End:
    """One end of a connection."""

    __slots__ = (
        "address",
        "due_ns",
        "ended",
        "host",
        "io",
        "machine",
        "other",
        "queue",
        "queued_bytes",
        "scheduled",
        "timeout_ns",
        "unacked_since",
    )

    def __init__(self, host: Host, machine: str, address: str, timeout_ns: int) -> None:
        self.host = host
        self.machine = machine
        self.address = address
        self.timeout_ns = timeout_ns
        self.other: End | None = None
        self.queue: deque[tuple[int, bytes | None]] = deque()
        """When each piece can be there; None is the end of the stream."""
        self.queued_bytes = 0
        self.due_ns = 0
        self.scheduled = False
        self.ended = False
        """This end is closed: nothing is delivered to its host any more."""
        self.unacked_since: int | None = None
        self.io: object = None
        """The host's own slot."""


class Network:
    """All machines' paths, listeners and connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.latency: dict[tuple[str, str], tuple[int, int]] = {}
        """(from, to): least and greatest delay of a path that differs from `usual`."""
        self.usual: tuple[int, int] = (100_000, 1 * MS)
        self.cuts: dict[tuple[str, str], None] = {}
        self.severed: dict[tuple[str, str], None] = {}
        """What is cut for good."""
        self.down: dict[str, None] = {}
        self.frame_drop = 0.0
        self.frame_double = 0.0
        self.frame_reorder = 0.0
        self._listeners: dict[str, tuple[str, Host]] = {}
        self._ends: dict[End, None] = {}

    # --- paths

    def open(self, source: str, target: str) -> bool:
        """Whether bytes from one machine reach the other now."""
        if not self.cuts and not self.down and not self.severed:
            return True
        path = source, target
        return not (path in self.cuts or path in self.severed or source in self.down or target in self.down)

    def delay(self, source: str, target: str) -> int:
        """How long the next piece takes."""
        low, high = self.latency.get((source, target), self.usual)
        return self.world.between(low, high)

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from `source` to `target` any more."""
        self.cuts[source, target] = None

    def sever(self, source: str, target: str) -> None:
        """As `cut`, and nothing heals it."""
        self.severed[source, target] = None

    def heal(self, source: str, target: str) -> None:
        """It does again; what was held back is retransmitted."""
        self.cuts.pop((source, target), None)
        self._retransmit()

    def heal_all(self) -> None:
        """Every path is as good as new, but for those that are severed; machines that are off stay off."""
        self.cuts.clear()
        self.latency.clear()
        self.frame_drop = self.frame_double = self.frame_reorder = 0.0
        self._retransmit()

    def power_off(self, machine: str) -> None:
        """The machine is gone without a word."""
        self.down[machine] = None
        for end in [end for end in self._ends if end.machine == machine]:
            self._forget(end)

    def power_on(self, machine: str) -> None:
        """It answers again, with resets to whoever believes in an old connection."""
        self.down.pop(machine, None)
        self._retransmit()

    def _retransmit(self) -> None:
        for end in list(self._ends):
            other = end.other
            if other is None or not self.open(end.machine, other.machine):
                continue
            if self.open(other.machine, end.machine):
                end.unacked_since = None
            if end.queue and not end.scheduled:
                self._schedule(end, self.world.now + self.world.between(1 * MS, RETRANSMIT_NS))

    # --- connecting

    def listen(self, address: str, machine: str, host: Host) -> None:
        """From now on connections to `address` are accepted."""
        self._listeners[address] = machine, host

    def deafen(self, host: Host) -> None:
        """Nobody listens at the host's addresses any more."""
        for address in [address for address, (_, owner) in self._listeners.items() if owner is host]:
            del self._listeners[address]

    def dial(self, host: Host, machine: str, address: str, target: str, purpose: str) -> End:
        """Begins to connect from `machine` to `address` on machine `target`; `connected` or `refused` follows."""
        timeout = CLIENT_TIMEOUT_NS if purpose == "client" else PEER_TIMEOUT_NS
        end = End(host, machine, address, timeout)
        until = self.world.now + DIAL_TIMEOUT_NS
        self.world.after(self.delay(machine, target), lambda: self._knock(end, target, purpose, until))
        return end

    def _knock(self, end: End, target: str, purpose: str, until: int) -> None:
        world = self.world
        if end.ended:
            return
        if world.now >= until:
            end.ended = True
            end.host.refused(end, by_host=False)
            return
        if not (self.open(end.machine, target) and self.open(target, end.machine)):
            world.after(world.between(100 * MS, S), lambda: self._knock(end, target, purpose, until))
            return
        listener = self._listeners.get(end.address)
        back = self.delay(target, end.machine)
        if listener is None:
            world.after(back, lambda: self._refuse(end))
            return
        machine, host = listener
        accepted = End(host, machine, end.machine, end.timeout_ns)
        accepted.other, end.other = end, accepted
        end.due_ns = accepted.due_ns = world.now + back
        self._ends[accepted] = self._ends[end] = None
        host.accepted(accepted, purpose)
        world.after(back, lambda: self._established(end))

    def _refuse(self, end: End) -> None:
        if not end.ended:
            end.ended = True
            end.host.refused(end, by_host=True)

    def _established(self, end: End) -> None:
        if not end.ended:
            end.host.connected(end)

    # --- bytes

    def send(self, end: End, data: bytes | None) -> None:
        """Queues bytes, or the end of the stream, behind what was sent before."""
        if end.ended or end.other is None:
            return
        world = self.world
        due = max(world.now + self.delay(end.machine, end.other.machine), end.due_ns)
        end.due_ns = due
        end.queue.append((due, data))
        if data is not None:
            end.queued_bytes += len(data)
        if not end.scheduled:
            self._schedule(end, due)
        if (self.cuts or self.down or self.severed) and not self.open(end.other.machine, end.machine):
            self._unacknowledged(end)

    def send_frame(self, end: End, frame: bytes) -> None:
        """As `send`, on a network that treats whole frames badly."""
        world = self.world
        if world.chance(self.frame_drop):
            return
        self.send(end, frame)
        if world.chance(self.frame_double):
            self.send(end, frame)
        queue = end.queue
        if len(queue) > 1 and queue[-2][1] is not None and world.chance(self.frame_reorder):
            (due, last), (before, former) = queue.pop(), queue.pop()
            queue.append((before, last))
            queue.append((due, former))

    def buffered(self, end: End) -> int:
        """Bytes that the sender's kernel has not taken."""
        return max(0, end.queued_bytes - KERNEL_BYTES)

    def _schedule(self, end: End, when: int) -> None:
        end.scheduled = True
        self.world.at(when, lambda: self._deliver(end))

    def _deliver(self, end: End) -> None:
        end.scheduled = False
        other = end.other
        if other is None or not end.queue:
            return
        if not self.open(end.machine, other.machine):
            self._unacknowledged(end)
            return
        if other.ended:
            end.queue.clear()
            end.queued_bytes = 0
            if self.open(other.machine, end.machine):
                self.world.after(self.delay(other.machine, end.machine), lambda: self._reset(end))
            return
        now = self.world.now
        queue = end.queue
        while queue and queue[0][0] <= now and not other.ended:
            _, data = queue.popleft()
            if data is None:
                self._close(other, by_timeout=False)
            else:
                end.queued_bytes -= len(data)
                other.host.arrived(other, data)
        if end.ended and not queue:
            self._forget(end)
        elif queue and not end.scheduled:
            self._schedule(end, queue[0][0])

    def _unacknowledged(self, end: End) -> None:
        if end.unacked_since is None:
            since = end.unacked_since = self.world.now
            self.world.after(end.timeout_ns, lambda: self._give_up(end, since))

    def _give_up(self, end: End, since: int) -> None:
        if end.unacked_since != since:
            return
        if end.ended:
            self._forget(end)
        else:
            other = end.other
            self._close(end, by_timeout=True)
            if other is not None and self.open(end.machine, other.machine):
                self._reset(other)

    def _reset(self, end: End) -> None:
        self._close(end, by_timeout=False)

    # --- the end

    def _close(self, end: End, *, by_timeout: bool) -> None:
        if not end.ended:
            self._forget(end)
            end.host.lost(end, by_timeout=by_timeout)

    def _forget(self, end: End) -> None:
        end.ended = True
        end.queue.clear()
        end.queued_bytes = 0
        self._ends.pop(end, None)

    def hang_up(self, end: End) -> None:
        """Closes an end behind what was sent; its host hears no more of it."""
        if end.ended:
            return
        if end.other is None:
            end.ended = True
            return
        self.send(end, None)
        end.ended = True

    def drop_host(self, host: Host) -> None:
        """The process is gone; its kernel closes what it had open."""
        self.deafen(host)
        for end in [end for end in self._ends if end.host is host]:
            self.hang_up(end)
