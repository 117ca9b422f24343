from __future__ import annotations

import time
from typing import Any

import pytest

from ticketing.cli.admin_client import AdminError, Answer
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.status import exit_code

OLD, NEW = "1000.00000000000000aa", "2000.00000000000000bb"


def facts(number: int, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "place": f"node-{number}",
        "node_id": str(number),
        "version": "1",
        "domain": NEW,
        "role": "follower",
        "serving": False,
        "stopping": False,
        "serves_in_s": 0,
        "membership": {"state": "member", "waiting_for": []},
        "sessions": {"open": 3},
        "clock": {"gate": "open", "delta_ms": 500, "peers": []},
        "raft": {"term": "7", "commit_index": "40", "redundancy": 1, "members": []},
        "locks": {"held": 2, "next_token": "9"},
    }
    return own | more


def leader(number: int, **more: Any) -> dict[str, Any]:
    own = facts(number, role="leader", serving=True)
    own["raft"] |= {"members": [{"place": "node-3", "lag": 4}]}
    own["clock"]["peers"] = [{"place": "node-3", "difference_ms": 1.5, "error_ms": 0.2}]
    return own | more


def view(*nodes: dict[str, Any] | None) -> dict[str, Any]:
    return cluster_status(
        [
            Answer(
                f"node-{n}", f"a:{n}", said, None if said else AdminError("unreachable", f"a:{n}: refused")
            )
            for n, said in enumerate(nodes, start=1)
        ]
    )


def test_a_cluster_in_full_health_has_no_fault() -> None:
    found = view(facts(1), leader(2), facts(3))
    assert found["served"]
    assert (found["leader"], found["term"], found["redundancy"]) == ("node-2", "7", 1)
    assert found["faults"] == []
    assert exit_code(found, check=True) == 0
    third = found["nodes"][2]
    assert (third["lag"], third["clock_difference_ms"], third["clock_error_ms"]) == (4, 1.5, 0.2)


def test_without_a_leader_the_code_is_7_checked_or_not() -> None:
    found = view(facts(1), facts(2, role="candidate"), None)
    assert not found["served"]
    assert "no leader serves" in found["faults"]
    assert exit_code(found, check=False) == exit_code(found, check=True) == 7


def test_a_node_that_does_not_answer_is_a_row_and_unhealthy() -> None:
    found = view(facts(1), leader(2), None)
    assert found["nodes"][2]["reachable"] is False
    assert found["faults"] == ["node-3 does not answer (a:3: refused)"]
    assert exit_code(found, check=False) == 0
    assert exit_code(found, check=True) == 9


def test_the_leader_of_the_newest_domain_and_term_counts() -> None:
    stale = leader(1)
    stale["raft"] = stale["raft"] | {"term": "6"}
    assert view(stale, leader(2), facts(3))["leader"] == "node-2"
    other = view(leader(1, domain=OLD, raft={"term": "90"}), leader(2), facts(3))
    assert other["leader"] == "node-2"
    assert other["faults"] == [f"node-1 is in another domain, {OLD}"]


@pytest.mark.parametrize(
    ("third", "told"),
    [
        (
            facts(3, role="waiting", membership={"state": "", "waiting_for": ["node-1: no link"]}),
            "node-3 is waiting, not a member that votes: waits for node-1: no link",
        ),
        (facts(3, role="learner"), "node-3 is learner, not a member that votes"),
        (facts(3, stopping=True), "node-3 is stopping"),
    ],
)
def test_nodes_that_are_no_full_members_are_faults(third: dict[str, Any], told: str) -> None:
    assert view(facts(1), leader(2), third)["faults"] == [told]


def test_closed_clocks_and_spent_redundancy_are_faults() -> None:
    bad = leader(2, clock={"gate": "closed", "delta_ms": 500})
    bad["raft"] |= {"redundancy": 0}
    faults = view(facts(1), bad, facts(3))["faults"]
    assert any("clocks are too far apart" in fault for fault in faults)
    assert any("one more failure" in fault for fault in faults)


def test_a_standalone_node_has_no_redundancy_to_spend() -> None:
    alone = leader(1)
    alone["raft"] |= {"redundancy": 0}
    assert view(alone)["faults"] == []


def test_facts_that_an_older_node_does_not_tell_are_no_crash() -> None:
    found = view({"place": "node-1"}, {"place": "node-2", "serving": True, "raft": None, "clock": None}, None)
    assert found["leader"] == "node-2"
    assert found["nodes"][0]["role"] is None


def test_a_certificate_near_its_end_is_a_warning_and_one_that_does_not_pass_a_fault() -> None:
    day_ms = 86_400_000
    soon = time.time_ns() // 1_000_000 + 5 * day_ms + day_ms // 2
    found = view(
        facts(1, process={"certificate_ends_ms": soon, "certificate_fault": None}),
        leader(2, process={"certificate_ends_ms": soon + 30 * day_ms, "reload_fault": "no such file"}),
        facts(3, process={"certificate_ends_ms": soon, "certificate_fault": "certificate has expired"}),
    )
    assert found["faults"] == ["node-3: certificate has expired"]
    assert found["warnings"] == [
        "node-1's certificate ends in 5 days: `ticketing cert renew`",
        "node-2 could not read its files anew: no such file",
    ]
    warned = view(facts(1, process={"certificate_ends_ms": soon}), leader(2), facts(3))
    assert warned["faults"] == []
    assert exit_code(warned, check=True) == 9
    assert exit_code(warned, check=False) == 0
