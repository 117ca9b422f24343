from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from ticketing.cli.admin_client import AdminAccess, AdminError, all_failed, ask_all, call
from ticketing.cli.errors import ExitCode


class Plane(BaseHTTPRequestHandler):
    """Answers what it is told to, and keeps what it was asked."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"{}")
    asked: ClassVar[list[tuple[str, str, str | None, bytes]]] = []

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        status, content = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _any  # noqa: N815 - the library's names

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def plane() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Plane)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Plane.asked = []
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def access(*addresses: str) -> AdminAccess:
    return AdminAccess(tuple((f"node-{n}", text) for n, text in enumerate(addresses, start=1)), "the-token")


def answers(status: int, value: object) -> None:
    Plane.answer = (status, value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_question_carries_the_token_and_a_command_its_body(plane: str) -> None:
    answers(200, {"accepted": True})
    assert call(access(plane), plane, "GET", "/v1/status") == {"accepted": True}
    assert call(access(plane), plane, "POST", "/v1/transfer", {"to": "node-2"}) == {"accepted": True}
    assert Plane.asked == [
        ("GET", "/v1/status", "Bearer the-token", b""),
        ("POST", "/v1/transfer", "Bearer the-token", b'{"to": "node-2"}'),
    ]


@pytest.mark.parametrize(
    ("status", "value", "code", "told"),
    [
        (
            401,
            {"error": {"code": "unauthorized", "message": "wrong", "hint": "look"}},
            "unauthorized",
            "wrong",
        ),
        (409, {"error": {"code": "no_transfer", "message": "does not lead"}}, "no_transfer", "does not lead"),
        (500, {"oops": 1}, "not_an_admin_plane", "HTTP status 500"),
        (200, b"<html>", "not_an_admin_plane", "not as an admin plane"),
        (200, b"[1]", "not_an_admin_plane", "not as an admin plane"),
    ],
)
def test_refusals_keep_their_code(plane: str, status: int, value: object, code: str, told: str) -> None:
    answers(status, value)
    with pytest.raises(AdminError) as error:
        call(access(plane), plane, "GET", "/v1/status")
    assert error.value.code == code
    assert plane in str(error.value)
    assert told in str(error.value)


def test_what_speaks_no_http_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def greet() -> None:
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"TICKETING/1 nonce\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(AdminError) as error:
            call(access(address), address, "GET", "/v1/status")
        thread.join()
    assert error.value.code == "unreachable"
    assert "no admin plane" in str(error.value)


def test_silence_is_an_answer_of_its_own(plane: str) -> None:
    answers(200, {"place": "node-1"})
    with socket.create_server(("127.0.0.1", 0)) as deaf, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = f"127.0.0.1:{deaf.getsockname()[1]}"
        refused = f"127.0.0.1:{closed.getsockname()[1]}"
        found = ask_all(access(plane, silent, refused), "/v1/status", timeout_s=0.2)
    assert [answer.place for answer in found] == ["node-1", "node-2", "node-3"]
    assert found[0].facts == {"place": "node-1"}
    assert "no answer within 0.2 s" in str(found[1].error)
    assert "connection refused" in str(found[2].error)
    assert all_failed(found[1:]).code == ExitCode.UNREACHABLE


def test_where_every_node_fails_a_refusal_is_told_as_one(plane: str) -> None:
    answers(401, {"error": {"code": "unauthorized", "message": "wrong", "hint": ""}})
    failed = all_failed(ask_all(access(plane), "/v1/status"))
    assert failed.code == ExitCode.REFUSED
    assert "admin.toml" in failed.hint
