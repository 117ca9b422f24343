"""Requests to an admin plane, byte for byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

TOKEN = "an admin token"


async def ask_raw(
    address: str,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = TOKEN,
    tls: Any = None,
    headers: str = "",
) -> tuple[int, str, bytes]:
    """Status, head and body of one answer."""
    port = int(address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}\r\n{headers}"
    if token is not None:
        head += f"Authorization: Bearer {token}\r\n"
    writer.write(head.encode() + b"\r\n" + content)
    answer = await reader.read()
    writer.close()
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), top.decode(), rest


async def ask(
    address: str,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = TOKEN,
    tls: Any = None,
    headers: str = "",
) -> tuple[int, Any]:
    """Status and JSON of one answer."""
    status, head, content = await ask_raw(address, method, path, body, token=token, tls=tls, headers=headers)
    assert "application/json" in head
    return status, json.loads(content)


class EventReader:
    """One reader of the event stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def follow(cls, address: str, query: str = "", token: str = TOKEN) -> EventReader:
        port = int(address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /v1/events{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        top = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in top, top
        assert b"application/jsonl" in top
        return cls(reader, writer)

    async def lines(self) -> list[Any]:
        """The objects of the next piece that the server wrote; a blank line is None. Empty at the end."""
        size = int(await self._reader.readline(), 16)
        data = await self._reader.readexactly(size + 2)
        if not size:
            return []
        return [
            json.loads(line) if line else None for line in data[:-2].decode().removesuffix("\n").split("\n")
        ]

    async def next(self) -> Any:
        (line,) = await self.lines()
        return line

    def close(self) -> None:
        self._writer.close()
