"""All client sessions of one node: handshakes, dispatch, and what a node says that does not serve (spec 3, 4).

The node sets `desk` while this process leads and serves, `holding` while it leads but may not answer yet, and
`leader_address` while it knows who serves. Everything else is decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator

from ticketing.locks.desk import Desk
from ticketing.locks.held_keys import HeldKeys
from ticketing.node.session import ClientSession
from ticketing.node.settings import NodeSettings, S
from ticketing.node.shell import Shell
from ticketing.protocol import frames
from ticketing.protocol.decoder import Request
from ticketing.protocol.handshake import (
    NONCE_BYTES,
    OK,
    Banner,
    ServerHandshake,
    build_banner,
    first_line,
    new_nonce,
)

KEEPALIVE_NS = 3 * S
"""A session to which nothing was written for this long gets a `\\n` (spec 3)."""
SCAN_TICKS = 10
"""Every session is looked at for its keep-alive once in so many ticks of the node's housekeeping."""
SCAN_NS = S // 2
"""So a session that is passed over now is looked at again this much later."""
HELD_SLICE = 1_000
"""Held requests that reach the desk in one turn."""
_GRANTS = (frames.GRANTED, frames.GRANTED_WAITED)
_OUTLIVING = (frames.RELEASE, frames.CANCEL)
"""What was said to free a key stands, also where whoever said it has closed since; what waits ends with its session."""
ANNOUNCE_SLICE = 500
"""Sessions told of a new leader, or probed, in one turn: each is a write of its own."""


class Clients:
    """The sessions of one node, authenticated or not."""

    def __init__(self, settings: NodeSettings, shell: Shell, address: str) -> None:
        self._shell = shell
        self._settings = settings
        self._address = address
        self.tokens = settings.client_tokens
        self.domain_shown: str | None = None
        """`<first token>.<domain id>` once this process is a member of a domain."""
        self.desk: Desk | None = None
        """Set only while this process leads, serves and may answer."""
        self.holding = settings.standalone
        """This process leads but may not answer yet: requests are held, bounded."""
        self.active = settings.standalone
        """This process is a member of a domain."""
        self.stopping = False
        self.leader_address: str | None = address if settings.standalone else None
        """Client address of the leader, while one is known to serve. A standalone node is its own from the start."""
        self.moved_to: str | None = None
        """Client address of the leader, whether or not it serves yet: for `M`."""
        self.dirty: list[ClientSession] = []
        self._opening: dict[ClientSession, None] = {}
        self._ready: dict[ClientSession, None] = {}
        self.desk_of_lead: Desk | None = None
        """The desk of the present lead whether or not it may answer: the ends of sessions always reach it."""
        self.mute = False
        """This process leads and a majority has yet to confirm it: what is in `out` stays there."""
        self.overtaken_by: HeldKeys | None = None
        """Answers in `out` may be older than the state: a grant among them is told only if it still holds here."""
        self._by_source: dict[str, _Source] = {}
        self._held: deque[tuple[ClientSession, Request, int]] = deque()
        self._serving: Desk | None = None
        """Becomes `desk` once everything held has reached it."""
        self._scan: deque[ClientSession] = deque()
        self._announcing: Iterator[ClientSession] | None = None
        self._probing: deque[Iterator[ClientSession]] = deque()
        """Sessions of hosts that may be dead, still to be probed; one for each host, at most once in 3 s."""
        self.counters: dict[str, int] = {
            "sessions_opened": 0,
            "auth_failed": 0,
            "not_leading": 0,
            "held_back_full": 0,
            "moved": 0,
            "bad_frame": 0,
            "too_many_sessions": 0,
            "overtaken": 0,
        }

    # --- facts for status

    @property
    def ready_count(self) -> int:
        """Authenticated sessions."""
        return len(self._ready)

    @property
    def opening_count(self) -> int:
        """Connections that have not authenticated yet."""
        return len(self._opening)

    def remotes_of(self, name: str, limit: int) -> list[str]:
        """Where sessions with this name come from, at most `limit`: some hundred microseconds at 20,000 sessions."""
        found: list[str] = []
        for session in self._ready:
            if session.name == name:
                found.append(session.remote)
                if len(found) == limit:
                    break
        return found

    def remotes_by_name(self, names: Container[str]) -> dict[str, str]:
        """One address for each of these names that a session goes by, in one pass over the sessions."""
        return {session.name: session.remote for session in self._ready if session.name in names}

    # --- a connection's life

    def opened(self, source: str, remote: str) -> ClientSession:
        """Begins a session: the banner goes out before anything is read (spec 3, Handshake)."""
        shell = self._shell
        nonce = new_nonce(shell.random_bytes(NONCE_BYTES))
        banner = build_banner(
            Banner(
                nonce,
                extended=True,
                standalone=self._settings.standalone,
                domain=self.domain_shown,
                node_address=self._address,
            )
        )
        handshake = ServerHandshake(banner, nonce, self.tokens)
        session = ClientSession(source, remote, handshake, shell.elapsed_ns())
        session.domain = self.domain_shown
        self._opening[session] = None
        if self.stopping:
            self._finish(session, b"Eshutting_down\n")
        else:
            shell.write(session, banner)
        return session

    def data(self, session: ClientSession, data: bytes, now_ns: int) -> None:
        """Bytes of a client; the hot path of the node. `now_ns` was read after them: what `waited` and every stamp
        rest on (spec 3, 7).
        """
        if session.ended:
            return
        if session.handshake is not None:
            rest = self._handshake(session, session.handshake, data)
            if not rest:
                return
            data = rest
        session.heard_ns = now_ns
        requests = session.decoder.feed(data)
        if requests:
            if self.desk is not None:
                dispatch(self.desk, session, requests, now_ns)
            else:
                self._without_desk(session, requests, now_ns)
        problem = session.decoder.problem
        if problem is not None and not session.ended:
            self.counters["bad_frame"] += 1
            detail = session.decoder.detail
            self._shell.log("warning", "bad frame", remote=session.remote, reason=problem, detail=detail)
            self.end(session, frames.encode_error(problem))

    def rest(self, session: ClientSession, data: bytes, now_ns: int) -> None:
        """Bytes of a client that were read before its connection was over, which is told already: of them only what
        frees a key is taken, and nobody is answered.
        """
        requests = [request for request in session.decoder.feed(data) if request[0] in _OUTLIVING]
        if self.desk is not None:
            dispatch(self.desk, session, requests, now_ns)
        elif self.holding:
            for request in requests:
                if len(self._held) < self._settings.limits.held_back:
                    self._held.append((session, request, now_ns))
                else:
                    self.counters["held_back_full"] += 1

    def overdue(self, session: ClientSession) -> None:
        """The handshake's deadline has passed (spec 3)."""
        if session.handshake is not None and not session.ended:
            self._shell.log("info", "handshake took too long", remote=session.remote)
            self._finish(session, b"Eauth_timeout\n")

    def slow(self, session: ClientSession) -> None:
        """The session's write buffer was full for too long (spec 4)."""
        if not session.ended:
            self._shell.log("warning", "slow consumer", remote=session.remote)
            self.end(session, frames.encode_error("slow_consumer"))

    def ended(self, session: ClientSession, *, by_timeout: bool) -> None:
        """The connection is over. Its waiting requests leave the queues at once; what it holds stays (spec 4)."""
        self._opening.pop(session, None)
        if self._ready.pop(session, False) is None:
            source = self._by_source[session.source]
            del source.sessions[session]
            if not source.sessions:
                del self._by_source[session.source]
            elif by_timeout:
                self._probe_source(source, self._shell.elapsed_ns())
        self._forget(session, by_timeout=by_timeout)

    def end(self, session: ClientSession, last: bytes) -> None:
        """Ends a session of our own accord: what stands in its `out` still goes, then `last`, then EOF (spec 3)."""
        if session.out and not self.mute:
            self._revise(session)
            self._shell.write(session, b"".join(session.out))
            session.out.clear()
        # What is still in `out` was not handed to the transport, so a grant in it is released by the desk.
        self._forget(session, by_timeout=False)
        self._finish(session, last)

    def _forget(self, session: ClientSession, *, by_timeout: bool) -> None:
        if session.ended:
            return
        session.ended = True
        if session.handshake is None and self.desk_of_lead is not None:
            self.desk_of_lead.session_ended(session, self._shell.elapsed_ns(), by_timeout=by_timeout)
        session.out.clear()

    def _finish(self, session: ClientSession, last: bytes) -> None:
        session.ended = True
        self._shell.finish(session, last)

    def domain_is(self, shown: str | None) -> None:
        """This process belongs to another domain from now on, or to none. Sessions whose banner named the former one
        end: what they were told of its tickets is not true of the new one's.
        """
        self.domain_shown = shown
        self.active = shown is not None
        last = frames.encode_error("shutting_down")
        for session in (*self._ready, *self._opening):
            if session.domain not in (None, shown) and not session.ended:
                self.end(session, last)

    def close_all(self, reason: str) -> None:
        """The process stops: every session is told so."""
        last = frames.encode_error(reason)
        for session in (*self._ready, *self._opening):
            if not session.ended:
                self._revise(session)
                pending = b"" if self.mute else b"".join(session.out)
                session.out.clear()
                self._finish(session, pending + last)

    # --- handshake

    def _handshake(self, session: ClientSession, handshake: ServerHandshake, data: bytes) -> bytes:
        handshake.feed(data)
        outcome = handshake.outcome
        if outcome is None:
            return b""
        if outcome == frames.AUTH_FAILED:
            self.counters["auth_failed"] += 1
            self._shell.log(
                "warning", "authentication failed", remote=session.remote, detail=handshake.detail
            )
            session.ended = True
            self._shell.refuse(session, b"Eauth_failed\n")
            return b""
        if outcome != OK:
            self.counters["bad_frame"] += 1
            self._shell.log(
                "warning",
                "not a client of ours",
                remote=session.remote,
                reason=outcome,
                detail=handshake.detail,
            )
            self._finish(session, frames.encode_error(outcome))
            return b""
        if self.stopping:
            self._finish(session, b"Eshutting_down\n")
            return b""
        if len(self._ready) >= self._settings.limits.sessions:
            self.counters["too_many_sessions"] += 1
            self._shell.log("warning", "too many sessions", remote=session.remote)
            self._finish(session, b"Etoo_many_sessions\n")
            return b""
        session.handshake = None
        self._opening.pop(session, None)
        self._ready[session] = None
        source = self._by_source.get(session.source)
        if source is None:
            source = self._by_source[session.source] = _Source()
        source.sessions[session] = None
        self._scan.append(session)
        self.counters["sessions_opened"] += 1
        self._shell.admitted(session)
        self._shell.write(session, first_line(self.leader_address))
        session.written_ns = self._shell.elapsed_ns()
        return handshake.rest

    # --- requests while this process does not serve

    def _without_desk(self, session: ClientSession, requests: list[Request], now_ns: int) -> None:
        for request in requests:
            if session.ended:
                return
            if request[0] == frames.HELLO:
                session.name = shown_name(request[4])
            elif not self.active:
                self._shell.log("info", "request before membership", remote=session.remote)
                self.end(session, frames.encode_error("not_active"))
            elif self.holding and len(self._held) < self._settings.limits.held_back:
                self._held.append((session, request, now_ns))
            else:
                if self.holding:
                    self.counters["held_back_full"] += 1
                self._stray(session, request)

    def _stray(self, session: ClientSession, request: Request) -> None:
        """A request on a node that does not lead (spec 4, Not leading)."""
        op, _wait, _lease, ident, key = request
        if op == frames.ACQUIRE or op == frames.Q:
            self.counters["not_leading"] += 1
            encode = frames.encode_busy if op == frames.ACQUIRE else frames.encode_not_leading
            self._append(session, encode(ident, key))
            if self.leader_address is not None:
                self._append(session, frames.encode_leader(self.leader_address))
        else:
            self.move(session)

    def move(self, session: ClientSession) -> None:
        """Ends a session that has a request which cannot be answered here: `M`, or `E no_leader`."""
        if session.ended:
            return
        self.counters["moved"] += 1
        leader = self.moved_to
        self.end(
            session, frames.encode_moved(leader) if leader is not None else frames.encode_error("no_leader")
        )

    def serve(self, desk: Desk) -> None:
        """The lead may answer from now on. `drain` follows."""
        self._serving = desk

    @property
    def may_drain(self) -> bool:
        """Whether `drain` may have something to do: False is certain."""
        return self._serving is not None or bool(self._held)

    def drain(self) -> bool:
        """One slice of the requests that were held reaches the desk, in their order, or is answered as on any node
        that does not lead; whether more are left.
        """
        desk, held = self._serving, self._held
        if desk is None and self.holding:
            return False
        for _ in range(min(HELD_SLICE, len(held))):
            session, request, read_ns = held.popleft()
            if session.ended and request[0] not in _OUTLIVING:
                continue
            if desk is not None:
                dispatch(desk, session, [request], read_ns)
            else:
                self._stray(session, request)
        if held:
            return True
        if desk is None:
            return False
        self.desk = desk
        self._serving = None
        self.holding = False
        return False

    def hold(self) -> None:
        """This process leads but may not answer (yet, or after a gap in its loop)."""
        self.desk = self._serving = None
        self.holding = True

    def stand_down(self) -> None:
        """This process does not lead (any more): what was held was never proposed and `drain` says so."""
        self.desk = self._serving = None
        self.holding = False

    # --- the leader's name

    def announce(self, address: str | None) -> None:
        """A leader serves (or none is known any more): the sessions are told `L` in slices."""
        if address == self.leader_address or self._settings.standalone:
            return
        self.leader_address = address
        self._announcing = iter(list(self._ready)) if address is not None else None

    def run_announcement(self) -> bool:
        """One slice of the announcement; whether more is left."""
        sessions, address = self._announcing, self.leader_address
        if sessions is None or address is None:
            return False
        frame = frames.encode_leader(address)
        for _ in range(ANNOUNCE_SLICE):
            session = next(sessions, None)
            if session is None:
                self._announcing = None
                return False
            if not session.ended:
                self._append(session, frame)
        return True

    # --- writing

    def _append(self, session: ClientSession, frame: bytes) -> None:
        session.out.append(frame)
        if not session.queued:
            session.queued = True
            self.dirty.append(session)

    def write_out(self, now_ns: int) -> None:
        """Hands everything that this turn answered to the transports: one write a session."""
        write = self._shell.write
        dirty = self.dirty  # the desks' own list: it stays the same one
        revise = self.overtaken_by is not None
        for session in dirty:
            session.queued = False
            if revise:
                self._revise(session)
            out = session.out
            if out and not session.ended:
                write(session, out[0] if len(out) == 1 else b"".join(out))
                session.written_ns = now_ns
            out.clear()
        dirty.clear()
        self.overtaken_by = None

    def take_grants(self) -> list[ClientSession]:
        """Takes the grants out of what waits to be written, and returns their sessions.

        For a lead that ended before a majority had confirmed it: nobody here can say whether they still hold.
        """
        sessions = []
        for session in self.dirty:
            others = [frame for frame in session.out if frame[0] not in _GRANTS]
            if len(others) < len(session.out):
                session.out[:] = others
                sessions.append(session)
        return sessions

    def _revise(self, session: ClientSession) -> None:
        """A grant whose token no longer holds the key is told as `T` (spec 4)."""
        holds = self.overtaken_by
        if holds is None:
            return
        out = session.out
        for place, frame in enumerate(out):
            if frame[0] == frames.GRANTED:
                header = frames.GRANTED_HEADER
            elif frame[0] == frames.GRANTED_WAITED:
                header = frames.GRANTED_WAITED_HEADER
            else:
                continue
            token, owner = header.unpack_from(frame)[1:3]
            key = frame[header.size : -1]
            held = holds.get(key)
            if held is None or held.token != token:
                self.counters["overtaken"] += 1
                out[place] = frames.encode_timeout(owner, key)

    # --- keep-alives and probes

    def tick(self, now_ns: int) -> None:
        """A slice of the round over all sessions that gives the silent ones their keep-alive."""
        scan = self._scan
        for _ in range(len(scan) // SCAN_TICKS + 1):
            if not scan:
                return
            session = scan.popleft()
            if session.ended:
                continue
            if now_ns - session.written_ns >= KEEPALIVE_NS - SCAN_NS:
                self._append(session, frames.KEEPALIVE)
            scan.append(session)

    def probe(self, session: ClientSession) -> None:
        """Finds out whether a session's client is still there: a dead one's kernel will not acknowledge this."""
        now_ns = self._shell.elapsed_ns()
        if not session.ended and now_ns - session.probed_ns >= KEEPALIVE_NS:
            session.probed_ns = now_ns
            self._append(session, frames.KEEPALIVE)

    def _probe_source(self, source: _Source, now_ns: int) -> None:
        """A session died of silence: the others of its source may have died with their host (spec 4)."""
        if source.probed_ns is not None and now_ns - source.probed_ns < KEEPALIVE_NS:
            return
        source.probed_ns = now_ns
        self._probing.append(iter(list(source.sessions)))

    def run_probes(self, now_ns: int) -> bool:
        """One slice of the sessions to be probed; whether more are left."""
        probing = self._probing
        left = ANNOUNCE_SLICE
        while probing and left:
            session = next(probing[0], None)
            if session is None:
                probing.popleft()
            elif not session.ended:
                left -= 1
                if now_ns - session.heard_ns >= KEEPALIVE_NS:
                    self.probe(session)
        return bool(probing)


class _Source:
    """The sessions of one client host."""

    __slots__ = ("probed_ns", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[ClientSession, None] = {}
        self.probed_ns: int | None = None


def dispatch(desk: Desk, session: ClientSession, requests: list[Request], now_ns: int) -> None:
    """Hands decoded requests to the desk, in the session's order."""
    for op, wait, lease, ident, key in requests:
        if op == frames.ACQUIRE or op == frames.Q:
            desk.acquire(session, op, wait, lease, ident, key, now_ns)
        elif op == frames.RELEASE:
            desk.release(session, ident, key, now_ns)
        elif op == frames.CANCEL:
            desk.cancel(session, ident, key, now_ns)
        elif op == frames.EXTEND:
            desk.extend(session, ident, lease, key, now_ns)
        else:
            session.name = shown_name(key)


def shown_name(text: bytes) -> str:
    """What a client calls itself, whatever bytes it sent: it is for people only and no reason to end a session."""
    return text.decode("utf-8", "replace")
