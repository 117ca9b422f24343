"""Members: who they are, replacing one, the lead, stopping."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
from aiohttp import web

from ticketing.server.admin.answers import (
    ID_CHARS_MAX,
    RefusedError,
    answer,
    bad_request,
    body_of,
    check_text,
    query_of,
)
from ticketing.server.admin.commands import Commands, who_asks
from ticketing.server.node_api import NodeApi

ADDRESS_CHARS_MAX = 120
LEAVE_WITHIN_S = 40.0
"""Above the longest `stop_wait` that is in use: the node itself decides sooner."""


class TransferBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/transfer`."""

    to: str | None = None
    reason: str = ""
    id: str = ""


class ReplaceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/members/{place}/replace`."""

    client: str = ""
    peer: str = ""
    admin: str = ""
    reason: str = ""
    id: str = ""


class UndoBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `DELETE /v1/members/{place}/replace`."""

    command_id: str = ""
    reason: str = ""
    id: str = ""


class LeaveBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/leave`."""

    place: str | None = None
    force: bool = False
    again: bool = False
    """Whatever supervises the process is to start it again."""
    reason: str = ""
    id: str = ""


class MemberPages:
    """Handlers of `/v1/members`, `/v1/can-stop`, `/v1/leave` and `/v1/transfer`."""

    def __init__(self, node: NodeApi, commands: Commands) -> None:
        self._node = node
        self._commands = commands

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The addresses served here."""
        router.add_get("/v1/members", self._members)
        router.add_post("/v1/members/{place}/replace", self._replace)
        router.add_delete("/v1/members/{place}/replace", self._undo)
        router.add_get("/v1/can-stop", self._can_stop)
        router.add_post("/v1/leave", self._leave)
        router.add_post("/v1/transfer", self._transfer)

    async def _members(self, request: web.Request) -> web.Response:
        query_of(request)
        return answer(self._node.reports.members())

    async def _replace(self, request: web.Request) -> web.Response:
        body = await body_of(request, ReplaceBody)
        addresses = tuple(address for address in (body.client, body.peer, body.admin) if address)
        for address in addresses:
            check_text("an address", address, ADDRESS_CHARS_MAX)
        # It becomes part of the replicated state with the replacement, so it is never left out.
        command_id = body.id or secrets.token_hex(16)

        async def do() -> dict[str, object]:
            return self._node.operations.replace(
                request.match_info["place"],
                command_id=command_id,
                who=who_asks(request),
                why=body.reason,
                addresses=addresses,
            )

        return await self._commands.once(request, body.id, body.reason, do)

    async def _undo(self, request: web.Request) -> web.Response:
        body = await body_of(request, UndoBody)
        check_text("command_id", body.command_id, ID_CHARS_MAX)

        async def do() -> dict[str, object]:
            return self._node.operations.undo(
                request.match_info["place"],
                command_id=body.command_id,
                who=who_asks(request),
                why=body.reason,
            )

        return await self._commands.once(request, body.id, body.reason, do)

    async def _can_stop(self, request: web.Request) -> web.Response:
        place = query_of(request, "place")["place"]
        if not place:
            raise bad_request("place says which node is meant: /v1/can-stop?place=node-2")
        return answer(self._node.operations.can_stop(place))

    async def _leave(self, request: web.Request) -> web.Response:
        body = await body_of(request, LeaveBody)

        async def do() -> dict[str, object]:
            if body.force:
                self._node.operations.stop_at_once(body.place)
                return {"leave": False, "stopping": True}
            told: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()

            def tell(given: bool, why: str) -> None:
                if not told.done():
                    told.set_result((given, why))

            self._node.operations.leave(body.place, tell, again=body.again)
            try:
                async with asyncio.timeout(LEAVE_WITHIN_S):
                    given, why = await told
            except TimeoutError:
                given, why = False, "nobody has answered yet; the node goes on asking"
            if not given:
                raise RefusedError(409, "no_leave", why, "/v1/can-stop says when it may")
            return {"leave": True, "stopping": True}

        return await self._commands.once(request, body.id, body.reason, do)

    async def _transfer(self, request: web.Request) -> web.Response:
        body = await body_of(request, TransferBody)

        async def do() -> dict[str, object]:
            self._node.operations.transfer(body.to)
            return {"accepted": True}

        return await self._commands.once(request, body.id, body.reason, do)
