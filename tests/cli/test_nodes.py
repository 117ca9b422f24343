"""`node list`, `stop`, `can-stop`, `transfer-leader`, `restart` against scripted nodes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.planes import DOMAIN, Asked, Planes, Reply, error, facts, member

LIST = f"""\
domain {DOMAIN}  failures until lost 1
PLACE   NODE  ROLE      MEMBER  HEARD      LAG  CLIENTS AT     ADMIN            VERSION
node-1  1     leader    voter   0.0 s ago  0    10.0.0.1:5225  ADDRESS-1  0.1.0
node-2  2     follower  voter   0.0 s ago  0    10.0.0.2:5225  ADDRESS-2  0.1.0
node-3  3     follower  voter   0.0 s ago  0    10.0.0.3:5225  ADDRESS-3  0.1.0
node-3: catching_up, node 4 (snapshot 42 %): it is catching up: 3 of 9
"""
CHANGE = {
    "place": "node-3",
    "state": "catching_up",
    "why": "it is catching up: 3 of 9",
    "since_ms": 1,
    "operator": False,
    "learner": {"node_id": "4", "match_index": "3", "lag": 6, "snapshot_percent": 42},
}


def members(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"members": [member(n) for n in (1, 2, 3)], "changes": list(changes), "highest_node_id": "4"}


def plain(text: str) -> list[list[str]]:
    """Without the widths of columns, which depend on port numbers."""
    return [line.split() for line in text.splitlines()]


def test_the_list_joins_what_the_leader_and_each_node_say(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/members", members(CHANGE))
    code, out, err = tell("node", "list")
    expected = LIST
    for n in (1, 2, 3):
        expected = expected.replace(f"ADDRESS-{n}", planes.address(f"node-{n}"))
    assert (code, plain(out), err) == (0, plain(expected), "")
    code, out, _ = tell("node", "list", "-o", "json")
    told = json.loads(out)
    assert (code, told["leader"], told["redundancy"], told["changes"]) == (0, "node-1", 1, [CHANGE])
    assert [node["node_id"] for node in told["nodes"]] == ["1", "2", "3"]


def test_without_a_leader_the_list_has_the_nodes_own_words_and_the_code_for_it(
    planes: Planes, tell: Tell
) -> None:
    planes.statuses(facts(1, leads=0, role="candidate"), facts(2, leads=0), None)
    code, out, err = tell("node", "list")
    assert code == 7
    assert plain(out)[3][:3] == ["node-3", "-", "unreachable"]
    assert "node-3 does not answer" in err
    assert "no leader serves" in err


def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nobody answers any more once leave was given."""
    waited: list[str] = []
    monkeypatch.setattr(
        "ticketing.cli.node_stop.wait_until_gone", lambda _access, place, *_: waited.append(place)
    )
    return waited


def test_a_node_is_asked_itself_to_leave_and_awaited(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = gone(monkeypatch)
    planes.on("POST", "/v1/leave", {"leave": True, "stopping": True})
    assert tell("node", "stop", "--node", "2", "--reason", "new kernel") == (0, "node-2 has stopped\n", "")
    (command,) = planes.commands()
    assert command.place == "node-2"
    assert command.body == {"place": "node-2", "reason": "new kernel", "id": command.body["id"]}
    assert waited == ["node-2"]
    code, out, _ = tell("node", "stop", "--node", "node-2", "-o", "json")
    assert (code, json.loads(out)) == (0, {"stopped": ["node-2"]})


def test_a_stop_that_would_leave_less_than_a_majority_is_refused_with_the_reason(
    planes: Planes, tell: Tell
) -> None:
    reason = "1 of 3 voters would be left living and 2 are needed"
    planes.on("POST", "/v1/leave", error(409, "no_leave", reason))
    code, out, err = tell("node", "stop", "--node", "2")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: node-2 may not stop now: {reason}\nhint: it goes on running")


def test_all_are_stopped_by_force_after_a_confirmation(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = gone(monkeypatch)
    planes.on("POST", "/v1/leave", {"leave": False, "stopping": True})
    code, _, err = tell("node", "stop", "--all")
    assert code == 2
    assert "2 locks held now are gone" in err
    assert planes.commands() == []
    planes.stop("node-3")
    code, out, err = tell("node", "stop", "--all", "--yes")
    assert (code, out) == (0, "node-1 has stopped\nnode-2 has stopped\n")
    assert "node-3 does not answer" in err
    assert sorted(waited) == ["node-1", "node-2"]
    assert all(command.body["force"] for command in planes.commands())


@pytest.mark.parametrize("form", ["text", "json"])
def test_one_that_does_not_stop_hides_not_that_the_others_have(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    gone(monkeypatch)
    planes.on("POST", "/v1/leave", {"leave": False, "stopping": True})
    planes.on("POST", "/v1/leave", error(500, "internal", "out of sorts"), "node-2")
    code, out, err = tell("node", "stop", "--all", "--yes", "-o", form)
    assert code == 1
    if form == "json":
        assert json.loads(out) == {"stopped": ["node-1", "node-3"]}
    else:
        assert out == "node-1 has stopped\nnode-3 has stopped\n"
    assert "out of sorts" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stop"], "--node is missing"),
        (["stop", "--all", "--node", "1"], "exclude each other"),
        (["stop", "--node", "9"], "there is no place node-9; admin.toml has node-1, node-2, node-3"),
        (["can-stop", "--node", "x"], "there is no place x"),
        (["transfer-leader", "--to", "9"], "there is no place node-9"),
        (["restart"], "either --rolling"),
        (["restart", "--rolling", "--node", "1"], "either --rolling"),
        (["restart", "--rolling", "--wait", "0"], "--wait must be a whole number from 1"),
        (["replace"], "missing option '--node'"),
        (["replace", "--node", "9"], "there is no place node-9"),
    ],
)
def test_mistakes_are_told_before_anything_is_commanded(
    planes: Planes, tell: Tell, words: list[str], message: str
) -> None:
    code, out, err = tell("node", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert planes.commands() == []


CAN_STOP = """\
PLACE   MAY STOP  FAILURES LEFT THEN  WHY NOT
node-1  yes       0
node-2  no        -1                  node-3 is not heard from
node-3  yes       -
"""


def may_stop(asked: Asked) -> Reply:
    answers: dict[str, dict[str, Any]] = {
        "node-1": {"can_stop": True, "reason": None, "redundancy_after": 0},
        "node-2": {"can_stop": False, "reason": "node-3 is not heard from", "redundancy_after": -1},
        "node-3": {"can_stop": True, "reason": None, "redundancy_after": None},
    }
    return answers[asked.query["place"]]


def test_who_may_stop_is_told_and_a_no_has_a_code_of_its_own(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/can-stop", may_stop)
    assert tell("node", "can-stop") == (9, CAN_STOP, "")
    code, out, _ = tell("node", "can-stop", "--node", "1", "-o", "json")
    row = {"place": "node-1", "can_stop": True, "reason": None, "redundancy_after": 0}
    assert (code, json.loads(out)) == (0, {"nodes": [row]})


def lead_moves(planes: Planes, to: int) -> Any:
    def transfer(_asked: Asked) -> Reply:
        planes.statuses(*(facts(n, leads=to) for n in (1, 2, 3)))
        return {"accepted": True}

    return transfer


def test_the_lead_is_given_away_and_awaited(planes: Planes, tell: Tell) -> None:
    planes.on("POST", "/v1/transfer", lead_moves(planes, 3))
    assert tell("node", "transfer-leader", "--to", "3") == (0, "node-3 leads\n", "")
    assert planes.commands()[0].body["to"] == "node-3"
    code, out, _ = tell("node", "transfer-leader", "--to", "node-3", "-o", "json")
    assert (code, json.loads(out)) == (0, {"leader": "node-3", "before": "node-3"})
    assert len(planes.commands()) == 1


def test_a_lead_that_cannot_be_given_away_is_a_failure_and_none_at_all_is_unreachable(
    planes: Planes, tell: Tell
) -> None:
    planes.on("POST", "/v1/transfer", error(409, "no_transfer", "no other voter is fit"))
    code, _, err = tell("node", "transfer-leader")
    assert code == 1
    assert "no other voter is fit" in err
    planes.statuses(facts(1, leads=0), facts(2, leads=0), facts(3, leads=0))
    assert tell("node", "transfer-leader")[0] == 7


class Rolling:
    """Nodes that come back under a new id after they have stopped; node-1 leads first."""

    def __init__(self, planes: Planes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planes = planes
        self.order: list[str] = []
        self.lead = 1
        self.ids = {1: 1, 2: 2, 3: 3}
        monkeypatch.setattr("ticketing.cli.node_stop.wait_until_gone", self._gone)
        planes.on("POST", "/v1/leave", {"leave": True})
        planes.on("POST", "/v1/transfer", self._transfer)
        planes.on("GET", "/v1/can-stop", {"can_stop": True, "reason": None})

    def _transfer(self, _asked: Asked) -> Reply:
        self.order.append("transfer")
        self.lead = 2
        self._tell()
        return {"accepted": True}

    def _gone(self, _access: object, place: str, *_: object) -> None:
        self.order.append(place)
        number = int(place[-1])
        self.ids[number] += 10
        self._tell()

    def _tell(self) -> None:
        self.planes.statuses(
            *(
                facts(n, leads=self.lead, node_id=str(self.ids[n]), incarnation=str(self.ids[n]))
                for n in (1, 2, 3)
            )
        )


def test_all_nodes_are_restarted_one_after_the_other_the_leader_last(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling = Rolling(planes, monkeypatch)
    code, out, err = tell("node", "restart", "--rolling", "--supervised")
    assert (code, out) == (0, "restarted node-2, node-3, node-1\n")
    assert rolling.order == ["node-2", "node-3", "transfer", "node-1"]
    assert "node-3: back as node 13" in err
    code, out, _ = tell("node", "restart", "--node", "3", "-o", "json")
    assert [row["place"] for row in json.loads(out)["restarted"]] == ["node-3"]


def test_who_is_to_be_started_again_by_a_supervisor_is_told_so(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rolling(planes, monkeypatch)
    assert tell("node", "restart", "--node", "3", "--supervised")[0] == 0
    (leave,) = [command.body for command in planes.commands() if command.path == "/v1/leave"]
    assert leave["again"] is True

    def former(asked: Asked) -> Reply:
        """Fields that it does not know are refused."""
        return error(400, "bad_request", "unknown field: again") if "again" in asked.body else {"leave": True}

    planes.on("POST", "/v1/leave", former)
    code, _, err = tell("node", "restart", "--node", "3", "--supervised")
    assert code == 0
    assert "node-3 is of a former version and ends with status 0" in err


def test_a_node_that_is_stopped_is_not_to_be_started_again(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone(monkeypatch)
    planes.on("POST", "/v1/leave", {"leave": True, "stopping": True})
    assert tell("node", "stop", "--node", "2")[0] == 0
    assert "again" not in planes.commands()[0].body


def test_nothing_is_restarted_while_something_is_wrong(planes: Planes, tell: Tell) -> None:
    planes.stop("node-3")
    code, out, err = tell("node", "restart", "--rolling")
    assert (code, out) == (9, "")
    assert "nothing is restarted while something is wrong: node-3 does not answer" in err
    assert planes.commands() == []


def test_a_node_that_does_not_come_back_ends_the_roll(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling = Rolling(planes, monkeypatch)
    monkeypatch.setattr(rolling, "_tell", lambda: None)
    code, _, err = tell("node", "restart", "--rolling", "--wait", "1")
    assert code == 7
    assert rolling.order == ["node-2"]
    assert "node-2 did not come back within 1 s" in err


def test_a_node_of_this_folder_is_started_again_here(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rolling(planes, monkeypatch)
    started: list[Path] = []
    monkeypatch.setattr("ticketing.cli.node_restart.home_here", lambda folder, place: folder / place)
    monkeypatch.setattr("ticketing.cli.node_restart.start_detached", started.append)
    assert tell("node", "restart", "--node", "2")[0] == 0
    assert [path.name for path in started] == ["node-2"]


@pytest.mark.parametrize("then", ["nobody", "another"])
def test_the_end_of_a_process_is_seen_however_soon_another_one_answers(
    planes: Planes, tell: Tell, then: str
) -> None:
    def leave(_asked: Asked) -> Reply:
        if then == "another":
            planes.on("GET", "/v1/status", facts(2, incarnation="999"), "node-2")
        else:
            # A server cannot end itself while it answers.
            threading.Timer(0.05, planes.stop, ("node-2",)).start()
        return {"leave": True}

    planes.on("POST", "/v1/leave", leave)
    assert tell("node", "stop", "--node", "2") == (0, "node-2 has stopped\n", "")


def test_a_process_that_does_not_end_is_a_failure(
    planes: Planes, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.cli.node_stop.GONE_S", 0.05)
    planes.on("POST", "/v1/leave", {"leave": True})
    code, _, err = tell("node", "stop", "--node", "2")
    assert code == 1
    assert "node-2 was given leave and still answers" in err
