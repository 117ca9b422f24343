"""`GET /v1/events`: what happens on this node, one JSON object a line, for as long as the reader stays."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from ticketing.node.events import KINDS
from ticketing.server.admin.answers import RefusedError, bad_request, query_of, whole_of
from ticketing.server.node_api import NodeApi

READERS_MAX = 16
READ_AT_ONCE = 256
SILENCE_S = 3.0
"""A blank line where nothing has happened for so long: a reader knows that the stream lives."""
STUCK_S = 10.0
"""A reader that takes nothing for so long is let go."""
_NUMBER_LIMIT = 1 << 62


class EventStream:
    """The readers of one node's events. Each has a place in the node's list, no buffer of its own."""

    def __init__(self, node: NodeApi) -> None:
        self._node = node
        self._closed = False
        self._readers: dict[asyncio.Event, None] = {}
        """Each is set when there is something to read, or nothing will be any more."""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The address served here."""
        router.add_get("/v1/events", self._follow, allow_head=False)

    def close(self) -> None:
        """Lets every reader go."""
        self._closed = True
        for changed in self._readers:
            changed.set()

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        query = query_of(request, "kinds", "after")
        kinds = frozenset(kind for kind in query["kinds"].split(",") if kind)
        if kinds - set(KINDS):
            raise bad_request(f"kinds are {', '.join(KINDS)}")
        events = self._node.events
        after = whole_of("after", query["after"], _NUMBER_LIMIT) if query["after"] else events.newest
        if len(self._readers) >= READERS_MAX:
            raise RefusedError(503, "too_many_readers", f"{READERS_MAX} readers follow the events already")
        response = web.StreamResponse(
            headers={"Content-Type": "application/jsonl", "Cache-Control": "no-store"}
        )
        response.enable_chunked_encoding()
        changed = asyncio.Event()
        self._readers[changed] = None
        events.listen(changed.set)
        try:
            await response.prepare(request)
            while not self._closed:
                after = await self._send(response, after, kinds, changed)
        except (TimeoutError, ConnectionError):
            pass  # it has left, or takes nothing
        finally:
            events.unlisten(changed.set)
            del self._readers[changed]
        return response

    async def _send(
        self, response: web.StreamResponse, after: int, kinds: frozenset[str], changed: asyncio.Event
    ) -> int:
        """Writes what there is, or a blank line after a while; the number of the last event seen."""
        events = self._node.events
        if after == events.newest:
            changed.clear()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await changed.wait()
            except TimeoutError:
                await _write(response, b"\n")
            return after
        found, lost = events.read(after, READ_AT_ONCE)
        lines: list[dict[str, Any]] = []
        if lost != 0:
            lines.append({"kind": "gap", "lost": lost})
            after = 0 if lost is None else after + lost
        lines += [event for event in found if not kinds or event["kind"] in kinds]
        if lines:
            await _write(response, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        return int(found[-1]["number"]) if found else after


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(STUCK_S):
        await response.write(data)
