"""What every command has in common: an id under which it acts once, and an audit line that says who, what, why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from ticketing.node.asked import CannotError
from ticketing.server.admin.answers import (
    ID_CHARS_MAX,
    REASON_CHARS_MAX,
    RefusedError,
    answer,
    check_text,
    refused,
)
from ticketing.server.log import Log

IDS_MAX = 1_024
"""Commands whose answers are remembered."""
OPERATOR_HEADER = "Ticketing-Operator"
OPERATOR_CHARS_MAX = 128

Do = Callable[[], Awaitable[dict[str, object]]]


class Commands:
    """The commands of one node's plane."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._answers: dict[tuple[str, str, str], dict[str, object]] = {}
        self._running: dict[tuple[str, str, str], asyncio.Future[dict[str, object]]] = {}

    async def once(self, request: web.Request, command_id: str, reason: str, do: Do) -> web.Response:
        """Carries out a command, or gives the answer of the one that had the same id at the same address.

        A refusal is not remembered: the same command may be tried again.
        """
        check_text("id", command_id, ID_CHARS_MAX)
        check_text("reason", reason, REASON_CHARS_MAX)
        if not command_id:
            return answer(await self._carry_out(request, command_id, reason, do))
        name = (request.method, request.path, command_id)
        known = self._answers.get(name)
        if known is not None:
            return answer(known)
        running = self._running.get(name)
        if running is not None:
            return answer(await asyncio.shield(running))
        # A task of its own: a caller that hangs up does not leave the command half done.
        task = asyncio.ensure_future(self._carry_out(request, command_id, reason, do))
        self._running[name] = task
        task.add_done_callback(lambda ended: self._ended(name, ended))
        return answer(await asyncio.shield(task))

    def _ended(self, name: tuple[str, str, str], ended: asyncio.Future[dict[str, object]]) -> None:
        del self._running[name]
        if ended.cancelled() or ended.exception() is not None:
            return
        self._answers[name] = ended.result()
        if len(self._answers) > IDS_MAX:
            del self._answers[next(iter(self._answers))]

    async def _carry_out(
        self, request: web.Request, command_id: str, reason: str, do: Do
    ) -> dict[str, object]:
        facts = {
            "command": f"{request.method} {request.path}",
            "id": command_id,
            "who": who_asks(request),
            "why": reason,
        }
        try:
            done = await do()
        except CannotError as cannot:
            self._log("audit", "admin command refused", **facts, reason=str(cannot))
            raise refused(cannot) from None
        except RefusedError as refusal:
            self._log("audit", "admin command refused", **facts, reason=str(refusal))
            raise
        self._log("audit", "admin command", **facts)
        return done


def who_asks(request: web.Request) -> str:
    """Who gives a command: the address, and the name that the caller gives itself (all have the same token)."""
    name = request.headers.get(OPERATOR_HEADER, "").strip()[:OPERATOR_CHARS_MAX]
    remote = request.remote or "unknown"
    return f"{name} at {remote}" if name and name.isprintable() else remote
