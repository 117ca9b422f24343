from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
from collections.abc import Sequence

from .connection import Conn, Logger, Reply, TlsMode, Topology, build_ssl
from .errors import TicketError, is_aborted
from .protocol import OP_ACQUIRE, OP_RELEASE, acquire_frame, release_frame, validate_key

# Short first retry catches a finished election; doubling avoids spinning.
# 짧은 첫 재시도로 선거 완료를 곧바로 잡고, 배가로 스핀을 막는다.
_RETRY_MIN = 0.01
_ACQUIRE_RETRY_MAX = 0.1
_BUSY_RETRY_MIN = 0.01
_BUSY_RETRY_MAX = 0.2
_RELEASE_RETRY_WINDOW_MIN = 5.0
_RELEASE_RETRY_MAX = 0.2

_U64_MASK = 0xFFFF_FFFF_FFFF_FFFF
_OWNER_BASE = secrets.randbits(64)
_owner_seq = itertools.count(1)


# Same owner id means the server treats a retry as the same acquisition.
# 같은 owner id면 서버가 재시도를 동일 획득으로 취급한다(멱등).
def _next_owner() -> int:
    return _OWNER_BASE ^ (next(_owner_seq) & _U64_MASK)


# All time values are seconds — the wire protocol is second-granular.
# 시간 값은 전부 초 단위다 — 와이어 프로토콜이 초 단위이기 때문.
class TicketBroker:
    def __init__(
        self,
        addrs: Sequence[str],
        *,
        token: str = "",
        tls: TlsMode = None,
        logger: Logger | None = None,
    ) -> None:
        ssl_ctx = build_ssl(tls)
        addr_list = list(addrs)
        # Two connections to one address survive a single socket drop.
        # 주소 하나를 연결 2개로 유지해 소켓 단절에도 무중단.
        if len(addr_list) == 1:
            addr_list *= 2
        self._addrs = addr_list
        self._token = token
        self._ssl = ssl_ctx
        self._logger = logger
        self._topo = Topology(addr_list)
        self._rr = 0
        self._conns: list[Conn] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._init_lock = threading.Lock()
        try:
            self._bind_loop(asyncio.get_running_loop())
        except RuntimeError:
            pass

    @classmethod
    def connect(cls, *addrs: str) -> TicketBroker:
        return cls(addrs)

    def _bind_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._conns = [
            Conn(addr, i, self._token, self._ssl, self._topo, self._logger, loop)
            for i, addr in enumerate(self._addrs)
        ]
        for conn in self._conns:
            loop.create_task(conn.run_loop())

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        # Sync callers get a lazily started daemon event-loop thread.
        # sync 호출자를 위해 데몬 이벤트 루프 스레드를 지연 시작한다.
        if self._loop is not None:
            return self._loop
        with self._init_lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="ticketing-loop", daemon=True)
                thread.start()
                ready = threading.Event()
                loop.call_soon_threadsafe(lambda: (self._bind_loop(loop), ready.set()))
                ready.wait()
        assert self._loop is not None
        return self._loop

    async def acquire(self, key: str, wait: float, lease: float) -> Ticket:
        # wait 0 waits forever; failovers retry inside the wait budget.
        # wait 0은 무한 대기이며, 장애조치는 wait 예산 안에서 재시도된다.
        loop = self._ensure_loop()
        if asyncio.get_running_loop() is loop:
            return await self._acquire(key, wait, lease)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._acquire(key, wait, lease), loop))

    def acquire_sync(self, key: str, wait: float, lease: float) -> Ticket:
        return asyncio.run_coroutine_threadsafe(self._acquire(key, wait, lease), self._sync_loop()).result()

    async def wait_ready(self, timeout: float) -> bool:
        loop = self._ensure_loop()
        if asyncio.get_running_loop() is loop:
            return await self._wait_ready(timeout)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._wait_ready(timeout), loop))

    def wait_ready_sync(self, timeout: float) -> bool:
        return asyncio.run_coroutine_threadsafe(self._wait_ready(timeout), self._sync_loop()).result()

    def _sync_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._ensure_loop()
        try:
            if asyncio.get_running_loop() is loop:
                raise TicketError("invalid_input", "sync API called inside the broker's event loop — use await")
        except RuntimeError:
            pass
        return loop

    async def _acquire(self, key: str, wait: float, lease: float) -> Ticket:
        validate_key(key)
        # Every retry carries this owner, so build the frame once.
        # 모든 재시도가 같은 owner를 싣는다 — frame은 한 번만 만든다.
        owner = _next_owner()
        frame = acquire_frame(key, wait, lease, owner)
        loop = self._loop
        assert loop is not None
        deadline = loop.time() + wait if wait > 0 else None
        retry = _RETRY_MIN
        busy_retry = _BUSY_RETRY_MIN
        queue_full = False

        while True:
            pause = retry
            bump_retry = True
            conn = self._pick()
            if conn is not None:
                try:
                    kind, token = await conn.request(OP_ACQUIRE, key, owner, frame)
                except TicketError as err:
                    if not is_aborted(err):
                        raise
                else:
                    if kind == "acquired":
                        return Ticket(self, key, token, lease)
                    if kind == "timed_out":
                        raise TicketError("timeout", "timed out waiting to acquire the lock")
                    if kind == "busy":
                        # Queue full — back off longer than a failover retry.
                        # 대기열 포화 — 장애조치 재시도보다 길게 물러선다.
                        queue_full = True
                        pause = busy_retry
                        busy_retry = min(busy_retry * 2, _BUSY_RETRY_MAX)
                        bump_retry = False
                    else:
                        raise TicketError("protocol", "unexpected reply for acquire")
            if deadline is not None and loop.time() >= deadline:
                if queue_full:
                    raise TicketError("busy", "server wait queue for this key is full")
                raise TicketError("timeout", "timed out waiting to acquire the lock")
            await asyncio.sleep(pause)
            if bump_retry:
                retry = min(retry * 2, _ACQUIRE_RETRY_MAX)

    async def _wait_ready(self, timeout: float) -> bool:
        loop = self._loop
        assert loop is not None
        deadline = loop.time() + timeout
        while True:
            if self._pick() is not None:
                return True
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(0.02)

    def _pick(self) -> Conn | None:
        # None is transient — a reconnect is in flight, so callers retry.
        # None은 일시 상태다 — 재접속 중이므로 호출부가 재시도한다.
        leader = self._topo.leader
        conns = self._conns
        if 0 <= leader < len(conns) and conns[leader].usable():
            return conns[leader]
        n = len(conns)
        if n == 0:
            return None
        self._rr += 1
        start = self._rr
        for i in range(n):
            conn = conns[(start + i) % n]
            if conn.usable():
                return conn
        return None

    async def _release_loop(self, key: str, token: int, lease: float) -> bool:
        # Past the lease the server expires the lock itself, so stop retrying.
        # lease가 지나면 서버가 스스로 만료시키므로 재시도를 멈춘다.
        frame = release_frame(key, token)
        loop = self._loop
        assert loop is not None
        deadline = loop.time() + max(lease, _RELEASE_RETRY_WINDOW_MIN)
        retry = _RETRY_MIN
        while True:
            conn = self._pick()
            if conn is not None:
                try:
                    kind, _ = await conn.request(OP_RELEASE, key, token, frame)
                except TicketError as err:
                    if not is_aborted(err):
                        raise
                else:
                    if kind == "released":
                        return True
                    if kind == "not_found":
                        return False
                    raise TicketError("protocol", "unexpected reply for release")
            if loop.time() >= deadline:
                raise TicketError("not_connected", "no connected server")
            await asyncio.sleep(retry)
            retry = min(retry * 2, _RELEASE_RETRY_MAX)


# release() awaits, close() is fire-and-forget, `with` auto-releases.
# release()는 대기, close()는 백그라운드, `with`는 자동 해제다.
class Ticket:
    __slots__ = ("_broker", "_lease", "_released", "key", "token")

    def __init__(self, broker: TicketBroker, key: str, token: int, lease: float) -> None:
        self._broker = broker
        self._lease = lease
        self._released = False
        self.key = key
        self.token = token

    async def release(self) -> bool:
        if self._released:
            return False
        self._released = True
        broker = self._broker
        loop = broker._ensure_loop()
        if asyncio.get_running_loop() is loop:
            return await broker._release_loop(self.key, self.token, self._lease)
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(broker._release_loop(self.key, self.token, self._lease), loop)
        )

    def release_sync(self) -> bool:
        if self._released:
            return False
        self._released = True
        broker = self._broker
        return asyncio.run_coroutine_threadsafe(
            broker._release_loop(self.key, self.token, self._lease), broker._sync_loop()
        ).result()

    def close(self) -> None:
        if self._released:
            return
        self._released = True
        broker = self._broker
        loop = broker._ensure_loop()

        def _consume(task: asyncio.Task[bool]) -> None:
            if not task.cancelled():
                task.exception()

        def _spawn() -> None:
            task = loop.create_task(broker._release_loop(self.key, self.token, self._lease))
            task.add_done_callback(_consume)

        loop.call_soon_threadsafe(_spawn)

    async def __aenter__(self) -> Ticket:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        try:
            await self.release()
        except TicketError:
            pass

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.release_sync()
        except TicketError:
            pass

    def __repr__(self) -> str:
        return f"Ticket(key={self.key!r}, token={self.token})"
