"""TLS: the four modes, and no way back from any of them (spec 3, 10)."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import ssl
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.client.conftest import MakeServer
from tests.client.locking import LockServer
from tests.client.scripted import until
from ticketing.client import TicketBroker, TicketError
from ticketing.protocol import frames


def certificate(folder: Path) -> Path:
    """One that is its own authority, for 127.0.0.1, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path)


def serving(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def acquires(broker: TicketBroker) -> None:
    async with await broker.acquire("key", 5, 30, 0):
        pass


async def test_a_ca_file_is_trusted_and_nothing_else(new_server: MakeServer, pem: Path) -> None:
    server = await new_server(tls=serving(pem))
    server.answer = lambda asked: asked.grant(5) if asked.opcode == frames.Q else asked.released()
    async with TicketBroker([server.address], tls=str(pem)) as broker:
        await acquires(broker)
    async with TicketBroker([server.address], tls="system-roots") as broker:
        with pytest.raises(TicketError) as caught:
            await acquires(broker)
        assert caught.value.kind == "io"
        assert "certificate" in str(caught.value)
    assert len(server.log) == 2


async def test_without_verification_it_connects_and_warns(
    new_server: MakeServer, pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = await new_server(tls=serving(pem))
    with caplog.at_level(logging.WARNING, "ticketing.client"):
        async with TicketBroker([server.address], tls="insecure-skip-verify") as broker:
            assert await broker.wait_ready(5)
    assert "without verification" in caplog.text


async def test_a_client_with_tls_never_speaks_plainly(new_server: MakeServer, pem: Path) -> None:
    server = await new_server()
    async with TicketBroker([server.address], tls=pem) as broker:
        assert not await broker.wait_ready(0.5)
    assert server.connections > 1
    assert not server.open_sessions


def test_a_ca_file_that_cannot_be_used_is_told_when_the_broker_is_made(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for mode in (tmp_path / "missing.pem", empty, "on"):
        with pytest.raises(TicketError) as caught:
            TicketBroker(["127.0.0.1:1"], tls=mode)
        assert caught.value.kind == "io"
        assert "system-roots" in str(caught.value)


async def test_a_leader_that_was_not_configured_is_dialled_over_verified_tls(
    new_server: MakeServer, pem: Path
) -> None:
    leader = await new_server(tls=serving(pem))
    leader.answer = lambda asked: asked.grant(5) if asked.opcode == frames.Q else asked.released()
    server = await new_server(tls=serving(pem), leader=leader.address)
    async with TicketBroker([server.address], tls=pem) as broker:
        await acquires(broker)
        assert leader.connections == 1
        # Eight at most; the oldest makes room.
        for port in range(1, 12):
            server.tell(frames.encode_leader(f"127.0.0.1:{port}"))
        await until(lambda: broker._cluster is not None and len(broker._cluster.connections) == 2 + 8)
        await asyncio.sleep(0.01)


async def test_many_answers_at_once_come_through_on_uvloop_as_well(new_server: MakeServer, pem: Path) -> None:
    server = await new_server(tls=serving(pem))
    LockServer(server)

    async def work() -> list[int]:
        async with TicketBroker([server.address], tls=str(pem)) as broker:

            async def one(number: int) -> int:
                async with await broker.acquire(f"{number}-".ljust(120, "k"), 5, 30, 0) as ticket:
                    return ticket.token

            # Several times what one read takes.
            return await asyncio.gather(*[one(number) for number in range(2000)])

    tokens = await asyncio.to_thread(uvloop.run, work())
    assert sorted(tokens) == list(range(1, 2001))
    assert sorted(await work()) == list(range(2001, 4001))
