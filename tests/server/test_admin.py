"""The admin plane over real HTTP."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server import asking
from tests.server.asking import TOKEN
from tests.server.certificates import Authority
from tests.server.scripted import Door, open_door
from ticketing.server.admin import connections as connections_module
from ticketing.server.admin import plane as plane_module
from ticketing.server.loaded import fingerprint

Run = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_module, "REFUSAL_DELAY_S", 0.0)


async def ask(
    door: Door, method: str, path: str, body: object = None, *, token: str | None = TOKEN, tls: Any = None
) -> tuple[int, Any]:
    return await asking.ask(door.service.place.admin, method, path, body, token=token, tls=tls)


def plane(tmp_path: Path, **fields: Any) -> Any:
    fields.setdefault("admin_tokens", (TOKEN,))
    return open_door(tmp_path, listen_admin="127.0.0.1:0", **fields)


def test_health_needs_no_token(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            assert await ask(door, "GET", "/livez", token=None) == (200, {"live": True})
            assert await ask(door, "GET", "/readyz", token=None) == (503, {"ready": False})
            facts: dict[str, object] = {"leader_serves": True, "serving": False}
            door.node.status = lambda: facts
            assert await ask(door, "GET", "/readyz", token=None) == (200, {"ready": True})

    on_loop(scene())


def test_status_is_the_nodes_with_the_process_beside_it(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            status, facts = await ask(door, "GET", "/v1/status")
            assert status == 200
            assert facts["place"] == "node-1"
            assert facts["term"] == "7"
            assert facts["process"]["tls"] is False
            assert facts["process"]["reload_fault"] is None

    on_loop(scene())


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "\xe9"])
def test_without_the_token_nothing_is_told_or_done(on_loop: Run, tmp_path: Path, token: str | None) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            for method, path in (("GET", "/v1/status"), ("POST", "/v1/transfer"), ("GET", "/v1/none")):
                status, answer = await ask(door, method, path, token=token)
                assert status == 401
                assert answer["error"]["code"] == "unauthorized"
            assert "transfer" not in door.node.log

    on_loop(scene())


def test_without_a_configured_token_there_is_health_alone(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path, admin_tokens=()) as door:
            status, answer = await ask(door, "GET", "/v1/status", token="")
            assert (status, answer["error"]["code"]) == (403, "no_admin_token")

    on_loop(scene())


def test_commands_reach_the_node_once_an_id(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            for _ in range(2):
                body = {"to": "node-2", "id": "one"}
                assert await ask(door, "POST", "/v1/transfer", body) == (200, {"accepted": True})
            assert door.node.log.count("transfer") == 1
            await ask(door, "POST", "/v1/transfer")
            assert door.node.log.count("transfer") == 2
            form: dict[str, object] = {"first": True, "first_token": str(2**60)}
            assert await ask(door, "POST", "/v1/form", form) == (200, {"accepted": True})
            assert await door.node.next("form") == (True, 2**60)
            assert door.logged().count("admin command") == 3
            assert "who=127.0.0.1" in door.logged()

    on_loop(scene())


def test_a_refusal_of_the_node_is_told_with_its_reason_and_may_be_tried_again(
    on_loop: Run, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            for _ in range(2):
                status, answer = await ask(door, "POST", "/v1/transfer", {"to": "node-9", "id": "one"})
                assert status == 409
                assert answer["error"] == {
                    "code": "no_transfer",
                    "message": "node-9 is no voter",
                    "hint": "",
                }
            assert door.node.log.count("transfer") == 2

    on_loop(scene())


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/transfer", b"{", 400, "bad_request"),
        ("POST", "/v1/transfer", {"too": "node-2"}, 400, "bad_request"),
        ("POST", "/v1/transfer", {"to": 7}, 400, "bad_request"),
        ("POST", "/v1/form", {"first_token": "-1"}, 400, "bad_request"),
        ("POST", "/v1/form", {"first_token": str(2**62)}, 400, "bad_request"),
        ("POST", "/v1/transfer", b"x" * 70_000, 413, "too_large"),
        ("POST", "/v1/transfer", {"id": "x" * 65}, 400, "bad_request"),
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("DELETE", "/v1/status", None, 405, "method_not_allowed"),
    ],
)
def test_what_does_not_fit_is_an_error_in_json(
    on_loop: Run, tmp_path: Path, method: str, path: str, body: object, status: int, code: str
) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            told, answer = await ask(door, method, path, body)
            assert (told, answer["error"]["code"]) == (status, code)
            assert set(answer["error"]) == {"code", "message", "hint"}

    on_loop(scene())


def test_a_fault_of_the_plane_is_an_error_and_not_the_end(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            door.node.status = lambda: {"not": {1, 2}, "json": object()}
            status, answer = await ask(door, "GET", "/v1/status")
            assert (status, answer["error"]["code"]) == (500, "internal")
            assert "internal fault" in door.logged()
            assert not door.shell.outcome.done()

    on_loop(scene())


@pytest.mark.parametrize("request_first", [True, False])
def test_whoever_is_gone_before_it_was_looked_at_is_no_fault(
    on_loop: Run, tmp_path: Path, request_first: bool
) -> None:
    """A request and the end of its connection in one turn of the loop; and an end right after the beginning."""

    async def scene() -> None:
        async with plane(tmp_path) as door:
            await ask(door, "GET", "/livez")  # the plane is there
            assert door.service.admin is not None
            gone = connections_module.AdminConnection(door.service.admin._connections, "10.0.0.9:1", None)
            gone.opened()
            if request_first:
                await asyncio.sleep(0)
                gone.received(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            gone.lost(ConnectionResetError())
            for _ in range(5):
                await asyncio.sleep(0)
            gc.collect()  # what nobody retrieved is told of when it is collected
            assert await ask(door, "GET", "/livez") == (200, {"live": True})
            assert "internal fault" not in door.logged()

    on_loop(scene())


def test_silent_connections_do_not_lock_an_operator_out(
    on_loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "CONNECTIONS_MAX", 3)

    async def scene() -> None:
        async with plane(tmp_path) as door:
            await ask(door, "GET", "/livez")
            port = int(door.service.place.admin.rpartition(":")[2])
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
            assert await ask(door, "GET", "/livez") == (200, {"live": True})
            assert await silent[0][0].read() == b""
            for _, writer in silent:
                writer.close()

    on_loop(scene())


def test_with_tls_the_node_shows_its_certificate(on_loop: Run, tmp_path: Path, authority: Authority) -> None:
    async def scene() -> None:
        files = authority.issue("admin-door", "127.0.0.1")
        async with plane(tmp_path, tls=files) as door:
            context = authority.client_context()
            status, facts = await ask(door, "GET", "/v1/status", tls=context)
            assert status == 200
            assert facts["process"]["tls"] is True

    on_loop(scene())


def test_a_reload_takes_over_secrets_and_keeps_the_rest(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            service = door.service
            old = service.settings
            node = msgspec.structs.replace(
                old.node, client_tokens=("new",), peer_secrets=(b"new",), place="x"
            )
            fresh = msgspec.structs.replace(
                old, node=node, admin_tokens=("new admin", "another"), listen_client="h:1"
            )
            service._load = lambda: fresh
            status, answer = await ask(door, "POST", "/v1/reload", {})
            assert (status, answer["reloaded"]) == (200, True)
            loaded = {
                "client_tokens": [fingerprint("new")],
                "peer_secrets": [fingerprint("new")],
                "admin_tokens": [fingerprint("new admin"), fingerprint("another")],
                "certificate": [],
                "authorities": [],
            }
            assert answer["loaded"] == loaded
            taken = await door.node.next("reload")
            assert (taken.client_tokens, taken.peer_secrets) == (("new",), (b"new",))
            assert taken.place == "node-1"
            assert service.settings.listen_client == old.listen_client
            assert (await ask(door, "GET", "/v1/status"))[0] == 401
            assert (await ask(door, "GET", "/v1/status", token="new admin"))[0] == 200
            status, facts = await ask(door, "GET", "/v1/status", token="another")
            assert (status, facts["process"]["loaded"]) == (200, loaded)

    on_loop(scene())


def test_a_bad_file_keeps_the_old_settings_and_alarms(
    on_loop: Run, tmp_path: Path, authority: Authority
) -> None:
    async def scene() -> None:
        files = authority.issue("reload-door", "127.0.0.1")
        async with plane(tmp_path, tls=files) as door:
            context = authority.client_context()
            before = door.shell.tls
            files.certificate.write_text("no certificate")
            status, answer = await ask(door, "POST", "/v1/reload", {}, tls=context)
            assert (status, answer["error"]["code"]) == (409, "no_reload")
            assert str(files.certificate) in answer["error"]["message"]
            assert door.shell.tls is before
            facts = (await ask(door, "GET", "/v1/status", tls=context))[1]
            assert str(files.certificate) in facts["process"]["reload_fault"]
            authority.issue("reload-door", "127.0.0.1")
            assert (await ask(door, "POST", "/v1/reload", {}, tls=context))[0] == 200
            assert door.shell.tls is not before
            facts = (await ask(door, "GET", "/v1/status", tls=context))[1]
            assert facts["process"]["reload_fault"] is None

    on_loop(scene())


def test_files_that_change_are_taken_over_by_themselves(
    on_loop: Run, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.server.service.WATCH_S", 0.01)

    async def scene() -> None:
        files = authority.issue("watched-door", "127.0.0.1")
        async with plane(tmp_path, tls=files) as door:
            await ask(door, "GET", "/livez", tls=authority.client_context())
            authority.issue("watched-door", "127.0.0.1")
            os.utime(files.certificate, ns=(0, 0))  # file systems count time more coarsely than this test
            await door.node.next("reload")

    on_loop(scene())


def test_a_command_in_flight_is_done_once_for_all_who_give_it(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            begun, gate = [], asyncio.Event()

            async def slow_reload() -> None:
                begun.append(1)
                await gate.wait()

            await ask(door, "GET", "/livez")
            door.service.admin._reload = slow_reload
            both = [asyncio.create_task(ask(door, "POST", "/v1/reload", {"id": "same"})) for _ in range(2)]
            while not begun:  # noqa: ASYNC110
                await asyncio.sleep(0)
            gate.set()
            told = {"reloaded": True, "loaded": door.service.loaded()}
            assert await asyncio.gather(*both) == [(200, told)] * 2
            assert begun == [1]

    on_loop(scene())


def test_an_audit_line_says_who_what_and_why_also_of_what_was_refused(on_loop: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            where = door.service.place.admin
            body = {"to": "node-9", "reason": "rolling upgrade", "id": "i1"}
            status, _ = await asking.ask(
                where, "POST", "/v1/transfer", body, headers="Ticketing-Operator: ana@desk\r\n"
            )
            assert status == 409
            (line,) = [line for line in door.logged().splitlines() if "admin command refused" in line]
            for part in (
                "audit",
                'who="ana@desk at 127.0.0.1"',
                'why="rolling upgrade"',
                "/v1/transfer",
                "i1",
            ):
                assert part in line
            (event,) = door.node.events.read(0, 10).events
            assert (event["kind"], event["event"]) == ("audit", "admin command refused")
            assert event["facts"]["why"] == "rolling upgrade"

    on_loop(scene())


@pytest.mark.parametrize("reason", ["x" * 257, "two\nlines"])
def test_texts_that_do_not_belong_into_a_log_are_refused(on_loop: Run, tmp_path: Path, reason: str) -> None:
    async def scene() -> None:
        async with plane(tmp_path) as door:
            status, _ = await ask(door, "POST", "/v1/transfer", {"reason": reason})
            assert status == 400
            assert "transfer" not in door.node.log

    on_loop(scene())
