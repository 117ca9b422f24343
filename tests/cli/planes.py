"""A cluster's admin planes, scripted: real HTTP on loopback, answers by the test, every request kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

TOKEN = "an-admin-token-of-the-tests"
DOMAIN = "1883295816089600.00112233445566ff"


class Asked(NamedTuple):
    """One request."""

    place: str
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


Reply = dict[str, Any] | tuple[int, dict[str, Any]]
Route = Reply | Callable[[Asked], Reply]


class Planes:
    """Nodes `node-1`, `node-2`, `node-3`; `routes` by place (or `*`), method and path. What is missing is 404."""

    def __init__(self, count: int = 3) -> None:
        self.routes: dict[tuple[str, str, str], Route] = {}
        self.asked: list[Asked] = []
        self.down: set[str] = set()
        self.tokens = {TOKEN}
        """Which admin tokens let in."""
        self._lock = threading.Lock()
        self.servers = {f"node-{n}": self._server(f"node-{n}") for n in range(1, count + 1)}

    def address(self, place: str) -> str:
        return f"127.0.0.1:{self.servers[place].server_address[1]}"

    def on(self, method: str, path: str, reply: Route, place: str = "*") -> None:
        self.routes[place, method, path] = reply

    def statuses(self, *facts: dict[str, Any] | None) -> None:
        """Each node's `/v1/status`; None: it does not run."""
        for number, own in enumerate(facts, start=1):
            place = f"node-{number}"
            if own is None:
                self.stop(place)
            else:
                self.on("GET", "/v1/status", own, place)

    def stop(self, place: str) -> None:
        """From now on nobody listens there."""
        if place not in self.down:
            self.down.add(place)
            self.servers[place].shutdown()
            self.servers[place].server_close()

    def commands(self) -> list[Asked]:
        """What was asked for beside reading."""
        return [asked for asked in self.asked if asked.method != "GET"]

    def write_files(self, folder: Path) -> Path:
        """`client.toml` and `admin.toml` of this cluster; the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "client.toml").write_text(
            'addrs = ["127.0.0.1:1"]\ntoken = "a-client-token-of-the-tests"\n'
        )
        text = f'token = "{TOKEN}"\n'
        for place in self.servers:
            text += f'[[nodes]]\nname = "{place}"\nadmin = "{self.address(place)}"\n'
        (folder / "admin.toml").write_text(text)
        for name in ("client.toml", "admin.toml"):
            (folder / name).chmod(0o600)
        return folder

    def answer(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.asked.append(asked)
            reply = self.routes.get((asked.place, asked.method, asked.path))
            if reply is None:
                reply = self.routes.get(("*", asked.method, asked.path))
        if asked.headers.get("authorization") not in {f"Bearer {token}" for token in self.tokens}:
            return error(401, "unauthorized", "the admin token is missing or wrong")
        if reply is None:
            return error(404, "not_found", f"nothing at {asked.path}")
        if callable(reply):
            reply = reply(asked)
        return reply if isinstance(reply, tuple) else (200, reply)

    def _server(self, place: str) -> ThreadingTCPServer:
        planes = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                parts = urlsplit(self.path)
                asked = Asked(
                    place,
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query, keep_blank_values=True)),
                    json.loads(body) if body else None,
                    {name.lower(): value for name, value in self.headers.items()},
                )
                status, value = planes.answer(asked)
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _any  # noqa: N815 - the library's names

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    def close(self) -> None:
        for place in self.servers:
            self.stop(place)


@contextmanager
def running(count: int = 3) -> Iterator[Planes]:
    planes = Planes(count)
    try:
        yield planes
    finally:
        planes.close()


def error(status: int, code: str, message: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"code": code, "message": message, "hint": "", **more}}


def facts(number: int, *, leads: int = 1, **more: Any) -> dict[str, Any]:
    """What a healthy node says of itself."""
    others = [n for n in (1, 2, 3) if n != number]
    own: dict[str, Any] = {
        "place": f"node-{number}",
        "node_id": str(number),
        "incarnation": str(100 + number),
        "version": "0.1.0",
        "domain": DOMAIN,
        "wall_ms": 1_796_000_000_000,
        "role": "leader" if number == leads else "follower",
        "serving": number == leads,
        "stopping": False,
        "serves_in_s": 0,
        "membership": {"state": "member", "waiting_for": []},
        "addresses": {"client": f"10.0.0.{number}:5225", "peer": None, "admin": f"10.0.0.{number}:7225"},
        "sessions": {"open": 3},
        "links": {"missing": []},
        "clock": {
            "gate": "open",
            "delta_ms": 500,
            "steps": 0,
            "last_step_ms": None,
            "source": None,
            "peers": [
                {
                    "place": f"node-{other}",
                    "verdict": "inside",
                    "difference_ms": 1.5,
                    "error_ms": 0.25,
                    "age_s": 0.5,
                    "round_trip_ms": 0.4,
                    "rate_ppm": 3.0,
                    "rate_error_ppm": 40.0,
                    "steps": 0,
                    "thrown_away": 0,
                }
                for other in others
            ],
        },
        "raft": {
            "term": "7",
            "commit_index": "40",
            "applied_index": "40",
            "redundancy": 1,
            "members": [],
        },
        "locks": {"held": 2, "next_token": "9"},
        "process": {"client_connections_max": 60_000},
    }
    return own | more


def member(number: int, node_id: int | None = None, role: str = "voter") -> dict[str, Any]:
    return {
        "place": f"node-{number}",
        "node_id": str(node_id or number),
        "incarnation": str(100 + number),
        "role": role,
        "client": f"10.0.0.{number}:5225",
        "peer": f"10.0.0.{number}:6225",
        "admin": f"10.0.0.{number}:7225",
        "linked": True,
        "heard_ms": 20,
        "match_index": "40",
        "lag": 0,
    }


def lock(key: str, token: int = 1883295816089600, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "key": key,
        "token": str(token),
        "owner": "17504979501126076791",
        "name": "shop host-a 41",
        "lease_s": 30,
        "lease_left_ms": 12_340,
        "renewal": 0,
        "granted_at_ms": None,
        "waiting": 2,
    }
    return own | more
