"""One session: handshake, what was sent and waits for its answer, deadlines. The lowest layer of the client.

A session is an `asyncio.BufferedProtocol` and decides nothing about the cluster: it reports to its `Keeper`. Requests
of one loop turn leave in one write, the first of an idle session at once. A request is *queued* until then, and
provably unsent; from the reading of the clock before that write on any byte of it may have left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, Protocol, cast

from ticketing.client.alarm import NEVER, Alarm
from ticketing.client.clock import MILLISECOND, SECOND, Clock
from ticketing.client.pending import ErrandKeeper, Pending
from ticketing.client.requests import (
    ABANDONED,
    LOST,
    QUEUED,
    SENT,
    WAIT_OVER,
    WITHDRAWN,
    Acquire,
    Errand,
)
from ticketing.protocol import frames
from ticketing.protocol.decoder import ReplyDecoder
from ticketing.protocol.fields import OWNER_BYTES, OWNER_TOP_BIT, escaped
from ticketing.protocol.frames import (
    BUSY,
    ERROR,
    EXTENDED,
    GRANTED,
    GRANTED_WAITED,
    LEADER,
    MOVED,
    NOT_HELD,
    NOT_LEADING,
    RELEASE,
    RELEASED,
    TIMEOUT,
    Q,
    encode_hello,
)
from ticketing.protocol.handshake import PROTOCOL, READY, Banner, ClientHandshake

STEP_NS = 3 * SECOND
"""For each of connecting, TLS, banner and first line."""
SILENCE_NS = 10 * SECOND
"""A session that hears nothing for so long is lost; a server writes at least every 3 s."""
ANSWER_NS = 5 * SECOND
"""An acquire unanswered for so long after its wait has lost its answer."""
DISOWNED_NS = 2 * SECOND
"""An acquire unanswered for so long after another node was named as the leader has lost its answer."""
TRY_NS = 3 * SECOND // 2
"""One try of a release or an extension."""
CANCEL_NS = 3 * SECOND
"""An unanswered cancel closes its session after this."""
FLUSH_S = 1.0
"""What is written may take so long when a session is closed in order."""
WRITE_BUFFER = 256 * 1024
READ_BUFFER = 64 * 1024
"""Of our own, as asyncio would make one of 256 KiB for each read, which the system maps and unmaps every time."""
BATCH = 1024
"""Requests in one write at most: between writes the transport can say that it is full."""
# Encoders of the protocol assert what `arguments` has checked; the hot ones are spelled out here.
_pack_acquire = frames.ACQUIRE_HEADER.pack
_pack_id = frames.ID_HEADER.pack
_owners = Struct(">Q").iter_unpack

# What a node says of itself, or others of it.
UNKNOWN = 0
LEADS = 1
FOLLOWS = 2


class End(NamedTuple):
    """Why a session is over: `kind` is an error kind, or an `E` reason or `M` as the server gave it."""

    kind: str
    detail: str


class Keeper(Protocol):
    """What a session reports to."""

    def session_ready(self, session: Session) -> None:
        """The handshake is over: `banner` and `leader` are known."""

    def session_named(self, session: Session, address: str) -> None:
        """An `L`, or an `M` (the session ends right after it)."""

    def session_disowned(self, session: Session) -> None:
        """A `V`: the node of this session does not lead."""

    def session_granted(self, session: Session) -> None:
        """The first grant of this session: its node serves."""

    def session_ended(self, session: Session, unsent: list[Acquire], lost: list[Acquire]) -> None:
        """The session is over. Of `lost` any byte may have left, and there is no answer."""

    def grant_unwanted(self, session: Session, request: Acquire) -> None:
        """A grant came for a request that was given up: `request.token` has to be released."""


class Session(asyncio.BufferedProtocol):
    """See the module. `loop`, `clock` and the transport are all that it knows of the outside."""

    def __init__(
        self,
        keeper: Keeper,
        errands: ErrandKeeper,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        address: str,
        token: str,
        hello: bytes,
    ) -> None:
        self.address = address
        """What was dialled."""
        self.banner: Banner | None = None
        self.leader: str | None = None
        """Whom this node named last."""
        self.extended = False
        self.domain: str | None = None
        self.standing = UNKNOWN
        """Kept by the keeper."""
        self.open = False
        """From the handshake's end to the session's."""
        self.end: End | None = None
        self.ended: asyncio.Future[End] = loop.create_future()
        self.gone: asyncio.Future[None] | None = None
        """Done once the transport is closed, which takes longer than the end; None where there never was one."""
        self.opened_ns = NEVER
        self.turn_ns = 0
        """While requests are queued in this loop turn: a reading made in it; otherwise 0."""
        self._keeper = keeper
        self._errands = errands
        self._loop = loop
        self._clock = clock
        self._hello = hello
        self._handshake = ClientHandshake(token)
        self._decoder = ReplyDecoder()
        self._transport: asyncio.Transport | None = None
        self._queue: list[Acquire | Errand] = []
        self._flush_due = False
        self._alone = True
        """Whether the next request is likely to be the only one of its loop turn: so was the last answer."""
        self._paused = False
        self._acquires: dict[int, Acquire] = {}
        self._pending = Pending(errands)
        self._heard_ns = clock()
        self._step_by_ns = self._heard_ns + STEP_NS
        self._disowned_by_ns = NEVER
        self._alarm = Alarm(loop, clock, self._woken)
        self._granted_once = False
        self._buffer = memoryview(bytearray(READ_BUFFER))

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP and TLS stand; the server speaks first."""
        # Not asserted: uvloop's transports have no common base with asyncio's.
        transport = self._transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.gone = self._loop.create_future()
        now = self._clock()
        self._heard_ns = now
        self._step_by_ns = now + STEP_NS
        self._alarm.by(self._step_by_ns)
        if self.end is not None:
            transport.abort()

    def pause_writing(self) -> None:
        """What is queued from now on stays unsent."""
        self._paused = True

    def resume_writing(self) -> None:
        """The buffer has room again."""
        self._paused = False
        self._schedule_flush()

    def eof_received(self) -> bool:
        """Nothing more will be answered."""
        self.close("io", "the server closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, by whoever's doing."""
        if self.gone is not None and not self.gone.done():
            self.gone.set_result(None)
        self.close("io", f"the connection was lost: {exc}" if exc else "the server closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes are there."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes of the server."""
        if self.end is not None:
            return
        now = self._clock()
        self._heard_ns = now
        if not self.open:
            self._shake(data, now)
            return
        decoder = self._decoder
        replies = decoder.feed(data)
        self._alone = len(replies) == 1
        for reply in replies:
            opcode = reply[0]
            if opcode in _GRANTS:
                self._granted(reply, now)
            elif opcode in _IDENTIFIED:
                self._echoed(opcode, reply[1], reply[4])
            elif opcode in _TEXTS:
                self._told(opcode, reply[4])
            else:
                self._refused(opcode, reply[2], reply[4])
            if self.ended.done():
                return
        if decoder.problem is not None:
            self.close(PROTOCOL, f"malformed answer: {decoder.detail}")

    # --- the handshake

    def _shake(self, data: bytes, now: int) -> None:
        handshake = self._handshake
        assert self._transport is not None
        send = handshake.feed(data)
        if send:
            self._transport.write(send)
            self._step_by_ns = now + STEP_NS
            self._alarm.by(self._step_by_ns)
        if handshake.outcome is None:
            return
        if handshake.outcome != READY:
            detail = handshake.detail or f"the server refused the session: {handshake.outcome}"
            self.close(handshake.outcome, detail)
            return
        banner = handshake.banner
        assert banner is not None
        self.banner = banner
        self.extended = banner.extended
        self.domain = banner.domain
        self.leader = handshake.leader
        self.open = True
        self.opened_ns = now
        if self.extended and self._hello:
            self._transport.write(encode_hello(self._hello))
        self._alarm.by(now + SILENCE_NS)
        self._keeper.session_ready(self)
        if handshake.rest and self.end is None:
            self.data_received(handshake.rest)

    # --- requests

    def submit(self, item: Acquire | Errand, now: int = 0) -> None:
        """Sends a request: at once where it comes alone, otherwise joined with the others of this loop turn, at
        its end or once the transport has room. `now` may give a reading made just before.
        """
        assert self.end is None, self.end
        item.session = self
        if self._alone and not self._flush_due and not self._acquires and not self._paused:
            self._alone = False
            self._write([item], now or self._clock())
        else:
            self._queue.append(item)
            if not self._flush_due:
                self.turn_ns = now
                self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flush_due and self._queue:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what is queued, as far as there is room."""
        self._flush_due = False
        self.turn_ns = 0
        while self._queue and not self._paused and self.end is None:
            batch = self._queue
            if len(batch) > BATCH:
                batch, self._queue = batch[:BATCH], batch[BATCH:]
            else:
                self._queue = []
            # Read before anything can leave: leases are counted from here.
            self._write(batch, self._clock())

    def _write(self, batch: list[Acquire | Errand], now: int) -> None:
        assert self._transport is not None
        earliest = NEVER
        opcode = Q if self.extended else frames.ACQUIRE
        parts = []
        drawn: Iterator[tuple[int]] | None = None
        for item in batch:
            if type(item) is Acquire:
                # A cancelled caller may not have run yet.
                if item.state != QUEUED or item.future.done():
                    continue
                wait = item.wait_end_ns
                if wait:
                    wait = -((now - wait) // SECOND)
                    if wait <= 0:
                        item.settle(WAIT_OVER)
                        continue
                item.state = SENT
                item.sent_ns = now
                if drawn is None:
                    # One draw for all of this write, as it is a call of the system.
                    drawn = _owners(os.urandom(OWNER_BYTES * len(batch)))
                owner = item.owner = next(drawn)[0] | OWNER_TOP_BIT
                answer_by = now + wait * SECOND + ANSWER_NS
                self._acquires[owner] = item
                parts.append(_pack_acquire(opcode, wait, item.lease, owner) + item.key + b"\n")
            else:
                assert isinstance(item, Errand)
                if item.over or not self._pending.sending(item, now):
                    continue
                answer_by = now + (CANCEL_NS if item.fatal else TRY_NS)
                if item.opcode == RELEASE:
                    parts.append(_pack_id(RELEASE, item.ident) + item.key + b"\n")
                else:
                    parts.append(item.encode())
            item.answer_by_ns = answer_by
            if answer_by < earliest:
                earliest = answer_by
        if parts:
            if earliest < self._alarm.at_ns:
                self._alarm.by(earliest)
            self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])

    def withdraw(self, request: Acquire) -> None:
        """Takes back what was not sent."""
        assert request.state == QUEUED, request.state
        request.state = WITHDRAWN

    def abandon(self, request: Acquire, cancel: Errand) -> None:
        """Gives up a request that was sent: it is cancelled on this very session, or the session is closed.

        Published servers know no cancel; what their documents say is done there: the session is closed.
        """
        assert request.state == SENT, request.state
        assert request.session is self
        request.state = ABANDONED
        if self.end is not None:
            return
        if not self.extended:
            self.close("closed", "a request was cancelled")
            return
        cancel.fatal = True
        self.submit(cancel)

    def requests(self) -> list[Acquire]:
        """All acquires that are queued or without an answer."""
        queued = [item for item in self._queue if isinstance(item, Acquire)]
        return queued + list(self._acquires.values())

    # --- answers

    def _granted(self, reply: tuple[int, int, int, int, bytes], now: int) -> None:
        opcode, token, owner, waited_ms, key = reply
        request = self._acquires.get(owner)
        if request is None or request.key != key:
            if not self._pending.was_given_up((owner, key)):
                self._uncorrelated(opcode, key)
                return
            # Given up, and its cancel answered: a grant that came all the same is given back as well.
            request = Acquire(self._loop.create_future(), key, 0, 0)
            request.owner = owner
            request.state = ABANDONED
        elif (opcode == GRANTED_WAITED) is not self.extended or (
            waited_ms * MILLISECOND * 1000 > (now - request.sent_ns) * 1003 + 2000 * MILLISECOND
        ):
            self.close(PROTOCOL, f"malformed answer: a grant that waited {waited_ms} ms")
            return
        else:
            del self._acquires[owner]
        if not self._granted_once:
            self._granted_once = True
            self._keeper.session_granted(self)
        request.token = token
        request.waited_ms = waited_ms
        request.read_ns = now
        request.session = self
        if request.state == ABANDONED:
            self._keeper.grant_unwanted(self, request)
        else:
            request.settle(opcode)

    def _refused(self, opcode: int, owner: int, key: bytes) -> None:
        assert opcode in (TIMEOUT, BUSY, NOT_LEADING), opcode
        request = self._acquires.get(owner)
        if request is None or request.key != key:
            if not self._pending.was_given_up((owner, key)):
                self._uncorrelated(opcode, key)
            return
        if opcode == NOT_LEADING:
            if not self.extended:
                self._uncorrelated(opcode, key)
                return
            self._keeper.session_disowned(self)
        del self._acquires[owner]
        if request.state != ABANDONED:
            request.settle(opcode)

    def _echoed(self, opcode: int, number: int, key: bytes) -> None:
        if not self._pending.answer(opcode, number, key):
            self._uncorrelated(opcode, key)
        elif number >= OWNER_TOP_BIT and self._acquires.pop(number, None) is not None:
            # A request dequeued by its own cancel has no answer of its own.
            self._pending.give_up((number, key))

    def _told(self, opcode: int, text: bytes) -> None:
        if opcode == LEADER:
            self.leader = text.decode("ascii")
            self._keeper.session_named(self, self.leader)
        elif opcode == MOVED:
            address = text.decode("ascii")
            self._keeper.session_named(self, address)
            self.close("M", f"the server sends us to {address}")
        else:
            reason = text.decode("ascii")
            self.close(reason, f"the server ended the session: {escaped(text)}")

    def _uncorrelated(self, opcode: int, key: bytes) -> None:
        self.close(PROTOCOL, f"an answer '{chr(opcode)}' for '{escaped(key)}' to nothing that was sent")

    # --- deadlines

    def disown(self, now: int) -> None:
        """Another node was named as the leader: what is open here has to be answered soon."""
        if self._disowned_by_ns == NEVER:
            self._disowned_by_ns = now + DISOWNED_NS
            self._alarm.by(self._disowned_by_ns)

    def own(self) -> None:
        """This node was named as the leader."""
        self._disowned_by_ns = NEVER

    def _woken(self, now: int) -> None:
        if self.end is not None:
            return
        if not self.open:
            if now >= self._step_by_ns:
                line = "banner" if self._handshake.banner is None else "first line"
                self.close("timeout", f"no {line} of the server within {STEP_NS // SECOND} s")
            else:
                self._alarm.by(self._step_by_ns)
            return
        if now >= self._heard_ns + SILENCE_NS:
            self.close("io", f"the server was silent for {SILENCE_NS // SECOND} s")
            return
        next_ns = min(self._heard_ns + SILENCE_NS, self._acquires_due(now))
        if self.end is None:
            next_ns = min(next_ns, self._errands_due(now))
        if not self.ended.done():
            self._alarm.by(next_ns)

    def _acquires_due(self, now: int) -> int:
        earliest = NEVER
        disowned_by = self._disowned_by_ns
        for request in self._acquires.values():
            answer_by = request.answer_by_ns
            if disowned_by != NEVER and request.state == SENT:
                # One sent after the other was named has its own two seconds.
                answer_by = min(answer_by, max(disowned_by, request.sent_ns + DISOWNED_NS))
            if now >= answer_by:
                self.close("io", f"no answer to an acquire of '{escaped(request.key)}'")
                return NEVER
            if answer_by < earliest:
                earliest = answer_by
        return earliest

    def _errands_due(self, now: int) -> int:
        earliest, late = self._pending.due(now)
        for errand in late:
            if errand.fatal:
                self.close("io", f"no answer to a cancel of '{escaped(errand.key)}'")
                return NEVER
        self._pending.send_back(late)
        return earliest

    def forget(self, errand: Errand) -> None:
        """Its deadline is over: an answer that still comes is dropped."""
        self._pending.forget(errand)

    # --- the end

    def close(self, kind: str, detail: str, *, flush: bool = False) -> None:
        """Ends the session. All that was sent and not answered has no answer from here on.

        With `flush` the transport may still write what it holds, and the server read it.
        """
        if self.end is not None:
            return
        end = self.end = End(kind, detail)
        self.open = False
        self._alarm.stop()
        queue, self._queue = self._queue, []
        acquires, self._acquires = self._acquires, {}
        awaited = bool(acquires) or self._pending.awaits
        unsent = [item for item in queue if isinstance(item, Acquire) and item.state == QUEUED]
        errands = [item for item in queue if isinstance(item, Errand)]
        errands += self._pending.drain()
        self._drop_transport(flush, awaited)
        if not self.ended.done():
            self.ended.set_result(end)
        # Those whose callers are gone have a cancel under way, which comes back below.
        lost = [request for request in acquires.values() if request.state == SENT]
        self._keeper.session_ended(self, unsent, lost)
        for request in lost:
            if request.state == SENT:
                request.settle(LOST)
        for errand in errands:
            errand.session = None
            errand.fatal = False
            self._errands.back(errand)

    def _drop_transport(self, flush: bool, awaited: bool) -> None:
        transport, self._transport = self._transport, None
        # A transport of a closed loop can do nothing any more.
        if transport is None or self._loop.is_closed():
            return
        if flush:
            if awaited and transport.can_write_eof() and not transport.is_closing():
                # The server's to close: a socket closed with an answer unread takes what is not read over there along.
                try:
                    transport.write_eof()
                except OSError:  # reset, which the loop has yet to tell us
                    transport.abort()
            else:
                transport.close()
            # A peer that does not read must not keep the connection.
            self._loop.call_later(FLUSH_S, transport.abort)
        else:
            transport.abort()


_GRANTS = frozenset((GRANTED, GRANTED_WAITED))
_IDENTIFIED = frozenset((RELEASED, NOT_HELD, EXTENDED))
_TEXTS = frozenset((LEADER, MOVED, ERROR))
