"""Clients that speak the wire, in good manners and bad, and write down what they saw in true time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.history import LOST, History, Hold, Request
from tests.sim.manners import Manners
from tests.sim.mistakes import draw_mistake, encode_mistake
from tests.sim.network import End, Network
from tests.sim.sessions import TOP_BIT, Session
from tests.sim.world import MS, Clock, S, Violation, World
from ticketing.protocol import frames
from ticketing.protocol.handshake import READY

SILENT_NS = 10 * S
LET_IN_NS = 3 * S
"""From dialling to authentication; who is not let in by then goes on to the next address."""
LEADERLESS_MAX = 3
"""Looks, a second apart. The library keeps a session to each address, so that it is not bound to such a node."""
SESSIONS_REMEMBERED = 64
STAYS_NS = 1500 * MS
CONNECT_WITHIN_NS = 300 * MS
BACK_OFF_MAX_NS = 800 * MS


class Client:
    """One client process. `addresses` are those of all places, each with its machine."""

    def __init__(
        self,
        world: World,
        network: Network,
        clock: Clock,
        history: History,
        manners: Manners,
        addresses: dict[str, str],
        name: str,
        next_session: Callable[[], int],
        companions: Sequence[Client],
    ) -> None:
        self.world = world
        self.network = network
        self.clock = clock
        self.history = history
        self.manners = manners
        self.name = name
        self.alive = True
        self.grants = 0
        self._addresses = addresses
        self._next_address = world.rng.randrange(64)
        self._next_session = next_session
        self._companions = companions
        self._session: Session | None = None
        self._hint: str | None = None
        self._back_off_ns = 100 * MS
        self._to_cancel: list[tuple[int, bytes]] = []
        self._to_release: list[Hold] = []
        self._to_resend: list[Request] = []
        self._former: str | None = None
        self._stays_until_ns = 0
        self._thinking = False
        world.after(world.between(0, CONNECT_WITHIN_NS), self._connect)
        world.after(S, self._watch)

    @property
    def ready(self) -> bool:
        """Whether it has a session."""
        return self._session is not None and self._session.ready

    @property
    def machine(self) -> str | None:
        """Where its session is, or would be."""
        return None if self._session is None else self._addresses[self._session.address]

    # --- connecting

    def _connect(self) -> None:
        if not self.alive or self._session is not None:
            return
        world = self.world
        address, self._hint = self._hint, None
        if address not in self._addresses:
            addresses = list(self._addresses)
            address = addresses[self._next_address % len(addresses)]
            self._next_address += 1
        session = self._session = Session(self._next_session(), address)
        session.heard_ns = world.now
        self.history.nodes[session.number] = address
        session.end = self.network.dial(self, self.name, address, self._addresses[address], "client")
        session.end.io = session

    def accepted(self, end: End, purpose: str) -> None:
        raise AssertionError("nobody dials a client")

    def connected(self, end: End) -> None:
        pass

    def refused(self, end: End, *, by_host: bool) -> None:
        self._over(end.io)

    def lost(self, end: End, *, by_timeout: bool) -> None:
        self._over(end.io)

    def _leave(self, session: Session, hint: str | None) -> None:
        """Ends a session of our own accord."""
        self._hint = hint
        self.network.hang_up(session.end)
        self._over(session)

    def wander(self) -> None:
        """Turns to any node, and waits there for a while for it to lead or to name another leader than now."""
        session = self._session
        if self.alive and session is not None and session.ready:
            self._former = session.leader
            self._stays_until_ns = self.world.now + STAYS_NS
            self._leave(session, None)

    def _over(self, session: object) -> None:
        if not isinstance(session, Session) or session is not self._session or not self.alive:
            return
        world = self.world
        self._session = None
        self.history.ended_sessions[session.number] = world.now
        for requests in session.open.values():
            for request in requests:
                request.answer = LOST
                request.answered_ns = world.now
                if request.op == "R":
                    self._to_release += (
                        hold
                        for hold in self.history.holds
                        if (hold.token, hold.key) == (request.ident, request.key)
                    )
                if request.op not in "AQ":
                    continue
                if self.manners.resend and world.rng.random() < self.manners.resend:
                    self._to_resend.append(request)
                elif world.chance(self.manners.cancel_lost):
                    self._to_cancel.append((request.ident, request.key))
        session.open.clear()
        del self._to_cancel[:-SESSIONS_REMEMBERED]
        del self._to_resend[:-SESSIONS_REMEMBERED]
        del self._to_release[:-SESSIONS_REMEMBERED]
        self._back_off_ns = 100 * MS if session.ready else min(2 * self._back_off_ns, BACK_OFF_MAX_NS)
        wait = 1 * MS if self._hint is not None and session.ready else self._back_off_ns
        world.after(world.between(wait // 2, wait), self._connect)

    def _watch(self) -> None:
        if not self.alive:
            return
        self.world.after(S, self._watch)
        session = self._session
        if session is None:
            return
        session.leaderless = session.leaderless + 1 if session.ready and session.leader is None else 0
        silent_max_ns = SILENT_NS if session.ready else LET_IN_NS
        if self.world.now - session.heard_ns > silent_max_ns or session.leaderless > LEADERLESS_MAX:
            self._leave(session, None)

    # --- asking

    def _think_soon(self) -> None:
        if not self._thinking:
            self._thinking = True
            self.world.after(self.world.between(*self.manners.think_ns), self._think)

    def _think(self) -> None:
        """Asks for the next thing. It goes on with the next reply where nothing can be done before."""
        self._thinking = False
        session = self._session
        if not self.alive or session is None or not session.ready:
            return
        world, manners = self.world, self.manners
        if world.chance(manners.garbage):
            self._send_raw(session, world.rng.randbytes(world.rng.randrange(1, 40)))
            session.garbled = True
            self._think_soon()
            return
        if world.chance(manners.mistakes):
            self._make_mistake(session)
        if session.leads:
            self._catch_up(session)
        if len(session.open) >= manners.outstanding:
            return
        if session.leads or world.chance(manners.stray):
            self.acquire(session)
        elif session.leader == self._former and world.now < self._stays_until_ns:
            pass
        elif session.leader is not None and session.leader != session.own:
            self._leave(session, session.leader)
            return
        elif not manners.stray:
            return
        self._think_soon()

    def _catch_up(self, session: Session) -> None:
        """What waited for a leader."""
        for owner, key in self._to_cancel:
            self._cancel(session, owner, key)
        self._to_cancel.clear()
        for hold in self._to_release:
            self._release(session, hold)
        self._to_release.clear()
        for request in self._to_resend:
            self._resend(session, request)
        self._to_resend.clear()

    def acquire(self, session: Session) -> None:
        """One new request."""
        world, manners = self.world, self.manners
        key = b"%b-%d" % (manners.prefix, world.rng.randrange(manners.keys))
        wait = world.rng.choice(manners.waits)
        lease = world.rng.choice(manners.leases)
        owner = world.rng.getrandbits(63) | TOP_BIT
        op = "A" if world.chance(manners.legacy) else "Q"
        request = Request(op, key, owner, session.number, world.now, wait=wait, lease=lease)
        encode = frames.encode_acquire if op == "A" else frames.encode_q
        self._send(session, request, "acquire", encode(wait, lease, owner, key))
        if wait and world.chance(manners.cancel):
            world.after(world.between(0, wait * S), lambda: self._cancel_if_open(session, request))

    def _resend(self, session: Session, lost: Request) -> None:
        """The same request once more, as published clients do: its lease counts from the first time."""
        left_ns = max(lost.sent_ns + lost.wait * S - self.world.now, 0)
        copy = Request(
            lost.op,
            lost.key,
            lost.ident,
            session.number,
            self.world.now,
            wait=-(-left_ns // S),
            lease=lost.lease,
        )
        copy.first_ns = lost.first_ns
        encode = frames.encode_acquire if copy.op == "A" else frames.encode_q
        self._send(session, copy, "acquire", encode(copy.wait, copy.lease, copy.ident, copy.key))
        copy.clock_ns = lost.clock_ns

    def _cancel_if_open(self, session: Session, request: Request) -> None:
        if request.answer is None and self._session is session and self.alive:
            self._cancel(session, request.ident, request.key)

    def _cancel(self, session: Session, owner: int, key: bytes) -> None:
        for hold in self.history.holds:
            if hold.request.ident == owner and hold.released_ns is None:
                hold.released_ns = self.world.now
        request = Request("C", key, owner, session.number, self.world.now)
        self._send(session, request, "cancel", frames.encode_cancel(owner, key))

    def _release(self, session: Session, hold: Hold) -> None:
        if hold.released_ns is None:
            hold.released_ns = self.world.now
        request = Request("R", hold.key, hold.token, session.number, self.world.now)
        self._send(session, request, "release", frames.encode_release(hold.token, hold.key))

    def release_for_another(self, hold: Hold) -> bool:
        """Releases what another client holds; whether there is a session for it."""
        session = self._session
        if not self.alive or session is None or not session.ready:
            return False
        self._release(session, hold)
        return True

    def extend_for_another(self, hold: Hold) -> None:
        """Extends it; nobody counts on the answer."""
        session = self._session
        if self.alive and session is not None and session.ready and hold.released_ns is None:
            self._send_extend(session, hold)

    def _extend(self, hold: Hold) -> None:
        session = self._session
        if not self.alive or session is None or not session.ready or hold.released_ns is not None:
            return
        if self.world.chance(self.manners.elsewhere):
            self.world.rng.choice(self._companions).extend_for_another(hold)
            return
        self._send_extend(session, hold)

    def _make_mistake(self, session: Session) -> None:
        made = draw_mistake(self.world.rng, self.history)
        if made is not None:
            op, key, ident = made
            request = Request(op, key, ident, session.number, self.world.now, lease=int(op == "X"))
            kind, frame = encode_mistake(request)
            self._send(session, request, kind, frame)

    def _send_extend(self, session: Session, hold: Hold) -> None:
        lease = self.world.rng.choice((1, 2, 5))
        request = Request("X", hold.key, hold.token, session.number, self.world.now, lease=lease)
        self._send(session, request, "extend", frames.encode_extend(hold.token, lease, hold.key))

    def _send(self, session: Session, request: Request, kind: str, frame: bytes) -> None:
        request.clock_ns = self.clock.elapsed_ns()
        session.open.setdefault((request.ident, request.key, kind), []).append(request)
        self.history.add(request)
        if self.world.log is not None:
            self.world.say(self.name, "ask", repr(request))
        self._send_raw(session, frame)

    def _send_raw(self, session: Session, data: bytes) -> None:
        self.network.send(session.end, data)

    # --- hearing

    def arrived(self, end: End, data: bytes) -> None:
        session = end.io
        if not isinstance(session, Session) or session is not self._session or not self.alive:
            return
        session.heard_ns = self.world.now
        handshake = session.handshake
        if handshake is not None:
            answer = handshake.feed(data)
            if answer:
                self._send_raw(session, answer)
            if handshake.outcome is None:
                return
            if handshake.outcome != READY:
                self._leave(session, None)
                return
            session.handshake = None
            session.leader = handshake.leader
            session.own = handshake.banner.node_address if handshake.banner is not None else None
            data = handshake.rest
            self._think_soon()
        replies = session.decoder.feed(data)
        if session.decoder.problem is not None:
            raise Violation("malformed reply", f"{self.name}: {session.decoder.detail}")
        for opcode, token, owner, waited_ms, key in replies:
            if self._session is not session:
                return
            self._reply(session, chr(opcode), token, owner, waited_ms, key)

    def _reply(
        self, session: Session, opcode: str, token: int, owner: int, waited_ms: int, key: bytes
    ) -> None:
        self._think_soon()
        if opcode == "L":
            session.leader = key.decode()
        elif opcode in "ME":
            if opcode == "E" and key == b"bad_frame" and not self.manners.garbage:
                raise Violation("bad_frame", f"{self.name} sent none")
            self._leave(session, key.decode() if opcode == "M" else None)
        elif opcode in "AGTBV":
            self._answered(session, opcode, token, owner, waited_ms, key, "acquire")
        elif token & TOP_BIT:
            waits = (token, key, "acquire") in session.open
            self._answered(session, opcode, 0, token, 0, key, "cancel")
            if waits:
                # One answer for both: it was taken out of the queue.
                self._answered(session, "R", 0, token, 0, key, "acquire")
        elif opcode == "X":
            self._answered(session, opcode, token, token, 0, key, "extend")
        elif opcode == "R" or (token, key, "release") in session.open:
            self._answered(session, opcode, token, token, 0, key, "release")
        else:
            self._answered(session, opcode, token, token, 0, key, "extend")

    def _answered(
        self, session: Session, opcode: str, token: int, ident: int, waited_ms: int, key: bytes, kind: str
    ) -> None:
        requests = session.open.get((ident, key, kind))
        if requests is None and self.manners.garbage:
            self._leave(session, None)  # what it sent went together with the frame behind it
            return
        if requests is None:
            raise Violation("uncorrelated reply", f"{self.name}: {opcode} {ident:x} {key!r}")
        request = requests.pop(0)
        if not requests:
            del session.open[ident, key, kind]
        now = self.world.now
        request.answer = opcode
        request.answered_ns = now
        request.token = token
        request.waited_ms = waited_ms
        self.history.was_read(request, now)
        if self.world.log is not None:
            self.world.say(self.name, "answer", repr(request))
        if opcode in "AG":
            self._granted(request)
        elif kind == "cancel":
            self.history.on_cancel_answered(ident, key)
            if self.world.chance(self.manners.late_copies) and (ident, key, kind) not in session.open:
                self._send_late_copy(session, request)
        elif opcode == "V":
            session.leader = None
        elif opcode == "X":
            self._extended(session, request)

    def _send_late_copy(self, session: Session, cancel: Request) -> None:
        """What was sent on a session that is over can still come: here it does, behind its cancel."""
        for former in reversed(self.history.requests):
            if former.op in "AQ" and former.ident == cancel.ident:
                if former.session != session.number:
                    copy = Request(
                        "Q",
                        former.key,
                        former.ident,
                        session.number,
                        self.world.now,
                        wait=former.wait,
                        lease=former.lease,
                    )
                    frame = frames.encode_q(copy.wait, copy.lease, copy.ident, copy.key)
                    self._send(session, copy, "acquire", frame)
                return

    def _granted(self, request: Request) -> None:
        world, manners = self.world, self.manners
        read_ns = self.clock.elapsed_ns()
        waited_ns = request.waited_ms * MS
        end_ns = request.clock_ns + (request.lease * S + waited_ns) * 998 // 1000
        end_ns = min(end_ns, read_ns + request.lease * S * 998 // 1000)
        hold = Hold(request, request.token, world.now, self.clock.true_ns(end_ns))
        self.history.holds.append(hold)
        self.grants += 1
        if (request.ident, request.key) in self._to_cancel or self._is_cancelling(request):
            hold.released_ns = world.now
            return
        if world.chance(manners.abandon):
            return
        keep_ns = world.between(*manners.hold_ns)
        if world.chance(manners.late):
            keep_ns = request.lease * S + world.between(-10 * MS, 200 * MS)
        if world.chance(manners.extend):
            if request.lease < 30 and world.chance(0.5):
                # It relies on the extension.
                keep_ns = request.lease * S + world.between(0, 2 * S)
            world.after(world.between(0, request.lease * S), lambda: self._extend(hold))
            for _ in range(manners.extend_times - 1):
                world.after(int(keep_ns * world.rng.random()), lambda: self._extend(hold))
        world.after(max(keep_ns, 0), lambda: self._done(hold))

    def _is_cancelling(self, request: Request) -> bool:
        session = self._session
        return session is not None and (request.ident, request.key, "cancel") in session.open

    def _done(self, hold: Hold) -> None:
        if not self.alive:
            return
        if hold.released_ns is None:
            session = self._session
            if self.world.chance(self.manners.elsewhere) and self.world.rng.choice(
                self._companions
            ).release_for_another(hold):
                return
            if session is not None and session.ready and (session.leads or self.world.chance(0.2)):
                self._release(session, hold)
                if self.world.chance(0.05):
                    self._release(session, hold)
            else:
                hold.released_ns = self.world.now
                self._to_release.append(hold)

    def _extended(self, session: Session, request: Request) -> None:
        earliest = request.clock_ns
        for other in session.open.get((request.ident, request.key, "extend"), ()):
            earliest = min(earliest, other.clock_ns)
        for hold in reversed(self.history.holds):
            if hold.token == request.ident and hold.key == request.key:
                until_ns = self.clock.true_ns(earliest + request.lease * S * 998 // 1000)
                hold.until_ns = max(hold.until_ns, until_ns)
                return

    # --- the end

    def vanish(self, *, power: bool) -> None:
        """The client is gone: its process, or its machine."""
        if self.alive:
            self.alive = False
            self.world.say(self.name, "power off" if power else "vanish")
            if self._session is not None:
                self.history.ended_sessions[self._session.number] = self.world.now
            if power:
                self.network.power_off(self.name)
            self.network.drop_host(self)

    def unanswered(self, before_ns: int) -> Request | None:
        """A request on the living session that should have had its answer by `before_ns`."""
        session = self._session
        if session is None or not session.ready or not self.alive or session.garbled:
            return None
        for requests in session.open.values():
            for request in requests:
                if request.sent_ns + request.wait * S < before_ns:
                    return request
        return None
