"""What became of servers elsewhere: memory for every key ever seen, replayed proofs, a stop that hangs.

Field reports F022, F104, F107.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from tests.e2e.cluster import Cluster, NodeProcess
from tests.e2e.wire import WireSession
from tests.field_reports.conftest import OpenSession
from tests.field_reports.queueing import until_waiting
from ticketing.protocol import frames
from ticketing.protocol.handshake import digest, parse_banner

KEYS = 20_000
BATCH = 500


def resident_bytes(pid: int) -> int:
    """Of the process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_a_key_that_is_free_again_takes_no_memory(node: NodeProcess, open_session: OpenSession) -> None:
    session = await open_session()

    async def pairs(number: int) -> None:
        """Takes and gives back so many keys that nobody has named before."""
        for first in range(0, number, BATCH):
            names = [os.urandom(20).hex().encode() for _ in range(first, first + BATCH)]
            granted = await asyncio.gather(*(session.acquire(name, 0, 30) for name in names))
            assert {answer.what for answer in granted} == {"G"}
            ended = await asyncio.gather(*(session.release(answer.token, answer.key) for answer in granted))
            assert {answer.what for answer in ended} == {"R"}

    await pairs(KEYS)  # buffers and the log find their size
    before = resident_bytes(node.pid)
    await pairs(2 * KEYS)
    # A record of 200 bytes a key would be 8 MB.
    assert resident_bytes(node.pid) - before < 4 * 1024 * 1024
    status = await node.ask_admin("GET", "/v1/status")
    assert status["locks"]["held"] == 0


async def test_a_proof_that_was_recorded_opens_no_second_session(node: NodeProcess) -> None:
    async def greeted() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        host, _, port = node.client.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        banner = parse_banner((await reader.readline())[:-1])
        return reader, writer, banner.nonce

    async with asyncio.timeout(15):
        reader, writer, nonce = await greeted()
        recorded = digest(node.client_token, nonce)
        writer.write(recorded)
        assert (await reader.readline()).startswith(b"L")
        for _ in range(3):
            other_reader, other_writer, other_nonce = await greeted()
            assert other_nonce != nonce
            other_writer.write(recorded + frames.encode_q(0, 30, 1 << 63 | 1, b"F104"))
            assert await other_reader.read() == b"Eauth_failed\n"
            other_writer.close()
            await other_writer.wait_closed()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("signal", [SIGTERM, SIGINT], ids=["term", "int"])
async def test_a_stop_waits_for_no_client(tmp_path: Path, signal: Signals) -> None:
    cluster = Cluster(tmp_path / "cluster", 1)
    try:
        cluster.start()
        node = await cluster.leader()
        await _stopped_among_clients(node, signal)
        # Its port is free at once.
        cluster.start()
        assert (await cluster.leader()).client == node.client
    finally:
        cluster.end()


async def _stopped_among_clients(node: NodeProcess, signal: Signals) -> None:
    host, _, port = node.client.rpartition(":")
    strangers = [await asyncio.open_connection(host, int(port)) for _ in range(5)]  # never answer the banner
    idle = [await WireSession.open(node.client, node.client_token) for _ in range(20)]
    held = await idle[0].acquire(b"F107", 0, 250)
    assert held.what == "G"
    waiting = [session.acquire(b"F107", 100, 30) for session in idle[1:5]]
    await until_waiting(node, "F107", 4)
    node.signal(signal)
    assert await node.ended(10) == 0
    for session in idle:
        await asyncio.wait_for(session.over, 5)
    for answer in waiting:
        # Never proposed, or the session ended under it: never a grant.
        assert answer.exception() is not None or answer.result().what in "VB"
    for _, writer in strangers:
        writer.close()
