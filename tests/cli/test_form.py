from __future__ import annotations

import json

from tests.cli.conftest import Tell
from tests.cli.planes import DOMAIN, Asked, Planes, Reply, error, facts

NEW = "1983295816089600.00112233445566ff"


def waiting(number: int, **more: object) -> dict[str, object]:
    own = facts(number, leads=0, domain=None, role="waiting", raft=None, locks=None)
    own["membership"] = {"state": "", "waiting_for": ["node-3: is not connected"]}
    return own | more


def forms(planes: Planes, *, serves_in_s: float) -> None:
    left = [9]

    def status(asked: Asked) -> Reply:
        left[0] -= 1
        number = int(asked.place[-1])
        if left[0] > 0:
            return waiting(number)
        return facts(number, domain=NEW, serving=False, serves_in_s=serves_in_s)

    def begin(_asked: Asked) -> Reply:
        for n in (1, 2, 3):
            planes.on("GET", "/v1/status", status, f"node-{n}")
        return {"accepted": True}

    planes.statuses(waiting(1), waiting(2), waiting(3))
    planes.on("POST", "/v1/form", begin)


def test_the_lowest_place_is_asked_and_what_hinders_is_told_once(planes: Planes, tell: Tell) -> None:
    forms(planes, serves_in_s=249.6)
    code, out, err = tell("form", "--yes", "--first-token", "77")
    assert (code, out) == (0, f"formed domain {NEW}; it serves in 250 s\n")
    assert err.count("node-1: node-3: is not connected") == 1
    (command,) = planes.commands()
    assert command.place == "node-1"
    assert command.body == {"first": False, "first_token": "77", "id": command.body["id"]}


def test_a_first_domain_serves_at_once_and_json_says_so(planes: Planes, tell: Tell) -> None:
    forms(planes, serves_in_s=0)
    code, out, _ = tell("form", "--first", "--yes", "-o", "json")
    told = {"domain": NEW, "first_token": "1983295816089600", "serves_in_s": 0}
    assert (code, json.loads(out)) == (0, told)
    assert planes.commands()[0].body["first"] is True


def test_nothing_is_formed_without_a_confirmation(planes: Planes, tell: Tell) -> None:
    forms(planes, serves_in_s=0)
    planes.statuses(waiting(1), facts(2, leads=0), waiting(3))
    code, _, err = tell("form")
    assert code == 2
    assert f"Domain {DOMAIN} is given up" in err
    assert "must have stopped" in err
    assert planes.commands() == []


def test_nothing_is_formed_beside_a_living_domain(planes: Planes, tell: Tell) -> None:
    code, _, err = tell("form", "--yes")
    assert code == 1
    assert f"node-1 leads domain {DOMAIN}, which lives" in err
    assert planes.commands() == []


def test_all_nodes_have_to_run(planes: Planes, tell: Tell) -> None:
    planes.statuses(waiting(1), waiting(2), None)
    code, _, err = tell("form", "--yes")
    assert code == 7
    assert "all nodes have to run, and node-3 does not answer" in err
    planes.statuses(None, None, None)
    assert tell("form", "--yes")[0] == 7


def test_a_node_that_refuses_is_a_failure(planes: Planes, tell: Tell) -> None:
    planes.statuses(waiting(1), waiting(2), waiting(3))
    planes.on("POST", "/v1/form", error(409, "no_forming", "a forming is under way"))
    code, _, err = tell("form", "--yes")
    assert code == 1
    assert "a forming is under way" in err


def test_a_first_token_out_of_range_is_refused(planes: Planes, tell: Tell) -> None:
    code, _, err = tell("form", "--first-token", str(1 << 62))
    assert code == 2
    assert "--first-token must be a whole number" in err
