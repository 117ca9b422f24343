"""Whatever arrives on a node's ports has a clear end, and touches nobody else (spec 2, 3)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from struct import pack

import pytest

from tests.e2e.cluster import Cluster, NodeProcess, told_status
from tests.e2e.conftest import OpenSession
from tests.e2e.waiting import until_told
from tests.e2e.wire import SessionOverError, WireSession, bytes_until_closed, fresh_owner
from ticketing.protocol import frames

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))
HTTP = b"GET / HTTP/1.1\r\nHost: ticketing\r\n\r\n"


@pytest.fixture(scope="module", params=[1, 3], ids=["standalone", "three nodes"])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for the whole module: nothing that is done here may disturb it."""
    cluster = Cluster(tmp_path_factory.mktemp("wrong-bytes") / "cluster", request.param)
    cluster.start()
    try:
        asyncio.run(cluster.leader())
        pids = [node.pid for node in cluster.nodes]
        yield cluster
        assert [node.pid for node in cluster.nodes if node.running] == pids, cluster.logs()
        for node in cluster.nodes:
            assert "Traceback" not in node.log.read_text(), cluster.logs()
    finally:
        cluster.end()


@pytest.fixture
async def leader(serving: Cluster) -> NodeProcess:
    return await serving.leader()


async def last_word(session: WireSession) -> str:
    async with asyncio.timeout(5):
        return await session.over


def acquire_of(key: bytes) -> bytes:
    return frames.encode_q(0, 5, fresh_owner(), key)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (acquire_of(b"k" * 129), "bad_key"),
        (acquire_of(b"k" * 192), "bad_key"),
        (acquire_of(b"a b"), "bad_key"),
        (acquire_of(b"a\rb"), "bad_key"),
        (acquire_of(b"\xff\xfe"), "bad_key"),
        (acquire_of(b""), "bad_key"),
        (frames.encode_release(7, b"k" * 129), "bad_key"),
        (acquire_of(b"k" * 193), "bad_frame"),
        (acquire_of(b"k" * 100_000), "bad_frame"),
        (frames.encode_extend(7, 0, b"k"), "bad_frame"),
        (frames.encode_extend(7, 251, b"k"), "bad_frame"),
        (frames.encode_cancel(7, b"k"), "bad_frame"),
        (b"H" + b"h" * 65 + b"\n", "bad_frame"),
        (b"Z\n", "bad_frame"),
        (HTTP, "bad_frame"),
        (TLS_HELLO, "bad_frame"),
        (b"\x00" * 300_000, "bad_frame"),
    ],
    ids=[
        "key of 129 bytes",
        "key of 192 bytes",
        "space in a key",
        "CR in a key",
        "key that is no UTF-8",
        "empty key",
        "release of a key of 129 bytes",
        "key of 193 bytes",
        "endless key",
        "extension by 0",
        "extension by 251",
        "cancel of a published owner",
        "long greeting",
        "unknown frame",
        "HTTP",
        "TLS",
        "zeros",
    ],
)
async def test_a_wrong_frame_ends_its_own_session_with_the_reason(
    leader: NodeProcess, open_session: OpenSession, sent: bytes, reason: str
) -> None:
    wrong, neighbour = await open_session(leader), await open_session(leader)
    wrong.send(sent)
    assert await last_word(wrong) == f"E{reason}"
    assert (await neighbour.acquire(b"%d" % fresh_owner(), 0, 5)).what == "G"
    assert neighbour.is_open


@pytest.mark.parametrize(("wait", "lease"), [(256, 5), (65_535, 5), (0, 0), (5, 251), (5, 65_535)])
@pytest.mark.parametrize("published", [False, True])
async def test_a_wait_or_lease_out_of_range_is_refused_for_itself_alone(
    leader: NodeProcess, open_session: OpenSession, wait: int, lease: int, published: bool
) -> None:
    session = await open_session(leader)
    key = b"range-%d" % fresh_owner()
    before = session.acquire(key, 5, 5, published=published)
    wrong = session.acquire(key, wait, lease, published=published)
    after = session.acquire(key + b"-other", 5, 5, published=published)
    granted = "A" if published else "G"
    assert [(await asked).what for asked in (before, wrong, after)] == [granted, "B", granted]
    assert session.is_open


async def test_the_longest_key_and_the_greatest_numbers_are_right(
    leader: NodeProcess, open_session: OpenSession
) -> None:
    session = await open_session(leader)
    key = ("좌" * 42 + "ab").encode()
    assert len(key) == 128
    granted = await session.acquire(key, 255, 250, owner=2**64 - 1)
    assert (granted.what, granted.owner, granted.key) == ("G", 2**64 - 1, key)
    assert (await session.extend(granted.token, 250, key)).what == "X"
    assert (await session.release(2**64 - 1, key)).what == "N"
    assert (await session.release(granted.token, key)).what == "R"


async def test_what_stands_before_a_wrong_frame_leaves_no_key_stuck(
    leader: NodeProcess, open_session: OpenSession
) -> None:
    wrong, other = await open_session(leader), await open_session(leader)
    wrong.send(frames.encode_q(5, 250, fresh_owner(), b"stuck") + b"Z\n")
    assert await last_word(wrong) == "Ebad_frame"
    granted = await other.acquire(b"stuck", 10, 5)
    assert granted.what == "G"
    await other.release(granted.token, b"stuck")


async def test_a_wrong_token_is_refused_after_a_second_and_holds_nobody_up(
    leader: NodeProcess, open_session: OpenSession
) -> None:
    began = time.monotonic()
    refused = [asyncio.create_task(WireSession.open(leader.client, "wrong")) for _ in range(10)]
    session = await open_session(leader)
    assert (await session.acquire(b"meanwhile", 5, 5)).what == "G"
    assert not any(task.done() for task in refused)
    for end in await asyncio.gather(*refused, return_exceptions=True):
        assert isinstance(end, SessionOverError), end
        assert end.last == "Eauth_failed"
    assert 1 <= time.monotonic() - began < 4


@pytest.mark.parametrize("serving", [3], ids=["three nodes"], indirect=True)
async def test_strangers_at_the_door_are_turned_away(leader: NodeProcess) -> None:
    noise = random.Random(5).randbytes(5_000).replace(b"\n", b" ")
    http, tls, long_line, silent = await asyncio.gather(
        *(bytes_until_closed(leader.client, sent) for sent in (HTTP, TLS_HELLO, noise, b"")),
    )
    for answer, reasons in (
        (http, {b"Eauth_failed", b"Ebad_frame"}),
        (tls, {b"Eauth_failed", b"Ebad_frame"}),
        (long_line, {b"Ebad_frame"}),
        (silent, {b"Eauth_timeout"}),
    ):
        banner, _, rest = answer.partition(b"\n")
        assert banner.startswith(b"TICKETING/1+x")
        assert rest.rstrip(b"\n") in reasons, answer


@pytest.mark.parametrize("serving", [3], ids=["three nodes"], indirect=True)
async def test_noise_on_a_peer_port_ends_that_connection_alone(serving: Cluster, leader: NodeProcess) -> None:
    rng = random.Random(7)
    noises = [
        HTTP,
        TLS_HELLO,
        rng.randbytes(64),
        rng.randbytes(100_000),
        b"\xff" * 1_000_000,
        pack(">I", 2**31),
        b"",
    ]
    before = await told_status(leader)
    async with asyncio.timeout(15):
        await asyncio.gather(
            *(bytes_until_closed(node.peer, noise, 14) for node in serving.nodes for noise in noises),
        )
    after = await told_status(await serving.leader())
    for fact in ("place", "node_id", "incarnation", "domain"):
        assert after[fact] == before[fact]
    assert after["raft"]["term"] == before["raft"]["term"]


async def test_the_admin_plane_answers_strangers_with_an_error(leader: NodeProcess) -> None:
    def request(token: str, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()

    refused = await bytes_until_closed(leader.admin, request("wrong", "/v1/status"))
    assert refused.startswith(b"HTTP/1.1 401 "), refused
    unknown = await bytes_until_closed(leader.admin, request(leader.admin_token, "/v1/nothing"))
    assert unknown.startswith(b"HTTP/1.1 404 "), unknown
    live = await bytes_until_closed(leader.admin, request("", "/livez"))
    assert live.startswith(b"HTTP/1.1 200 "), live
    noise = await bytes_until_closed(leader.admin, random.Random(9).randbytes(5_000) + b"\r\n\r\n")
    assert noise.startswith(b"HTTP/1.") or not noise, noise
    assert await until_told(leader.status, "the admin plane answers")
