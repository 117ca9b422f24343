"""A client of our wire for failovers: sessions to all nodes at all times, requests to whoever is said to lead.

It repeats nothing: a request that is lost, or that reaches a node that does not lead, gets no grant. So what is
measured is the servers alone.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, ClassVar, NamedTuple

from benchmarks.rawclient import RawSession, connect, frames, owner
from ticketing.protocol.decoder import Reply
from ticketing.protocol.fields import WAIT_MAX

LEASE_S = 60
REDIAL_S = 0.01
CONNECT_S = 1.0
ANSWER_S = 10.0


class NoGrantError(Exception):
    """The request got no grant."""


class Grant(NamedTuple):
    """A key that is held."""

    token: int
    key: bytes


class Probe:
    """One session a node, dialled again as soon as it is gone."""

    style: ClassVar[str] = "async"

    def __init__(self, target: dict[str, Any]) -> None:
        self._addresses: list[str] = target["addresses"]
        self._token: str = target["token"]
        authority = target["authority"]
        self._tls = ssl.create_default_context(cafile=authority) if authority else None
        self._sessions: dict[str, RawSession] = {}
        self._leader: str | None = None
        self._asked: dict[int, asyncio.Future[Grant]] = {}
        self._releases: dict[int, asyncio.Future[bool]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(self._keep_connected(address)) for address in self._addresses]
        async with asyncio.timeout(30):
            while self._leader is None or len(self._sessions) < len(self._addresses):
                await asyncio.sleep(REDIAL_S)

    async def leader(self) -> str | None:
        """The address of the node that is asked."""
        return self._leader

    async def acquire(self, key: str) -> Grant:
        session = self._sessions.get(self._leader or "")
        if session is None:
            raise NoGrantError("no session to a leader")
        ident = owner()
        self._asked[ident] = answer = asyncio.get_running_loop().create_future()
        session.send(frames.encode_q(WAIT_MAX, LEASE_S, ident, key.encode()))
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        finally:
            self._asked.pop(ident, None)

    async def release(self, grant: Grant) -> None:
        """RuntimeError where the grant is not held any more."""
        self._releases[grant.token] = answer = asyncio.get_running_loop().create_future()
        self._sessions[self._leader or ""].send(frames.encode_release(grant.token, grant.key))
        if not await asyncio.wait_for(answer, ANSWER_S):
            raise RuntimeError(f"{grant.key!r} was not held any more")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for session in self._sessions.values():
            session.close()

    async def _keep_connected(self, address: str) -> None:
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    session = await connect(address, self._token, self._tls)
            except OSError:
                await asyncio.sleep(REDIAL_S)
                continue
            leader = session.ready.result()
            if leader:
                self._leader = leader
            session.on_reply = self._on_reply
            self._sessions[address] = session
            await session.lost
            if self._sessions.get(address) is session:
                del self._sessions[address]

    def _on_reply(self, reply: Reply) -> None:
        op, token, ident, _waited, key = reply
        if op == frames.GRANTED_WAITED:
            asked = self._asked.get(ident)
            if asked is not None and not asked.done():
                asked.set_result(Grant(token, key))
        elif op in (frames.NOT_LEADING, frames.TIMEOUT, frames.BUSY):
            asked = self._asked.get(ident)
            if asked is not None and not asked.done():
                asked.set_exception(NoGrantError(chr(op)))
        elif op in (frames.LEADER, frames.MOVED):
            self._leader = key.decode()
        elif op in (frames.RELEASED, frames.NOT_HELD):
            self._releases.pop(token).set_result(op == frames.RELEASED)
