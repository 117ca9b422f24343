"""Hostile clients: at the door, and as sessions that have authenticated."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import time

from tests.e2e.cluster import run_ticketing
from tests.hostile.cases import STANDALONE, STANDALONE_TLS, THREE, Case, Target, nonce_of
from tests.hostile.probes import LogReader, descriptors
from tests.hostile.strangers import SOURCES, Stranger, TlsStranger, dial_all, dribble, for_seconds
from ticketing.protocol import frames
from ticketing.protocol.handshake import digest

HTTP = b"GET / HTTP/1.1\r\nHost: ticketing\r\n\r\n"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))
OWNER = 1 << 63
REFUSED_S = 1.0
"""A wrong token is answered after this time."""
REFUSALS_MAX = 64
"""So many wrong tokens are answered at a time."""
USER_TIMEOUT_S = 9.0
"""TCP_USER_TIMEOUT of client connections."""


async def silent(target: Target, _seconds: float) -> str:
    strangers = await dial_all(target.node.client, 200, SOURCES[:2])
    words = await asyncio.gather(*(stranger.ended() for stranger in strangers))
    if target.tls is None:
        assert any(word.endswith(b"Eauth_timeout\n") for word in words), words[:3]
    close(strangers)
    return f"{len(strangers)} connections, closed after 5 s"


async def byte_by_byte(target: Target, _seconds: float) -> str:
    strangers = await dial_all(target.node.client, 60, SOURCES[2:3])
    said = b"A" * 43 + b"\n" if target.tls is None else TLS_HELLO
    await asyncio.gather(*(dribble(stranger, said, 0.9) for stranger in strangers))
    await asyncio.gather(*(stranger.ended(2) for stranger in strangers))
    close(strangers)
    return f"{len(strangers)} connections with a byte in 0.9 s, closed after 5 s"


async def half_open(target: Target, _seconds: float) -> str:
    """Whoever shuts its write side, or resets, in the middle of the handshake."""
    strangers = await dial_all(target.node.client, 50, SOURCES[3:4])
    for number, stranger in enumerate(strangers):
        await stranger.send(b"x")
        if number % 2:
            stranger.reset()
        else:
            stranger.close()
    return f"{len(strangers)} connections"


async def giant_lines(target: Target, _seconds: float) -> str:
    async def one() -> None:
        with await Stranger.dial(target.node.client, source=SOURCES[0]) as stranger:
            await stranger.send(b"A" * 1_000_000, 3)
            await stranger.ended()

    await asyncio.gather(*(one() for _ in range(50)))
    return "50 lines of a megabyte"


async def giant_answers(target: Target, _seconds: float) -> str:
    """A line without end where TLS is done and the answer is awaited."""

    async def one() -> None:
        stranger = await target.client(source=SOURCES[0])
        try:
            await stranger.send(b"A" * 1_000_000)
            await stranger.ended()
        finally:
            stranger.close()

    await asyncio.gather(*(one() for _ in range(20)))
    return "20 answers of a megabyte"


async def random_bytes(target: Target, _seconds: float) -> str:
    rng = random.Random(7)

    async def one(source: str) -> None:
        with await Stranger.dial(target.node.client, source=source) as stranger:
            await stranger.send(rng.randbytes(rng.randrange(1, 5_000)) + b"\n" * 8)
            await stranger.ended()

    await asyncio.gather(*(one(SOURCES[number % 4]) for number in range(150)))
    return "150 connections"


async def other_protocols(target: Target, _seconds: float) -> str:
    async def one(said: bytes) -> bytes:
        with await Stranger.dial(target.node.client) as stranger:
            await stranger.send(said)
            return await stranger.ended()

    spoken = [HTTP, b"SSH-2.0-x\r\n", TLS_HELLO if target.tls is None else b"H\n", b"TICKETING/1 x\n" * 30]
    words = await asyncio.gather(*(one(said) for said in spoken))
    if target.tls is not None:
        assert not any(b"TICKETING" in word for word in words), words
    return "HTTP, SSH, TLS against plain, plain against TLS"


async def connection_flood(target: Target, seconds: float) -> str:
    async def once(number: int) -> None:
        stranger = await Stranger.dial(target.node.client, source=SOURCES[number % len(SOURCES)])
        if number % 2:
            stranger.reset()
        else:
            stranger.close()

    return f"{await for_seconds(seconds, 16, once)} connections in {seconds:g} s"


async def full_door(target: Target, _seconds: float) -> str:
    """From three sources, each connection with a byte now and then; whoever means it still comes in."""
    strangers = await dial_all(target.node.client, 700, SOURCES[:3])
    tasks = [asyncio.create_task(dribble(stranger, b"A" * 40, 0.4)) for stranger in strangers]
    await asyncio.sleep(1.3)
    session = await target.session()
    session.close()
    other = await target.client(source=SOURCES[0])
    try:
        nonce_of(await other.line())
    finally:
        other.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    close(strangers)
    return (
        f"{len(strangers)} connections; newcomers from elsewhere and from the same source came in after 1 s"
    )


async def wrong_tokens(target: Target, seconds: float) -> str:
    """Each answer comes late, and to so many at a time; past that the connection ends without one."""
    began, answered = time.monotonic(), 0

    async def once(number: int) -> None:
        nonlocal answered
        stranger = await target.client(source=SOURCES[number % len(SOURCES)])
        try:
            said = digest("wrong", nonce_of(await stranger.line()))
            asked = time.monotonic()
            await stranger.send(said)
            word = await stranger.ended()
            if target.tls is None and word:
                assert word == b"Eauth_failed\n"
                assert time.monotonic() - asked > 0.9 * REFUSED_S
                answered += asked - began < REFUSED_S / 2
        finally:
            stranger.close()

    tries = await for_seconds(seconds, 4 * REFUSALS_MAX, once)
    # Twice: a node that the machine stops in between may read some of them when the first have their answers.
    assert answered <= 2 * REFUSALS_MAX
    return f"{tries} tries in {seconds:g} s"


async def replayed_answers(target: Target, _seconds: float) -> str:
    """The right answer to another connection's nonce."""
    first = await target.client()
    recorded = digest(target.node.client_token, nonce_of(await first.line()))
    first.close()

    async def replay() -> None:
        stranger = await target.client()
        try:
            await stranger.line()
            await stranger.send(recorded)
            assert (await stranger.line())[:1] != b"L"
        finally:
            stranger.close()

    await asyncio.gather(*(replay() for _ in range(10)))
    return "10 times the answer to another nonce"


async def never_reads(target: Target, _seconds: float) -> str:
    asked = b"".join(frames.encode_release(7, b"k" * 100) for _ in range(1_000))
    log, began = LogReader(target.node.log), time.monotonic()

    async def one() -> None:
        session = await target.session(window=4_096)
        plain = session if isinstance(session, Stranger) else session.plain
        try:
            while await session.send(asked, 20):
                pass
            assert plain.was_reset, "still open after 20 s in which nothing was read"
        finally:
            session.close()

    await asyncio.gather(*(one() for _ in range(4)))
    if not log.events()["slow consumer"]:
        # On a machine so busy that 256 KiB of answers took longer, the kernel has ended what nobody acknowledged.
        assert time.monotonic() - began > USER_TIMEOUT_S
    return "4 sessions that ask without end and read nothing"


async def random_frames(target: Target, _seconds: float) -> str:
    rng = random.Random(11)

    async def one(said: bytes) -> None:
        session = await target.session()
        try:
            await session.send(said)
            await session.ended()
        finally:
            session.close()

    said = [
        rng.choice(b"AQRCXHZ").to_bytes() + rng.randbytes(rng.randrange(200, 20_000)) + b"\xff\n"
        for _ in range(40)
    ]
    await asyncio.gather(*(one(frame) for frame in said))
    return "40 sessions with random frames"


async def endless_requests(target: Target, _seconds: float) -> str:
    """A line without end, a key that is too long, and a frame that begins and never ends, byte for byte."""
    said = (
        b"Q" + b"7" * 1_000_000,
        frames.encode_q(0, 3, OWNER + (1 << 51), b"k" * 1_000_000),
        b"H" + b"n" * 1_000_000,
    )

    async def one(frame: bytes) -> None:
        session = await target.session()
        try:
            await session.send(frame)
            await session.ended()
        finally:
            session.close()

    await asyncio.gather(*(one(frame) for frame in said * 10))
    return f"{len(said) * 10} sessions with a line of a megabyte"


async def half_a_frame(target: Target, _seconds: float) -> str:
    """Sessions that say a byte now and then, never a whole frame. They may: it costs them a place as any other does."""
    sessions = [await target.session() for _ in range(20)]
    frame = frames.encode_q(0, 3, OWNER + (1 << 52), b"half a frame")[:-1]

    async def dribbled(session: Stranger | TlsStranger) -> None:
        for number in range(10):
            await session.send(frame[number : number + 1])
            await asyncio.sleep(0.2)

    await asyncio.gather(*(dribbled(session) for session in sessions))
    for session in sessions:
        session.close()
    return f"{len(sessions)} sessions with a byte in 0.2 s, never a whole frame"


async def flood_of_requests(target: Target, seconds: float) -> str:
    """Releases of nothing, cancels of nobody, extensions and tries, as fast as they are taken."""
    sent = 0

    async def one(number: int) -> None:
        nonlocal sent
        session = await target.session()
        until = asyncio.get_running_loop().time() + seconds
        keys = [b"flood/%d/%d" % (number, key) for key in range(200)]
        asked = b"".join(
            frames.encode_release(9, key)
            + frames.encode_cancel(OWNER + number * 1000 + place, key)
            + frames.encode_extend(9, 5, key)
            + frames.encode_q(0, 1, OWNER + (1 << 40) + number * 1000 + place, key)
            for place, key in enumerate(keys)
        )
        reading = asyncio.create_task(session.ended(60))
        try:
            while asyncio.get_running_loop().time() < until and await session.send(asked):
                sent += 800
        finally:
            session.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    await asyncio.gather(*(one(number) for number in range(4)))
    return f"{sent} requests in {seconds:g} s"


async def names_that_move_the_cursor(target: Target, _seconds: float) -> str:
    session = await target.session()
    key = "\x1b[2J\x1b]0;owned\x07\u202ekey".encode()
    await session.send(b"H\x1b[31mred\x9b\n" + frames.encode_q(0, 20, OWNER + (1 << 50), key))
    granted = (await session.line()).strip(b"\n")
    assert granted[:1] == b"G", granted
    words = ("locks", "list", "--config", target.cluster.folder / "client.toml")
    shown = await asyncio.to_thread(run_ticketing, *words, folder=target.cluster.folder)
    assert shown.status == 0, shown
    assert "owned" in shown.out
    assert all(char.isprintable() or char == "\n" for char in shown.out), shown.out
    await session.send(frames.encode_q(0, 3, OWNER + (1 << 50) + 1, b"\x1b[2J x"))
    await session.ended()
    session.close()
    return "a name, a key and a wrong key with escapes; `locks list` shows them harmless"


async def out_of_descriptors(target: Target, _seconds: float) -> str:
    node = target.node
    limits = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (descriptors(node.pid) + 30, limits[1]))
    try:
        strangers = await dial_all(node.client, 200, SOURCES)
        await asyncio.sleep(1.0)
        close(strangers)
    finally:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limits)
    return f"{len(strangers)} connections, 30 descriptors"


def close(strangers: list[Stranger]) -> None:
    for stranger in strangers:
        with contextlib.suppress(OSError):
            stranger.close()


CASES = (
    Case("door: silent", silent, log="handshake took too long", waits=True),
    Case("door: a byte at a time", byte_by_byte, log="handshake took too long", waits=True),
    Case("door: half-open", half_open, waits=True),
    Case("door: giant lines", giant_lines, (STANDALONE,), log="not a client of ours"),
    Case(
        "door: giant answers", giant_answers, log="not a client of ours", log_tls="TLS with a client failed"
    ),
    Case("door: random bytes", random_bytes, log="authentication failed", log_tls="not a TLS client"),
    Case("door: other protocols", other_protocols, log="authentication failed", log_tls="not a TLS client"),
    Case("door: a flood of connections", connection_flood),
    Case("door: full", full_door, log="client turned away"),
    Case("door: wrong tokens", wrong_tokens, (STANDALONE, STANDALONE_TLS), log="authentication failed"),
    Case("door: replayed answers", replayed_answers, log="authentication failed"),
    Case("door: out of descriptors", out_of_descriptors, (STANDALONE_TLS,), log="client turned away"),
    Case("session: never reads", never_reads, (STANDALONE, STANDALONE_TLS), waits=True),
    Case("session: random frames", random_frames, log="bad frame"),
    Case("session: lines without end", endless_requests, log="bad frame"),
    Case("session: half a frame", half_a_frame),
    Case("session: a flood of requests", flood_of_requests, (STANDALONE, STANDALONE_TLS, THREE)),
    Case(
        "session: names with escapes",
        names_that_move_the_cursor,
        (STANDALONE, STANDALONE_TLS),
        log="bad frame",
    ),
)
