"""The listener of the admin plane, who may ask, and the pages that concern the node as a whole."""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from ticketing.node.asked import CannotError
from ticketing.node.checksums import StateChecksum
from ticketing.server.admin.answers import (
    TOKEN_LIMIT,
    RefusedError,
    answer,
    body_of,
    error_answer,
    query_of,
    refused,
    whole_of,
)
from ticketing.server.admin.commands import Commands
from ticketing.server.admin.connections import AdminConnections, connection_of, http_log
from ticketing.server.admin.locks import LockPages
from ticketing.server.admin.members import MemberPages
from ticketing.server.admin.metrics import MetricsPage
from ticketing.server.admin.stream import EventStream
from ticketing.server.faults import Faults
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi

BODY_BYTES_MAX = 64 * 1024
INDEX_LIMIT = 1 << 63
REFUSAL_DELAY_S = 1.0
"""A wrong token is answered this late."""
KEEPALIVE_S = 15.0
PATH_SHOWN_MAX = 200
"""Characters of a stranger's path that go into the log."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = frozenset(("/livez", "/readyz"))
"""What needs no token."""

_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class FormBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/form`."""

    first: bool = False
    first_token: str | int = 0
    reason: str = ""
    id: str = ""


class ReloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/reload`."""

    reason: str = ""
    id: str = ""


class AdminPlane:
    """Serves the admin plane of one node on listening sockets."""

    def __init__(
        self,
        node: NodeApi,
        log: Log,
        faults: Faults,
        *,
        tokens: Callable[[], Sequence[str]],
        loaded: Callable[[], Mapping[str, object]],
        process_facts: Callable[[], dict[str, object]],
        reload: Callable[[], Awaitable[str | None]],
        metrics_open: bool = False,
    ) -> None:
        self._node = node
        self._log = log
        self._faults = faults
        self._tokens = tokens
        self._loaded = loaded
        self._process_facts = process_facts
        self._reload = reload
        self._open = _OPEN | {"/metrics"} if metrics_open else _OPEN
        self._commands = Commands(log)
        self._stream = EventStream(node)
        self._connections = AdminConnections(log)
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/clock", self._clock)
        app.router.add_get("/v1/checksum", self._checksum)
        app.router.add_post("/v1/form", self._form)
        app.router.add_post("/v1/reload", self._reload_all)
        LockPages(node, self._commands).add_to(app.router)
        MemberPages(node, self._commands).add_to(app.router)
        MetricsPage(node, process_facts).add_to(app.router)
        self._stream.add_to(app.router)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=http_log(log),
            handle_signals=False,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=0.5,
        )

    async def start(self, sockets: list[socket.socket], tls: Callable[[], ssl.SSLContext | None]) -> None:
        """Begins to accept; `tls` is asked anew for each connection."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._connections.listen(sockets, server, tls)

    async def close(self) -> None:
        """Ends all connections."""
        self._connections.close_listener()
        self._stream.close()
        await self._runner.cleanup()
        self._connections.abort_all()

    # --- before and after every handler

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = connection_of(request)
        try:
            guarded = request.path not in self._open
            if connection is not None:
                connection.asked(authorized=False)
            if guarded:
                await self._authorize(request)
                if connection is not None:
                    connection.asked(authorized=True)
            return await handler(request)
        except RefusedError as refusal:
            return error_answer(refusal)
        except CannotError as cannot:
            return error_answer(refused(cannot))
        except web.HTTPException as error:
            code = _CODES.get(error.status, "bad_request")
            return error_answer(RefusedError(error.status, code, error.reason or ""))
        except Exception as error:
            self._faults.report(error, f"admin plane: {request.method} {request.path}")
            return error_answer(RefusedError(500, "internal", "the node could not answer; its log says why"))

    async def _authorize(self, request: web.Request) -> None:
        tokens = self._tokens()
        if not tokens:
            raise RefusedError(
                403, "no_admin_token", "this node has no admin token", "set secrets.admin_token in node.toml"
            )
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        shown = given.strip().encode("utf-8", "surrogateescape")  # as aiohttp reads bytes that are no UTF-8
        found = False
        for token in tokens:
            # Each is compared, found or not: the time tells nothing about which one it was.
            found |= hmac.compare_digest(shown, token.encode())
        if scheme.lower() != "bearer" or not found:
            path = request.path[:PATH_SHOWN_MAX]
            self._log("warning", "admin token refused", remote=request.remote or "", path=path)
            await asyncio.sleep(REFUSAL_DELAY_S)
            raise RefusedError(
                401, "unauthorized", "the admin token is missing or wrong", "it stands in admin.toml"
            )

    # --- handlers

    async def _livez(self, _request: web.Request) -> web.Response:
        return answer({"live": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        facts = self._node.status()
        ready = bool(facts.get("serving") or facts.get("leader_serves"))
        return answer({"ready": ready}, status=200 if ready else 503)

    async def _status(self, _request: web.Request) -> web.Response:
        facts = self._node.status()
        facts["process"] = self._process_facts()
        return answer(facts)

    async def _clock(self, request: web.Request) -> web.Response:
        query_of(request)
        return answer(self._node.reports.clock())

    async def _checksum(self, request: web.Request) -> web.Response:
        index = whole_of("at", query_of(request, "at")["at"] or "0", INDEX_LIMIT)
        told: asyncio.Future[StateChecksum | None] = asyncio.get_running_loop().create_future()

        def tell(found: StateChecksum | None) -> None:
            if not told.done():
                told.set_result(found)

        self._node.operations.checksum(index, tell)
        found = await told
        if found is None:
            raise RefusedError(409, "no_checksum", "the state was replaced meanwhile: ask again")
        return answer(
            {"index": str(found.applied_index), "checksum": f"{found.checksum:016x}", "held": found.held}
        )

    async def _form(self, request: web.Request) -> web.Response:
        body = await body_of(request, FormBody)
        first_token = whole_of("first_token", body.first_token, TOKEN_LIMIT)

        async def do() -> dict[str, object]:
            _refuse_if(self._node.form(first=body.first, first_token=first_token), "no_forming")
            return {"accepted": True}

        return await self._commands.once(request, body.id, body.reason, do)

    async def _reload_all(self, request: web.Request) -> web.Response:
        body = await body_of(request, ReloadBody)

        async def do() -> dict[str, object]:
            _refuse_if(await self._reload(), "no_reload")
            return {"reloaded": True, "loaded": self._loaded()}

        return await self._commands.once(request, body.id, body.reason, do)


def _refuse_if(reason: str | None, code: str) -> None:
    if reason is not None:
        raise RefusedError(409, code, reason)
