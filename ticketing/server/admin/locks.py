"""Locks: pages, one key in full, revocation."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
from aiohttp import web

from ticketing.node.reports import ORDERS
from ticketing.server.admin.answers import (
    TOKEN_LIMIT,
    RefusedError,
    answer,
    bad_request,
    body_of,
    key_of,
    limit_of,
    query_of,
    text_bytes,
    whole_of,
)
from ticketing.server.admin.commands import Commands, who_asks
from ticketing.server.node_api import NodeApi

PAUSE_S = 0.001
"""Between two slices of a page: the node goes on, and a page over a million keys takes under a second."""
LISTINGS_MAX = 2
"""Pages by key that are looked for at a time. Every release tells each of them that its key is leaving."""
REVOKED_WITHIN_S = 10.0

_OWNER_LIMIT = 1 << 64


class RevokeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/locks/{key}/revoke`."""

    token: str | int
    reason: str
    id: str = ""


class LockPages:
    """Handlers of `/v1/locks`."""

    def __init__(self, node: NodeApi, commands: Commands) -> None:
        self._node = node
        self._commands = commands
        self._listings = asyncio.Semaphore(LISTINGS_MAX)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The addresses served here."""
        router.add_get("/v1/locks", self._list)
        router.add_get("/v1/locks/{key}", self._show)
        router.add_post("/v1/locks/{key}/revoke", self._revoke)

    async def _list(self, request: web.Request) -> web.Response:
        query = query_of(request, "prefix", "after", "limit", "order")
        limit = limit_of(query["limit"])
        prefix, after = text_bytes("prefix", query["prefix"]), text_bytes("after", query["after"])
        order = query["order"]
        if order and order != "key":
            if order not in ORDERS:
                raise bad_request(f"order is key, {', '.join(ORDERS)}")
            if after:
                raise bad_request(f"by {order} there is a first page only, no after")
            return answer(self._node.reports.first(order, prefix, limit))
        async with self._listings:
            listing = self._node.reports.keys(prefix, after, limit)
            try:
                while not listing.step():  # noqa: ASYNC110 - work in slices, not a wait
                    await asyncio.sleep(PAUSE_S)
            finally:
                listing.close()
        return answer(listing.answer)

    async def _show(self, request: web.Request) -> web.Response:
        query = query_of(request, "after", "limit")
        key = key_of(request.match_info["key"])
        after = None
        if query["after"]:
            read, _, owner = query["after"].partition(".")
            after = (whole_of("after", read, _OWNER_LIMIT), whole_of("after", owner, _OWNER_LIMIT))
        return answer(self._node.reports.key(key, after, limit_of(query["limit"])))

    async def _revoke(self, request: web.Request) -> web.Response:
        body = await body_of(request, RevokeBody)
        key = key_of(request.match_info["key"])
        token = whole_of("token", body.token, TOKEN_LIMIT)
        if not body.reason.strip():
            raise bad_request("a revocation needs a reason: it stands in every node's audit log")

        async def do() -> dict[str, object]:
            told: asyncio.Future[dict[str, object] | None] = asyncio.get_running_loop().create_future()

            def tell(outcome: dict[str, object] | None) -> None:
                if not told.done():
                    told.set_result(outcome)

            self._node.operations.revoke(
                key,
                token,
                command_id=body.id or secrets.token_hex(16),
                who=who_asks(request),
                why=body.reason,
                told=tell,
            )
            try:
                async with asyncio.timeout(REVOKED_WITHIN_S):
                    outcome = await told
            except TimeoutError:
                outcome = None
            if outcome is None:
                raise RefusedError(
                    503,
                    "indeterminate",
                    "whether it was carried out is not known: the leader changed, or sees no majority",
                    "give the same command under the same id again, to the node that leads then",
                )
            return outcome

        return await self._commands.once(request, body.id, body.reason, do)
