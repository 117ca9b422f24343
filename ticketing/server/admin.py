"""The admin plane: HTTP and JSON for operators (`docs/admin.md`, spec 9).

Imported in a thread while the node runs already, since aiohttp takes long to load; connections wait in the
listener's backlog until then.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from ticketing.server.faults import Faults
from ticketing.server.listening import Acceptor
from ticketing.server.log import Log
from ticketing.server.node_api import NodeApi

CONNECTIONS_MAX = 64
ACCEPTS_PER_TURN = 4
BODY_BYTES_MAX = 64 * 1024
REFUSAL_DELAY_S = 1.0
"""A wrong token is answered this late."""
ID_CHARS_MAX = 64
IDS_MAX = 1_024
"""Commands whose answers are remembered."""
KEEPALIVE_S = 15.0
TLS_HANDSHAKE_S = 5.0
TOKEN_LIMIT = 1 << 62

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = frozenset(("/livez", "/readyz"))
"""What needs no token."""

_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class RefusedError(Exception):
    """A request that is answered with an error: HTTP status, stable code, words for people."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.hint = hint


class TransferBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/transfer`."""

    to: str | None = None
    id: str = ""


class FormBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/form`."""

    first: bool = False
    first_token: str | int = 0
    id: str = ""


class ReloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /v1/reload`."""

    id: str = ""


class AdminPlane:
    """Serves the admin plane of one node on listening sockets."""

    def __init__(
        self,
        node: NodeApi,
        log: Log,
        faults: Faults,
        *,
        token: Callable[[], str],
        process_facts: Callable[[], dict[str, object]],
        reload: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._node = node
        self._log = log
        self._faults = faults
        self._token = token
        self._process_facts = process_facts
        self._reload = reload
        self._answers: dict[str, dict[str, object]] = {}
        self._acceptor: Acceptor | None = None
        self._attaching: set[asyncio.Task[None]] = set()
        self._tls: Callable[[], ssl.SSLContext | None] = lambda: None
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/v1/status", self._status)
        app.router.add_post("/v1/transfer", self._transfer)
        app.router.add_post("/v1/form", self._form)
        app.router.add_post("/v1/reload", self._reload_all)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, keepalive_timeout=KEEPALIVE_S, shutdown_timeout=0.5
        )

    async def start(self, sockets: list[socket.socket], tls: Callable[[], ssl.SSLContext | None]) -> None:
        """Begins to accept; `tls` is asked anew for each connection."""
        self._tls = tls
        await self._runner.setup()
        self._acceptor = Acceptor(
            asyncio.get_running_loop(),
            sockets,
            per_turn=ACCEPTS_PER_TURN,
            accepted=self._accepted,
            room=lambda: CONNECTIONS_MAX,
            turned_away=lambda reason: self._log("warning", "admin connection turned away", reason=reason),
        )
        self._acceptor.start()

    async def close(self) -> None:
        """Ends all connections."""
        if self._acceptor is not None:
            self._acceptor.close()
        for task in list(self._attaching):
            task.cancel()
        await self._runner.cleanup()

    def _accepted(self, sock: socket.socket, _source: str, remote: str) -> None:
        if len(self._attaching) >= CONNECTIONS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._attach(sock, remote))
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    async def _attach(self, sock: socket.socket, remote: str) -> None:
        server = self._runner.server
        assert server is not None
        standing = server.connections
        if len(standing) >= CONNECTIONS_MAX:
            # The oldest one makes room, so that silent connections lock no operator out.
            standing[0].force_close()
        context = self._tls()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server,
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else TLS_HANDSHAKE_S,
                ssl_shutdown_timeout=None if context is None else 1.0,
            )
        except (OSError, TimeoutError) as error:  # an SSLError is an OSError
            self._log("warning", "TLS with an operator failed", remote=remote, reason=str(error))
            sock.close()

    # --- before and after every handler

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in _OPEN:
                await self._authorize(request)
            return await handler(request)
        except RefusedError as refusal:
            return _error(refusal.status, refusal.code, str(refusal), refusal.hint)
        except web.HTTPException as error:
            return _error(error.status, _CODES.get(error.status, "bad_request"), error.reason or "")
        except Exception as error:
            self._faults.report(error, f"admin plane: {request.method} {request.path}")
            return _error(500, "internal", "the node could not answer; its log says why")

    async def _authorize(self, request: web.Request) -> None:
        token = self._token()
        if not token:
            raise RefusedError(
                403, "no_admin_token", "this node has no admin token", "set secrets.admin_token in node.toml"
            )
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            self._log("warning", "admin token refused", remote=request.remote or "", path=request.path)
            await asyncio.sleep(REFUSAL_DELAY_S)
            raise RefusedError(
                401, "unauthorized", "the admin token is missing or wrong", "it stands in admin.toml"
            )

    async def _once(
        self, request: web.Request, command_id: str, do: Callable[[], Awaitable[dict[str, object]]]
    ) -> web.Response:
        """Carries out a command, or gives the answer of the one that had the same id."""
        if len(command_id) > ID_CHARS_MAX:
            raise RefusedError(400, "bad_request", f"an id has at most {ID_CHARS_MAX} characters")
        if command_id:
            known = self._answers.get(command_id)
            if known is not None:
                return _json(known)
        answer = await do()
        if command_id:
            self._answers[command_id] = answer
            if len(self._answers) > IDS_MAX:
                del self._answers[next(iter(self._answers))]
        self._log("audit", "admin command", path=request.path, id=command_id, remote=request.remote or "")
        return _json(answer)

    # --- handlers

    async def _livez(self, _request: web.Request) -> web.Response:
        return _json({"live": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        facts = self._node.status()
        ready = bool(facts.get("serving")) or facts.get("leader") is not None
        return _json({"ready": ready}, status=200 if ready else 503)

    async def _status(self, _request: web.Request) -> web.Response:
        facts = self._node.status()
        facts["process"] = self._process_facts()
        return _json(facts)

    async def _transfer(self, request: web.Request) -> web.Response:
        body = await _body(request, TransferBody)

        async def do() -> dict[str, object]:
            _refuse_if(self._node.transfer(body.to), "no_transfer")
            return {"accepted": True}

        return await self._once(request, body.id, do)

    async def _form(self, request: web.Request) -> web.Response:
        body = await _body(request, FormBody)
        text = str(body.first_token)
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) >= TOKEN_LIMIT:
            raise RefusedError(400, "bad_request", "first_token is a decimal number below 2^62")

        async def do() -> dict[str, object]:
            _refuse_if(self._node.form(first=body.first, first_token=int(text)), "no_forming")
            return {"accepted": True}

        return await self._once(request, body.id, do)

    async def _reload_all(self, request: web.Request) -> web.Response:
        body = await _body(request, ReloadBody)

        async def do() -> dict[str, object]:
            _refuse_if(await self._reload(), "no_reload")
            return {"reloaded": True}

        return await self._once(request, body.id, do)


def _refuse_if(reason: str | None, code: str) -> None:
    if reason is not None:
        raise RefusedError(409, code, reason)


async def _body(request: web.Request, form: type[Any]) -> Any:
    content = await request.read()
    try:
        return msgspec.json.decode(content or b"{}", type=form)
    except msgspec.DecodeError as error:
        raise RefusedError(400, "bad_request", f"the body does not fit: {error}") from None


def _json(value: dict[str, object], status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _error(status: int, code: str, message: str, hint: str = "") -> web.Response:
    return _json({"error": {"code": code, "message": message, "hint": hint}}, status)
