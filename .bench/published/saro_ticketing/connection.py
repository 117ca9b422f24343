from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .errors import TicketError, err_aborted
from .protocol import OP_ACQUIRE, OP_RELEASE, FrameParser, auth_digest, parse_reply

CONNECT_TIMEOUT = 3.0
BACKOFF_MIN = 0.1
BACKOFF_MAX = 3.2
SHORT_SESSION = 1.0

_REDIRECT_REASONS = frozenset({"not_active", "auth_failed", "no_leader"})

Logger = Callable[[str], None]

TlsMode = str | Path | None

Reply = tuple[str, int]


def build_ssl(tls: TlsMode) -> ssl_module.SSLContext | None:
    if tls is None or tls == "off":
        return None
    if tls == "system-roots":
        return ssl_module.create_default_context()
    if tls == "insecure-skip-verify":
        ctx = ssl_module.create_default_context()
        ctx.check_hostname = False
        ctx.verify_mode = ssl_module.CERT_NONE
        return ctx
    try:
        return ssl_module.create_default_context(cafile=str(tls))
    except OSError as cause:
        raise TicketError("io", f"TLS config load failed: {tls}") from cause


class Topology:
    __slots__ = ("addrs", "leader")

    def __init__(self, addrs: list[str]) -> None:
        self.addrs = addrs
        self.leader = -1

    def set_leader(self, addr: str) -> None:
        try:
            self.leader = self.addrs.index(addr)
        except ValueError:
            self.leader = -1

    def clear_leader_if(self, index: int) -> None:
        if self.leader == index:
            self.leader = -1


# Matches on the echoed id, not FIFO — idempotent regrants jump the queue.
# FIFO가 아니라 에코된 id로 맞춘다 — 멱등 재발급이 순서를 앞지른다.
class _Session:
    __slots__ = ("_acquire", "_flush_scheduled", "_loop", "_release", "_write_buf", "closed", "transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self.transport = transport
        self.closed = False
        self._acquire: dict[str, deque[tuple[int, asyncio.Future[Reply]]]] = {}
        self._release: dict[str, deque[tuple[int, asyncio.Future[Reply]]]] = {}
        self._write_buf: list[bytes] = []
        self._flush_scheduled = False

    def _map(self, op: int) -> dict[str, deque[tuple[int, asyncio.Future[Reply]]]]:
        return self._acquire if op == OP_ACQUIRE else self._release

    def submit(self, op: int, key: str, req_id: int, frame: bytes) -> asyncio.Future[Reply]:
        # req_id is the acquire's owner or the release's token; the server echoes it.
        # req_id는 acquire의 owner 또는 release의 token으로, 서버가 그대로 에코한다.
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._map(op).setdefault(key, deque()).append((req_id, future))
        self._write_buf.append(frame)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.closed or not self._write_buf:
            return
        data = self._write_buf[0] if len(self._write_buf) == 1 else b"".join(self._write_buf)
        self._write_buf.clear()
        self.transport.write(data)

    def resolve(self, op: int, key: str, req_id: int, reply: Reply) -> None:
        # No match means a late reply for an aborted request, so drop it.
        # 일치가 없으면 중단된 요청의 늦은 응답이므로 버린다.
        pending = self._map(op)
        queue = pending.get(key)
        if not queue:
            return
        for index, (waiting_id, future) in enumerate(queue):
            if waiting_id == req_id:
                del queue[index]
                if not queue:
                    del pending[key]
                if not future.done():
                    future.set_result(reply)
                return

    def fail_all(self) -> None:
        for pending in (self._acquire, self._release):
            for queue in pending.values():
                for _, future in queue:
                    if not future.done():
                        future.set_exception(err_aborted())
            pending.clear()
        self._write_buf.clear()


class _ConnProtocol(asyncio.Protocol):
    __slots__ = ("_conn",)

    def __init__(self, conn: Conn) -> None:
        self._conn = conn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._conn._on_connected(transport)

    def data_received(self, data: bytes) -> None:
        self._conn._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._conn._on_lost()


class Conn:
    def __init__(
        self,
        addr: str,
        index: int,
        token: str,
        ssl_ctx: ssl_module.SSLContext | None,
        topo: Topology,
        logger: Logger | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.addr = addr
        self._index = index
        self._token = token
        self._ssl = ssl_ctx
        self._topo = topo
        self._logger = logger
        self._loop = loop
        self.status = "down"
        self.session: _Session | None = None
        self._parser = FrameParser()
        self._transport: asyncio.Transport | None = None
        self._pending_session: _Session | None = None
        self._handshake_done = False
        self._ever_connected = False
        self._redirected = False
        self._lost: asyncio.Future[None] | None = None

    def usable(self) -> bool:
        return self.status == "up"

    def request(self, op: int, key: str, req_id: int, frame: bytes) -> asyncio.Future[Reply]:
        session = self.session
        if session is None:
            future: asyncio.Future[Reply] = self._loop.create_future()
            future.set_exception(err_aborted())
            return future
        return session.submit(op, key, req_id, frame)

    def _logf(self, message: str) -> None:
        if self._logger is not None:
            self._logger(message)

    async def run_loop(self) -> None:
        backoff = BACKOFF_MIN
        while True:
            healthy = False
            try:
                healthy = await self._run_session()
            except Exception as err:
                self._logf(f"connect failed: {self.addr} ({err}) — retry in {int(backoff * 1000)}ms")
            if healthy:
                backoff = BACKOFF_MIN
            else:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, BACKOFF_MAX)

    async def _run_session(self) -> bool:
        # A redirect is not a fault — count it healthy and reconnect at once.
        # 리다이렉트는 고장이 아니다 — healthy로 쳐서 즉시 재접속한다.
        colon = self.addr.rfind(":")
        if colon <= 0:
            raise TicketError("invalid_input", f"address must be host:port — {self.addr}")
        host, port = self.addr[:colon], int(self.addr[colon + 1 :])

        self._parser = FrameParser()
        self._handshake_done = False
        self._redirected = False
        self._lost = self._loop.create_future()

        kwargs: dict[str, object] = {}
        if self._ssl is not None:
            kwargs = {"ssl": self._ssl, "server_hostname": host}
        async with asyncio.timeout(CONNECT_TIMEOUT):
            transport, _ = await self._loop.create_connection(lambda: _ConnProtocol(self), host, port, **kwargs)

        started = self._loop.time()
        try:
            await self._lost
        finally:
            session = self._pending_session
            self._pending_session = None
            self._transport = None
            if session is not None:
                if self.session is session:
                    self.session = None
                session.closed = True
                self.status = "down"
                self._topo.clear_leader_if(self._index)
                session.fail_all()
            transport.close()

        if self._handshake_done and not self._redirected:
            self._logf(f"connection lost: {self.addr}")
        return self._handshake_done and (self._redirected or (self._loop.time() - started) >= SHORT_SESSION)

    def _on_connected(self, transport: asyncio.Transport) -> None:
        # Always runs before any data_received.
        # 항상 data_received보다 먼저 실행된다.
        self._transport = transport
        self._pending_session = _Session(self._loop, transport)

    def _on_lost(self) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def _on_data(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            self._parser.feed(data)
            if not self._handshake_done:
                line = self._parser.next_line()
                if line is None:
                    return
                space = line.find(b" ")
                if space <= 0:
                    transport.close()
                    return
                transport.write(auth_digest(self._token, line[space + 1 :]).encode() + b"\n")
                self._handshake_done = True
                self.session = self._pending_session
                self.status = "up"
                if self._ever_connected:
                    self._logf(f"reconnected: {self.addr}")
                self._ever_connected = True
            while (frame := self._parser.next_frame()) is not None:
                if frame:
                    self._handle_reply(frame)
        except Exception:
            transport.close()

    def _handle_reply(self, frame: bytes) -> None:
        session = self.session
        incoming = parse_reply(frame)
        if incoming is None:
            self._logf(f"unrecognized reply from {self.addr}")
            return
        if session is None:
            return
        op = incoming.op
        if op == "A":
            session.resolve(OP_ACQUIRE, incoming.text, incoming.id, ("acquired", incoming.token))
        elif op == "T":
            session.resolve(OP_ACQUIRE, incoming.text, incoming.id, ("timed_out", 0))
        elif op == "B":
            session.resolve(OP_ACQUIRE, incoming.text, incoming.id, ("busy", 0))
        elif op == "R":
            session.resolve(OP_RELEASE, incoming.text, incoming.id, ("released", 0))
        elif op == "N":
            session.resolve(OP_RELEASE, incoming.text, incoming.id, ("not_found", 0))
        elif op == "M":
            self._logf(f"not leader: {self.addr} (leader is {incoming.text})")
            self._topo.set_leader(incoming.text)
            self._redirect()
        elif op == "L":
            self._logf(f"leader changed: {incoming.text} (via {self.addr})")
            self._topo.set_leader(incoming.text)
        elif op == "E":
            self._logf(f"server error from {self.addr}: {incoming.text}")
            if incoming.text in _REDIRECT_REASONS:
                if incoming.text == "no_leader":
                    self._topo.clear_leader_if(self._index)
                self._redirect()

    def _redirect(self) -> None:
        # Close instead of draining: the server releases any grant it could
        # not deliver, so no orphan lock is left behind.
        # drain 대신 닫는다 — 전달 못 한 grant를 서버가 release해 고아 락이 남지 않는다.
        self._redirected = True
        if self._transport is not None:
            self._transport.close()
