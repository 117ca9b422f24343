from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.planes import Asked, Planes, Reply, error, lock
from ticketing.cli import acquiring
from ticketing.cli.errors import CommandFailed
from ticketing.cli.holder import holder_of
from ticketing.cli.obtain import Ask
from ticketing.cli.watching import watch
from ticketing.config.client_file import Typed, find_access

TOKEN = 1883295816089600
LIST = """\
KEY       TOKEN             HOLDER          LEFT    LEASE  WAITING
stock/1   1883295816089600  shop host-a 41  12.3 s  30 s   2
a\\x1b[2J  1883295816089601  -               -       -      0
"""


def test_the_list_for_people_has_a_line_a_lock_and_shows_nothing_that_moves_the_cursor(
    planes: Planes, tell: Tell
) -> None:
    strange = lock("a\x1b[2J", TOKEN + 1, name=None, lease_s=None, lease_left_ms=None, waiting=0)
    planes.on("GET", "/v1/locks", {"locks": [lock("stock/1"), strange], "next": None})
    assert tell("locks", "list") == (0, LIST, "")


def test_the_list_as_json_is_one_object_with_what_the_node_said(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", {"locks": [lock("stock/1")], "next": None})
    code, out, err = tell("locks", "list", "stock/", "-o", "json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {"locks": [lock("stock/1")], "more": False}
    assert planes.asked[-1].query["prefix"] == "stock/"


def test_no_lock_is_an_empty_result(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", {"locks": [], "next": None})
    assert tell("locks", "list") == (0, "", "no lock is held\n")


def pages(asked: Asked) -> Reply:
    first = int(asked.query.get("after", "key-0").removeprefix("key-")) + 1
    last = min(first + int(asked.query["limit"]) - 1, 2500)
    found = [lock(f"key-{n}") for n in range(first, last + 1)]
    return {"locks": found, "next": f"key-{last}" if last < 2500 else None}


@pytest.mark.parametrize(
    ("limit", "count", "more"), [("0", 2500, False), ("1500", 1500, True), ("9", 9, True)]
)
def test_pages_are_put_together_up_to_the_limit(
    planes: Planes, tell: Tell, limit: str, count: int, more: bool
) -> None:
    planes.on("GET", "/v1/locks", pages)
    _, out, _ = tell("locks", "list", "--limit", limit, "-o", "json")
    told = json.loads(out)
    assert [row["key"] for row in told["locks"]] == [f"key-{n}" for n in range(1, count + 1)]
    assert told["more"] is more


def test_an_order_is_asked_of_the_node(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", {"locks": [lock("k")], "next": None})
    assert tell("locks", "list", "--sort", "lease", "--limit", "5")[0] == 0
    assert planes.asked[-1].query == {"order": "lease_left", "limit": "5"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--sort", "size"], "--sort must be one of key, age, lease, queue, not 'size'"),
        (["list", "--sort", "age", "--limit", "0"], "--limit must be from 1 to 1000"),
        (["list", "--interval", "0"], "--interval must be from 0.1 to 3600"),
        (["show"], "the key is missing"),
        (["show", "a b"], "contains a space"),
        (["revoke", "k"], "KEY and TOKEN are wanted"),
        (["revoke", "k", "x", "--reason", "r"], "TOKEN must be a whole number"),
        (["revoke", "k", "7"], "--reason is missing"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(
    planes: Planes, tell: Tell, words: list[str], message: str
) -> None:
    code, out, err = tell("locks", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert planes.asked == []


SHOWN = """\
k is held by shop host-a 41 (token 1883295816089600), 12.3 s of its lease left
  remotes: 10.0.0.9
1 waits
   WHO        FROM      WAITED  WAITS STILL  LEASE
1  job b 7  10.0.0.8  1.5 s   3.5 s        30 s
"""


def detail(**more: Any) -> dict[str, Any]:
    waiter = {
        "owner": "9",
        "name": "job b 7",
        "remote": "10.0.0.8",
        "waited_ms": 1500,
        "wait_left_ms": 3500,
        "lease_s": 30,
    }
    return {
        "lock": lock("k", remotes=["10.0.0.9"]),
        "waiters": [waiter],
        "waiting": 1,
        "next": None,
    } | more


def test_one_key_is_shown_with_its_queue_in_order(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks/k", detail())
    code, out, err = tell("locks", "show", "k")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [line.split() for line in SHOWN.splitlines()]
    code, out, _ = tell("locks", "show", "k", "-o", "json")
    assert (code, json.loads(out)["waiting"], json.loads(out)["key"]) == (0, 1, "k")


def test_a_key_that_nobody_holds_or_wants_has_a_code_of_its_own(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks/k", {"lock": None, "waiters": [], "waiting": 0, "next": None})
    assert tell("locks", "show", "k") == (10, "k is free\nnobody waits\n", "")
    code, out, _ = tell("locks", "show", "k", "-o", "json")
    assert (code, json.loads(out)) == (10, {"key": "k", "lock": None, "waiters": [], "waiting": 0})


@pytest.mark.parametrize(("key", "path"), [("a/ü%", "/v1/locks/a%2F%C3%BC%25"), ("..", "/v1/locks/%2E%2E")])
def test_whatever_is_in_a_key_it_is_one_segment_of_the_address(
    planes: Planes, tell: Tell, key: str, path: str
) -> None:
    planes.on("GET", path, detail())
    assert tell("locks", "show", "--key", key)[0] == 0


def not_leading(planes: Planes, place: str) -> Reply:
    leader = {"place": place, "client": "x:1", "admin": planes.address(place)}
    return error(421, "not_leader", f"{place} leads", leader=leader)


def test_a_node_that_does_not_lead_sends_on_to_the_one_that_does(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks/k", detail(), "node-3")
    planes.on("GET", "/v1/locks/k", not_leading(planes, "node-3"), "node-1")
    assert tell("locks", "show", "k")[0] == 0
    assert [asked.place for asked in planes.asked] == ["node-1", "node-3"]


def test_an_election_is_waited_for(planes: Planes, tell: Tell) -> None:
    left = [3]

    def electing(_asked: Asked) -> Reply:
        left[0] -= 1
        return error(503, "no_leader", "no leader is known here") if left[0] > 0 else detail()

    planes.on("GET", "/v1/locks/k", electing)
    assert tell("locks", "show", "k")[0] == 0


def test_the_token_is_never_sent_to_an_address_that_only_a_node_names(planes: Planes, tell: Tell) -> None:
    leader = {"place": "node-9", "client": "x:1", "admin": "192.0.2.1:7225"}
    planes.on("GET", "/v1/locks/k", error(421, "not_leader", "node-9 leads", leader=leader), "node-1")
    planes.on("GET", "/v1/locks/k", detail(), "node-2")
    assert tell("locks", "show", "k")[0] == 0
    assert [asked.place for asked in planes.asked] == ["node-1", "node-2"]


def test_revoking_names_the_grant_and_the_reason_and_warns(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks/k", detail())
    planes.on("POST", "/v1/locks/k/revoke", {"revoked": True})
    code, out, err = tell("locks", "revoke", "k", str(TOKEN), "--reason", "host burnt", "--yes")
    assert (code, out) == (0, "revoked\n")
    assert "k is held by shop host-a 41" in err
    assert "warning: the holder was not told; only fencing stops it" in err
    (command,) = planes.commands()
    assert command.body == {"id": command.body["id"], "token": str(TOKEN), "reason": "host burnt"}
    assert "@" in command.headers["ticketing-operator"]


def test_a_revocation_is_said_again_under_the_same_id_until_its_outcome_is_known(
    planes: Planes, tell: Tell
) -> None:
    planes.on("GET", "/v1/locks/k", detail())
    planes.on("POST", "/v1/locks/k/revoke", error(503, "indeterminate", "the leader changed"), "node-1")
    planes.on("POST", "/v1/locks/k/revoke", {"revoked": True}, "node-2")
    code, out, _ = tell("locks", "revoke", "k", str(TOKEN), "--reason", "r", "--yes", "-o", "json")
    assert (code, json.loads(out)) == (0, {"key": "k", "token": str(TOKEN), "revoked": True})
    first, second = planes.commands()
    assert first.body["id"] == second.body["id"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_grant_that_is_gone_is_told_apart(planes: Planes, tell: Tell, when: str) -> None:
    held = detail() if when == "meanwhile" else detail(lock=lock("k", TOKEN + 5))
    planes.on("GET", "/v1/locks/k", held)
    planes.on("POST", "/v1/locks/k/revoke", {"revoked": False})
    code, out, err = tell("locks", "revoke", "k", str(TOKEN), "--reason", "r", "--yes")
    assert (code, out) == (10, "")
    assert err.endswith(f"error: k is not held by {TOKEN} any more\n")
    assert len(planes.commands()) == (when == "meanwhile")


def test_without_a_person_nothing_is_revoked_unasked(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    planes.on("GET", "/v1/locks/k", detail())
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    code, _, err = tell("locks", "revoke", "k", str(TOKEN), "--reason", "r")
    assert code == 2
    assert "standard input is no terminal" in err
    assert planes.commands() == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "sent"), [("yes\n", 0, 1), ("no\n", 1, 0), ("", 1, 0)])
def test_a_person_is_asked(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, sent: int
) -> None:
    planes.on("GET", "/v1/locks/k", detail())
    planes.on("POST", "/v1/locks/k/revoke", {"revoked": True})
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert tell("locks", "revoke", "k", str(TOKEN), "--reason", "r")[0] == code
    assert len(planes.commands()) == sent


def test_a_wrong_admin_token_is_refused_and_nobody_there_is_unreachable(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", error(401, "unauthorized", "wrong"))
    code, _, err = tell("locks", "list")
    assert code == 8
    assert "admin.toml" in err
    planes.statuses(None, None, None)
    code, out, err = tell("locks", "list")
    assert (code, out) == (7, "")
    assert "connection refused" in err


def test_a_refusal_that_waiting_does_not_change_ends_at_once(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", error(400, "bad_request", "prefix is no UTF-8"))
    code, _, err = tell("locks", "list")
    assert code == 1
    assert "prefix is no UTF-8" in err
    assert len(planes.asked) == 1


def test_watching_gives_an_object_a_line_and_survives_a_cluster_that_is_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = iter([None, CommandFailed("no leader serves", 7), CommandFailed("no leader serves", 7), None])

    def report() -> None:
        try:
            step = next(steps)
        except StopIteration:
            raise KeyboardInterrupt from None
        if step is not None:
            raise step
        print("{}")

    with pytest.raises(KeyboardInterrupt):
        watch(report, every_s=1, as_json=True, sleep=lambda _: None)
    assert capsys.readouterr() == ("{}\n{}\n", "error: no leader serves\n")


def test_watching_stops_for_what_does_not_pass(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", error(403, "no_admin_token", "this node has no admin token"))
    assert tell("locks", "list", "--watch")[0] == 1


@pytest.mark.parametrize(
    ("terminal", "no_color", "cleared"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_only_a_terminal_is_redrawn(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str, cleared: bool
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")

    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(lambda: None, every_s=2, as_json=False, sleep=stop)
    assert ("\x1b" in screen.getvalue()) is cleared


FREE = "k is held by another"
BY_WHOM = "k is held by shop host-a 41 (token 1883295816089600, 12.3 s of its lease left; 2 wait)"


@pytest.mark.parametrize("wait_s", [0, 5])
def test_a_lock_that_was_not_had_names_its_holder(planes: Planes, wait_s: int) -> None:
    planes.on("GET", "/v1/locks/k", {"lock": lock("k"), "waiters": [], "waiting": 2, "next": None})
    access = find_access(Typed(), {}, Path.cwd())
    ask = Ask(key="k", wait_s=wait_s, lease_s=1, budget_s=0)
    failed = acquiring._with_holder(CommandFailed(FREE, 3), access, ask)
    assert failed.code == 3
    assert str(failed) == (
        BY_WHOM if not wait_s else f"{FREE}: it is held by{BY_WHOM.partition('held by')[2]}"
    )


def test_where_the_holder_is_not_known_nothing_is_made_up(planes: Planes) -> None:
    access = find_access(Typed(), {}, Path.cwd())
    assert holder_of(access, "k") == ""  # nothing is served there
    planes.on("GET", "/v1/locks/k", {"lock": None, "waiters": [], "waiting": 0, "next": None})
    assert holder_of(access, "k") == ""
    planes.on("GET", "/v1/locks/k", {"lock": lock("k"), "waiters": [], "waiting": 0, "next": None})
    assert holder_of(access, "k") != ""
    asked = len(planes.asked)
    elsewhere = find_access(Typed(addrs=["other:1"]), {}, Path.cwd())
    assert holder_of(elsewhere, "k") == ""
    Path("admin.toml").write_text("nonsense")
    assert holder_of(access, "k") == ""
    assert len(planes.asked) == asked
