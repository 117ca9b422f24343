"""The real node behind the real shell: one standalone, and three that form a domain over mutual TLS."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.server.certificates import Authority
from ticketing.node.node import Node
from ticketing.node.settings import NodeSettings, Place
from ticketing.server.files import read_facts
from ticketing.server.listening import split_address
from ticketing.server.log import Log
from ticketing.server.service import Listeners, Service
from ticketing.server.settings import ServerSettings, TlsFiles

Run = Callable[[Any], Any]
TOKEN = "a client token"
OWNER = (1 << 63) + 5


class Client:
    """The published client's half of the wire, in a few lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, address: str, context: ssl.SSLContext | None = None) -> tuple[Client, bytes]:
        host, port = split_address(address)
        client = cls(*await asyncio.open_connection(host, port, ssl=context))
        banner = await client.reader.readline()
        nonce = banner.split(b" ", 1)[1].strip()
        digest = hashlib.sha256(TOKEN.encode() + nonce).digest()
        client.writer.write(base64.urlsafe_b64encode(digest).rstrip(b"=") + b"\n")
        return client, banner

    async def line(self) -> bytes:
        return await self.reader.readline()

    async def led_by(self, address: bytes) -> None:
        """Waits until this session is told that `address` leads."""
        while (line := await self.line()) != b"L" + address + b"\n":
            assert line == b"\n"

    def acquire(self, key: bytes, *, wait: int, lease: int) -> None:
        self.writer.write(b"A" + struct.pack(">HHQ", wait, lease, OWNER) + key + b"\n")

    async def granted(self, key: bytes) -> int:
        answer = await self.reader.readexactly(17 + len(key) + 1)
        assert answer[:1] == b"A"
        assert answer[17:] == key + b"\n"
        token, owner = struct.unpack(">QQ", answer[1:17])
        assert owner == OWNER
        return int(token)


@contextlib.asynccontextmanager
async def running(settings: ServerSettings) -> AsyncIterator[Service]:
    log = Log(io.StringIO(), form="text")
    facts = read_facts(settings.state_dir)
    settings = ServerSettings(
        node=facts.applied_to(settings.node),
        listen_client=settings.listen_client,
        listen_peer=settings.listen_peer,
        state_dir=settings.state_dir,
        tls=settings.tls,
    )
    service = Service(settings, Listeners(settings), log, Node, descriptors=1024)
    service.start()
    try:
        yield service
    finally:
        await service.close()
        log.close()


def test_a_standalone_node_grants_and_releases(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        place = Place("node-1", "127.0.0.1:0", "", "")
        node = NodeSettings(place="node-1", places=(place,), standalone=True, client_tokens=(TOKEN,))
        settings = ServerSettings(node=node, listen_client="127.0.0.1:0", state_dir=tmp_path)
        async with running(settings) as service:
            address = service.place.client.encode()
            client, banner = await Client.dial(service.place.client)
            assert b"+n=" + address in banner
            await client.led_by(address)
            client.acquire(b"seat", wait=5, lease=30)
            token = await client.granted(b"seat")
            released = b"R" + struct.pack(">Q", token) + b"seat\n"
            client.writer.write(released)
            assert await client.reader.readexactly(len(released)) == released
            service.node.begin_stop()
            assert await client.line() == b"Eshutting_down\n"
            client.writer.close()
            assert (await service.run()).status == 0

    on_loop(scene())


def test_three_nodes_form_a_domain_over_mutual_tls_and_one_serves(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        async with contextlib.AsyncExitStack() as stack:
            services = [
                await stack.enter_async_context(running(settings))
                for settings in cluster(tmp_path, authority)
            ]
            addresses = [service.place.client for service in services]
            token = await first_grant(addresses, authority.client_context())
            assert token >= 1 << 20
            for service in services:
                service.node.begin_stop(force=True)
            for service in services:
                assert (await service.run()).status == 0
        records = [json.loads((tmp_path / f"node-{n}" / "record.json").read_text()) for n in (1, 2, 3)]
        assert len({record["domain"] for record in records}) == 1

    on_loop(scene())


async def first_grant(addresses: list[str], context: ssl.SSLContext) -> int:
    """Asks every node for its leader until one is named, as a client does, and takes a lock there."""
    while True:
        for address in addresses:
            client, _ = await Client.dial(address, context)
            line = await client.line()
            if line == b"L" + address.encode() + b"\n":
                client.acquire(b"seat", wait=5, lease=30)
                token = await client.granted(b"seat")
                client.writer.close()
                return token
            client.writer.close()
        await asyncio.sleep(0.02)


def cluster(folder: Path, authority: Authority) -> list[ServerSettings]:
    files: TlsFiles = authority.issue("cluster", "127.0.0.1")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(6)]
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        free = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in held]
    places = tuple(Place(f"node-{n}", free[n - 1], free[n + 2], "") for n in (1, 2, 3))
    settings = []
    for place in places:
        state = folder / place.name
        state.mkdir()
        permit = {"permit": "one permit", "made_ms": time.time_ns() // 1_000_000}
        (state / "permit.json").write_text(json.dumps(permit))
        node = NodeSettings(
            place=place.name,
            places=places,
            client_tokens=(TOKEN,),
            peer_secrets=(b"a peer secret of some length",),
            cluster="digest",
        )
        settings.append(
            ServerSettings(
                node=node,
                listen_client=place.client,
                listen_peer=place.peer,
                state_dir=state,
                tls=files,
            )
        )
    return settings
