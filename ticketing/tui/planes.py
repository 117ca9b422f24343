"""HTTP to the nodes' admin planes: standing connections, bounded answers, one kind of error."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from ticketing.cli.admin_client import ANSWER_BYTES_MAX, AdminError
from ticketing.client.errors import TicketError
from ticketing.client.tls import context, verified
from ticketing.config.addresses import is_loopback, parse_address
from ticketing.tui.quiet import QUIET

TIMEOUT_S = 3.0
SILENCE_S = 10.0
"""A stream without a line for so long has no living node behind it: they write one every three seconds."""
KEEPALIVE_S = 10.0
"""Shorter than the nodes': a connection that a node is about to close is not used."""


class NotLeaderError(AdminError):
    """The node sends the caller on."""

    def __init__(self, message: str, leader_admin: str) -> None:
        super().__init__("not_leader", message)
        self.leader_admin = leader_admin


class Planes:
    """The admin planes of a cluster. One instance a running loop; `aclose` ends its connections."""

    def __init__(self, token: str, tls: str = "off", *, timeout_s: float = TIMEOUT_S) -> None:
        """`tls` as in `admin.toml`. `AdminError` where its CA file cannot be used."""
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        try:
            self._context: ssl.SSLContext | None = context(tls, QUIET)
        except TicketError as error:
            raise AdminError("tls", str(error)) from None
        self._scheme = "http" if self._context is None else "https"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s)
        self._timeout_s = timeout_s
        self._http: aiohttp.ClientSession | None = None

    def may_learn(self, address: str) -> bool:
        """Whether the token may go to an address that no file names but a node did: over verified TLS or loopback."""
        try:
            host, _ = parse_address(address)
        except ValueError:
            return False
        return verified(self._context) or (self._context is None and is_loopback(host))

    async def call(
        self,
        address: str,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: object = None,
    ) -> dict[str, Any]:
        """One request to one node; its JSON object, or `AdminError`. `path` is percent-encoded already."""
        target = f"{self._scheme}://{parse_address(address)}{path}"
        if query:
            target += "?" + urlencode(query, quote_via=quote)
        headers = self._headers if body is None else self._headers | {"Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session().request(
                method,
                URL(target, encoded=True),
                headers=headers,
                data=data,
                ssl=self._context or True,
                allow_redirects=False,
            ) as response:
                answer = await _bounded(response, address)
                return _parsed(address, response.status, answer)
        except TimeoutError:
            raise AdminError("unreachable", f"no answer within {self._timeout_s:g} s") from None
        except aiohttp.ClientSSLError as error:
            raise AdminError("tls", f"TLS failed: {getattr(error, 'certificate_error', error)}") from None
        except aiohttp.ClientConnectorError as error:
            raise AdminError("unreachable", _reason(error.os_error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise AdminError("unreachable", f"the connection broke ({type(error).__name__})") from None

    async def lines(self, address: str, path: str, query: dict[str, object]) -> AsyncGenerator[bytes, None]:
        """The lines of an answer that goes on and on; `AdminError` when it ends or falls silent."""
        target = f"{self._scheme}://{parse_address(address)}{path}?{urlencode(query, quote_via=quote)}"
        waits = aiohttp.ClientTimeout(total=None, connect=self._timeout_s, sock_read=SILENCE_S)
        try:
            async with self._session().get(
                URL(target, encoded=True),
                headers=self._headers,
                ssl=self._context or True,
                timeout=waits,
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    _parsed(address, response.status, await _bounded(response, address))
                # A line is at most as long as the client's buffer: a longer one ends the stream.
                async for line in response.content:
                    yield line
        except (TimeoutError, ValueError, aiohttp.ClientError, OSError) as error:
            raise AdminError("unreachable", f"the stream broke ({type(error).__name__})") from None
        raise AdminError("unreachable", "the stream ended")

    async def aclose(self) -> None:
        """Ends all connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=32, limit_per_host=6, keepalive_timeout=KEEPALIVE_S)
            self._http = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, auto_decompress=False, trust_env=False
            )
        return self._http


def key_path(key: str) -> str:
    """`/v1/locks/{key}`, whatever is in the key."""
    encoded = quote(key, safe="", errors="surrogatepass")
    if encoded in (".", ".."):
        encoded = encoded.replace(".", "%2E")
    return f"/v1/locks/{encoded}"


def _reason(error: OSError) -> str:
    """In the system's words; the loop puts its own in their place."""
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if error.errno is None:
        return "cannot be reached"
    return os.strerror(error.errno).lower()


async def _bounded(response: aiohttp.ClientResponse, address: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            response.close()
            raise AdminError("not_an_admin_plane", f"{address}: answers without end")
        parts.append(part)
    return b"".join(parts)


def _parsed(address: str, status: int, answer: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        value = None
    if not isinstance(value, dict):
        raise AdminError("not_an_admin_plane", "answers, but not as an admin plane does")
    if status < 400:
        return value
    error = value.get("error")
    if not isinstance(error, dict):
        raise AdminError("not_an_admin_plane", f"HTTP status {status}")
    code, message, hint = (str(error.get(name) or "") for name in ("code", "message", "hint"))
    if status == 421:
        leader = error.get("leader")
        admin = leader.get("admin") if isinstance(leader, dict) else None
        raise NotLeaderError(f"{address} does not lead", admin if isinstance(admin, str) else "")
    raise AdminError("unauthorized" if status == 401 else code, message or code, hint)
