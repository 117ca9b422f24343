"""The admin plane of a real node: locks, members, events and metrics as they are served."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.asking import TOKEN, EventReader, ask, ask_raw
from tests.server.test_real_node import TOKEN as CLIENT_TOKEN
from tests.server.test_real_node import Client
from ticketing.node.node import Node
from ticketing.node.settings import NodeSettings, Place
from ticketing.server.admin import metrics, plane, stream
from ticketing.server.log import Log
from ticketing.server.service import Listeners, Service
from ticketing.server.settings import ServerSettings

Run = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "REFUSAL_DELAY_S", 0.0)


class Desk:
    """A standalone node with its plane, and one client."""

    def __init__(self, service: Service, client: Client, output: io.StringIO) -> None:
        self.service = service
        self.client = client
        self.output = output
        self.admin = service.place.admin

    async def get(self, path: str) -> Any:
        status, answer = await ask(self.admin, "GET", path)
        assert status == 200, answer
        return answer

    async def hold(self, key: str, lease: int = 60) -> int:
        self.client.acquire(key.encode(), wait=5, lease=lease)
        return await self.client.granted(key.encode())

    def wait_for(self, key: str, wait: int = 99) -> None:
        self.client.acquire(key.encode(), wait=wait, lease=7)


@contextlib.asynccontextmanager
async def desk(
    folder: Path, context: Callable[[], ssl.SSLContext] | None = None, **fields: Any
) -> AsyncIterator[Desk]:
    place = Place("node-1", "127.0.0.1:0", "", "127.0.0.1:0")
    node = NodeSettings(
        place="node-1", places=(place,), standalone=True, client_tokens=(CLIENT_TOKEN,), version="1.2"
    )
    settings = ServerSettings(
        node=node,
        listen_client="127.0.0.1:0",
        listen_admin="127.0.0.1:0",
        admin_tokens=(TOKEN,),
        state_dir=folder,
        **fields,
    )
    output = io.StringIO()
    log = Log(output, form="text")
    service = Service(settings, Listeners(settings), log, Node, descriptors=1024)
    service.start()
    try:
        tls = None if context is None else context()
        client, _ = await Client.dial(service.place.client, tls)
        await client.led_by(service.place.client.encode())
        while not service.node.status()["serving"]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        yield Desk(service, client, output)
        client.writer.close()
    finally:
        await service.close()
        log.close()


KEYS = ["a", "a/b", ".", "..", "a%2Fb", "100%", "좌석/1", "revoke", "?x=1", "#", "+", "~"]


def test_every_key_can_be_listed_shown_and_revoked_by_its_address(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            tokens = {key: await it.hold(key) for key in KEYS}
            listed = await it.get("/v1/locks")
            assert [lock["key"] for lock in listed["locks"]] == sorted(KEYS, key=str.encode)
            for key, token in tokens.items():
                address = "/v1/locks/" + quote(key, safe="").replace(".", "%2E")
                shown = await it.get(address)
                assert (shown["lock"]["key"], shown["lock"]["token"]) == (key, str(token))
                body = {"token": str(token), "reason": "test"}
                status, answer = await ask(it.admin, "POST", f"{address}/revoke", body)
                assert (status, answer["revoked"]) == (200, True)
                assert (await it.get(address))["lock"] is None

    on_loop(scene())


def test_pages_prefixes_and_orders_of_the_list(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            for number in range(5):
                await it.hold(f"s{number}", lease=60 - number)
            it.wait_for("s3")
            await it.client.writer.drain()
            page = await it.get("/v1/locks?limit=2&prefix=s")
            assert [lock["key"] for lock in page["locks"]] == ["s0", "s1"]
            page = await it.get(f"/v1/locks?limit=9&after={page['next']}")
            assert [lock["key"] for lock in page["locks"]] == ["s2", "s3", "s4"]
            assert page["next"] is None
            page = await it.get("/v1/locks?order=lease_left&limit=1")
            assert [lock["key"] for lock in page["locks"]] == ["s4"]
            page = await it.get("/v1/locks?order=queue")
            assert [(lock["key"], lock["waiting"]) for lock in page["locks"]] == [("s3", 1)]
            shown = await it.get("/v1/locks/s3")
            (waiter,) = shown["waiters"]
            assert waiter["lease_s"] == 7

    on_loop(scene())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/locks?limit=0",
        "/v1/locks?limit=1001",
        "/v1/locks?limit=x",
        "/v1/locks?order=size",
        "/v1/locks?order=age&after=k",
        "/v1/locks?pre=x",
        "/v1/locks?prefix=a&prefix=b",
        "/v1/locks/k?after=x",
        "/v1/locks/" + "k" * 129,
        "/v1/locks/a%20b",
        "/v1/events?kinds=none",
        "/v1/events?after=-1",
        "/v1/can-stop",
    ],
)
def test_what_does_not_fit_is_refused(on_loop: Run, tmp_path: Path, path: str) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            status, answer = await ask(it.admin, "GET", path)
            assert (status, answer["error"]["code"]) == (400, "bad_request")

    on_loop(scene())


def test_a_revocation_hands_on_tells_apart_and_answers_its_id_once(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            token = await it.hold("k")
            it.wait_for("k")
            body = {"token": str(token), "reason": "stuck job", "id": "r1"}
            first = await ask(it.admin, "POST", "/v1/locks/k/revoke", body)
            assert first == (200, {"revoked": True, "next_token": str(token + 1)})
            assert await it.client.granted(b"k") == token + 1
            assert await ask(it.admin, "POST", "/v1/locks/k/revoke", body) == first
            vain = {"token": token, "reason": "again"}
            status, answer = await ask(it.admin, "POST", "/v1/locks/k/revoke", vain)
            assert (status, answer["revoked"]) == (200, False)
            it.service.log.flush()
            (line,) = [line for line in it.output.getvalue().splitlines() if "lock revoked" in line]
            assert 'why="stuck job"' in line
            assert "who=127.0.0.1" in line

    on_loop(scene())


def test_a_revocation_without_token_or_reason_is_refused(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            for body in (
                {"token": "1"},
                {"reason": "x"},
                {"token": "1", "reason": " "},
                {"token": "x", "reason": "x"},
            ):
                status, answer = await ask(it.admin, "POST", "/v1/locks/k/revoke", body)
                assert (status, answer["error"]["code"]) == (400, "bad_request")

    on_loop(scene())


def test_members_clock_and_commands_of_a_standalone_node(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            members = await it.get("/v1/members")
            assert [member["place"] for member in members["members"]] == ["node-1"]
            assert (await it.get("/v1/clock"))["gate"] == "open"
            for method, path in (
                ("POST", "/v1/members/node-1/replace"),
                ("GET", "/v1/can-stop?place=node-1"),
            ):
                status, answer = await ask(it.admin, method, path, {} if method == "POST" else None)
                assert (status, answer["error"]["code"]) == (409, "standalone")
            status, answer = await ask(it.admin, "POST", "/v1/leave", {"place": "node-9"})
            assert (status, answer["error"]["code"]) == (404, "not_found")

    on_loop(scene())


@pytest.mark.parametrize("force", [False, True])
def test_a_node_that_leaves_answers_before_it_ends(on_loop: Run, tmp_path: Path, force: bool) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            running = asyncio.ensure_future(it.service.run())
            status, answer = await ask(it.admin, "POST", "/v1/leave", {"force": force})
            assert (status, answer) == (200, {"leave": not force, "stopping": True})
            assert (await running).status == 0

    on_loop(scene())


# --- events


def test_a_reader_follows_what_happens(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            await it.get("/v1/status")
            reader = await EventReader.follow(it.admin, "?kinds=lock,audit")
            token = await it.hold("k")
            await ask(it.admin, "POST", "/v1/locks/k/revoke", {"token": token, "reason": "x"})
            seen: list[Any] = []
            while len(seen) < 4:
                seen += [line for line in await reader.lines() if line is not None]
            what = [event.get("what") or event.get("event") for event in seen]
            assert set(what) == {"lock revoked", "revoked", "admin command", "counts"}
            assert [event["number"] for event in seen] == sorted(event["number"] for event in seen)
            reader.close()

    on_loop(scene())


def test_a_reader_goes_on_where_it_was_or_is_told_what_it_missed(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "READ_AT_ONCE", 4_000)

    async def scene() -> None:
        async with desk(tmp_path) as it:
            await it.get("/v1/status")
            events = it.service.node.events
            mark = events.newest
            events.add("audit", event="one")
            reader = await EventReader.follow(it.admin, f"?after={mark}&kinds=audit")
            assert (await reader.next())["event"] == "one"
            reader.close()
            for _ in range(3_000):
                events.add("audit", event="many")
            reader = await EventReader.follow(it.admin, f"?after={mark + 1}")
            gap, *_rest = await reader.lines()
            assert gap == {"kind": "gap", "lost": 3_000 - 2_048}
            reader.close()
            reader = await EventReader.follow(it.admin, f"?after={1 << 40}")
            assert await reader.next() == {"kind": "gap", "lost": None}
            reader.close()

    on_loop(scene())


def test_silence_is_a_blank_line_and_the_end_of_the_node_ends_the_stream(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SILENCE_S", 0.01)

    async def scene() -> None:
        async with desk(tmp_path) as it:
            await it.get("/v1/status")
            reader = await EventReader.follow(it.admin, "?kinds=overload")
            assert await reader.next() is None
            monkeypatch.setattr(stream, "SILENCE_S", 100.0)
            running = asyncio.ensure_future(it.service.run())
            it.service.node.begin_stop(force=True)
            while await reader.lines():
                pass
            assert (await running).status == 0
            reader.close()

    on_loop(scene())


def test_readers_are_bounded_and_leave_room_when_they_go(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "READERS_MAX", 1)
    monkeypatch.setattr(stream, "SILENCE_S", 0.01)

    async def scene() -> None:
        async with desk(tmp_path) as it:
            await it.get("/v1/status")
            reader = await EventReader.follow(it.admin)
            status, answer = await ask(it.admin, "GET", "/v1/events")
            assert (status, answer["error"]["code"]) == (503, "too_many_readers")
            reader.close()
            admin = it.service.admin
            assert admin is not None
            while admin._stream._readers:  # noqa: ASYNC110
                await asyncio.sleep(0)
            (await EventReader.follow(it.admin)).close()

    on_loop(scene())


def test_the_head_of_an_endless_answer_cannot_be_asked_for(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            assert (await ask_raw(it.admin, "HEAD", "/v1/events"))[0] == 405
            assert (await ask_raw(it.admin, "HEAD", "/v1/status"))[0] == 200

    on_loop(scene())


# --- metrics


def values(content: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def test_metrics_tell_what_happened(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            token = await it.hold("k")
            it.wait_for("k")
            it.client.writer.write(b"R" + struct.pack(">Q", token) + b"k\n")
            await it.client.granted(b"k")
            await it.client.reader.readexactly(1 + 8 + 1 + 1)
            it.wait_for("k")
            await it.get("/v1/locks/k")
            status, head, content = await ask_raw(it.admin, "GET", "/metrics")
            assert status == 200
            assert "text/plain" in head
            found = values(content)
            assert found["ticketing_serving", ()] == 1
            assert found["ticketing_lock_events_total", (("event", "granted"),)] == 1
            assert found["ticketing_lock_events_total", (("event", "handed_over"),)] == 1
            assert found["ticketing_wait_seconds_count", ()] == 2
            assert found["ticketing_hold_seconds_count", ()] == 1
            assert found["ticketing_hold_seconds_bucket", (("le", "+Inf"),)] == 1
            assert found["ticketing_wait_seconds_bucket", (("le", "0.000125"),)] <= 2
            assert found["ticketing_locks_held", ()] == 1
            assert found["ticketing_waiting", ()] == found["ticketing_longest_queue", ()] == 1
            assert found["ticketing_clock_gate_open", ()] == 1
            assert found["ticketing_redundancy", ()] == 0
            assert found["ticketing_sessions", (("state", "open"),)] == 1
            assert found["ticketing_resident_bytes", ()] > 1 << 20
            info = next(labels for name, labels in found if name == "ticketing_node_info")
            assert dict(info)["place"] == "node-1"

    on_loop(scene())


def test_metrics_need_the_token_unless_configured_otherwise(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path, metrics_open=True) as it:
            assert (await ask_raw(it.admin, "GET", "/metrics", token=None))[0] == 200
            assert (await ask(it.admin, "GET", "/v1/members", token=None))[0] == 401
        async with desk(tmp_path) as it:
            assert (await ask_raw(it.admin, "GET", "/metrics", token=None))[0] == 401

    on_loop(scene())


def test_open_metrics_are_given_to_whoever_asks_for_them(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with desk(tmp_path) as it:
            _, head, content = await ask_raw(
                it.admin, "GET", "/metrics", headers="Accept: application/openmetrics-text; version=1.0.0\r\n"
            )
            assert "openmetrics" in head
            assert content.endswith(b"# EOF\n")

    on_loop(scene())


def test_a_bound_of_a_histogram_is_named_exactly() -> None:
    assert metrics.BOUND_NAMES[:4] == ("0.000125", "0.00025", "0.0005", "0.001")
    assert metrics.BOUND_NAMES[-1] == "131.072"
