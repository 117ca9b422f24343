"""Workers that acquire, hold and release over the bare wire, and the judgement of all that they saw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from types import TracebackType
from typing import NamedTuple

from tests.e2e.waiting import until
from tests.e2e.wire import Answer, SessionOverError, WireSession, fresh_owner

RECONNECT_S = 0.02
RELEASE_TRY_S = 1.5
UNANSWERED_S = 5
"""An acquire without an answer so long after its wait has lost it."""
HELD_LONG_S = 250


class Released(NamedTuple):
    """How a release was answered. After a first try that got no answer, `N` may be the effect of that one."""

    what: str
    tries: int
    at: float


class Grant:
    """One answered grant."""

    __slots__ = ("asked_at", "granted_at", "key", "lease", "release", "released_at", "token", "waited_ms")

    def __init__(self, key: bytes, asked_at: float, lease: int, answer: Answer) -> None:
        self.key = key
        self.asked_at = asked_at
        self.granted_at = answer.at
        self.lease = lease
        self.token = answer.token
        self.waited_ms = answer.waited_ms
        self.released_at: float | None = None
        """When its release was first invoked."""
        self.release: Released | None = None

    @property
    def conservative_end(self) -> float:
        return self.asked_at + 0.998 * (self.lease + self.waited_ms / 1000)

    @property
    def end(self) -> float:
        """Its holder holds until its release was invoked or its conservative end (spec 1, 10)."""
        return min(self.conservative_end, self.released_at or self.conservative_end)


class Sessions:
    """One session to each address, opened again whenever it ends; and which of them is the leader's."""

    def __init__(self, addresses: Sequence[str], token: str) -> None:
        self._token = token
        self._addresses = addresses
        self._open: dict[str, WireSession] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Sessions:
        self._tasks = [asyncio.create_task(self._keep(address)) for address in self._addresses]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._open.values():
            await session.close()

    async def _keep(self, address: str) -> None:
        while True:
            try:
                session = await WireSession.open(address, self._token)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                continue
            self._open[address] = session
            await asyncio.wait([session.over])
            del self._open[address]
            await asyncio.sleep(RECONNECT_S)

    def serving(self) -> WireSession | None:
        """The session to the node that names itself as the leader."""
        return next(
            (
                session
                for address, session in self._open.items()
                if session.leader == address and session.is_open
            ),
            None,
        )

    async def leading(self, within_s: float = 10.0) -> WireSession:
        return await until(self.serving, "a session to a node that serves", within_s)

    async def release(self, token: int, key: bytes, within_s: float = 10.0) -> Released:
        """Releases over whichever session serves, until there is an answer."""
        tries = 0
        async with asyncio.timeout(within_s):
            while True:
                session = self.serving()
                if session is None:
                    await asyncio.sleep(RECONNECT_S)
                    continue
                tries += 1
                try:
                    async with asyncio.timeout(RELEASE_TRY_S):
                        answer = await session.release(token, key)
                except (SessionOverError, TimeoutError):
                    continue
                return Released(answer.what, tries, answer.at)


class Load:
    """Workers on contended keys; what they were granted is in `grants`.

    Leases are short, so that a grant whose answer was lost with its leader frees its key soon.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        keys: int = 4,
        workers: int = 8,
        lease: int = 3,
        wait: int = 5,
        hold_s: float = 0.002,
    ) -> None:
        self.sessions = sessions
        self.keys = [b"contended-%d" % number for number in range(keys)]
        self.lease = lease
        self.wait = wait
        self.hold_s = hold_s
        self.grants: list[Grant] = []
        self.indeterminate = 0
        """Requests whose session ended before their answer."""
        self.faults: list[str] = []
        self._workers = workers
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._work(Random(number))) for number in range(self._workers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        async with asyncio.timeout(self.wait + 16):
            await asyncio.gather(*self._tasks)

    async def _work(self, rng: Random) -> None:
        while not self._stopping:
            session = self.sessions.serving()
            if session is None:
                await asyncio.sleep(RECONNECT_S)
                continue
            key = rng.choice(self.keys)
            owner = fresh_owner()
            asked_at = time.monotonic()
            try:
                async with asyncio.timeout(self.wait + UNANSWERED_S):
                    answer = await session.acquire(key, self.wait, self.lease, owner=owner)
            except SessionOverError:
                self.indeterminate += 1
                continue
            except TimeoutError:
                # The node stands still, or its machine is gone: clients give up such a session (spec 10).
                self.indeterminate += 1
                await session.close()
                continue
            if answer.what == "G":
                await self._hold(Grant(key, asked_at, self.lease, answer))
            elif answer.what not in "TVB":
                self.faults.append(f"an acquire was answered {answer}")
            else:
                await asyncio.sleep(RECONNECT_S)

    async def _hold(self, grant: Grant) -> None:
        self.grants.append(grant)
        await asyncio.sleep(self.hold_s)
        grant.released_at = time.monotonic()
        try:
            grant.release = await self.sessions.release(grant.token, grant.key, 15)
        except TimeoutError:
            self.faults.append(f"no answer to the release of {grant.token}")

    async def granted_since(self, moment: float, within_s: float) -> Grant:
        """The first grant of a request that was sent after `moment`."""
        return await until(
            lambda: next((grant for grant in reversed(self.grants) if grant.asked_at > moment), None),
            "a grant of a new request",
            within_s,
        )

    async def every_key_granted_since(self, moment: float, within_s: float) -> None:
        """No key is stuck: each was granted to somebody who asked after `moment`."""

        def stuck() -> list[bytes]:
            served = {grant.key for grant in self.grants if grant.asked_at > moment}
            return [key for key in self.keys if key not in served]

        await until(lambda: not stuck(), "a new grant of every key", within_s)

    async def more(self, count: int = 20, within_s: float = 15.0) -> None:
        """Waits for so many further grants."""
        enough = len(self.grants) + count
        await until(lambda: len(self.grants) >= enough, f"{count} more grants", within_s)

    def judge(self) -> None:
        """Fails where the history breaks a promise, or a worker saw what must not be."""
        assert not self.faults, self.faults
        judge(self.grants)


def judge(grants: Sequence[Grant]) -> None:
    """One holder at a time, and tokens that only grow, in order of time and over all keys (spec 1)."""
    tokens = [grant.token for grant in grants]
    assert len(set(tokens)) == len(tokens), "a token was granted twice"

    for grant in grants:
        release = grant.release
        if release is not None and release.what == "N" and release.tries == 1:
            assert release.at > grant.conservative_end, (
                f"the answered grant {grant.token} of {grant.key!r} was lost"
            )

    by_key: dict[bytes, list[Grant]] = {}
    for grant in sorted(grants, key=lambda grant: grant.token):
        by_key.setdefault(grant.key, []).append(grant)
    for key, held in by_key.items():
        for earlier, later in pairwise(held):
            assert later.granted_at >= earlier.end, (
                f"{key!r} was held twice: {later.token} from {later.granted_at:.6f}, "
                f"{earlier.token} until {earlier.end:.6f}"
            )

    # Whoever asked after another's answer was read has the larger token.
    answered = sorted(grants, key=lambda grant: grant.granted_at)
    greatest, position = 0, 0
    for grant in sorted(grants, key=lambda grant: grant.asked_at):
        while position < len(answered) and answered[position].granted_at < grant.asked_at:
            greatest = max(greatest, answered[position].token)
            position += 1
        assert grant.token > greatest, f"token {grant.token} was granted after {greatest} had been"


class Kept:
    """Grants that are held for long: what was answered must still be held whatever befalls the nodes."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.grants: dict[bytes, int] = {}

    async def take(self, count: int) -> None:
        """So many more, each on a key of its own."""
        session = await self._sessions.leading()
        keys = [b"kept-%d" % number for number in range(len(self.grants), len(self.grants) + count)]
        for key, answer in zip(
            keys, await _all(session.acquire(key, 0, HELD_LONG_S) for key in keys), strict=True
        ):
            assert answer.what == "G", answer
            self.grants[key] = answer.token

    async def still_held(self) -> None:
        """Nobody else gets them."""
        session = await self._sessions.leading()
        answers = await _all(session.acquire(key, 0, 1) for key in self.grants)
        assert {answer.what for answer in answers} <= {"T"}, answers

    async def release_all(self) -> None:
        """Every one of them is released by its own token, and answered so."""
        session = await self._sessions.leading()
        answers = await _all(session.release(token, key) for key, token in self.grants.items())
        assert {answer.what for answer in answers} <= {"R"}, answers
        self.grants.clear()


async def _all(asked: Iterable[asyncio.Future[Answer]]) -> list[Answer]:
    async with asyncio.timeout(15):
        return await asyncio.gather(*asked)
