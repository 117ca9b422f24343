from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tui.fake_cluster import FakeCluster
from tests.tui.test_model import view_of
from ticketing.tui.events import EVENTS_MAX, EventLog, KeyHistory, changes, told_event
from ticketing.tui.model import ClusterView, KeyDetail, lock_row

BEFORE = view_of(FakeCluster())


def node(view: ClusterView, at: int, **facts: object) -> ClusterView:
    nodes = list(view.nodes)
    nodes[at] = replace(nodes[at], **facts)  # type: ignore[arg-type]
    return replace(view, nodes=tuple(nodes))


NO_LEADER = replace(BEFORE, served=False, leader="", leader_node_id="", term=None, gate="unknown", domain="")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, BEFORE, ["node-1 leads in term 4"]),
        (None, NO_LEADER, ["no leader serves"]),
        (BEFORE, BEFORE, []),
        (BEFORE, NO_LEADER, ["node-1 leads no more; no leader serves"]),
        (NO_LEADER, BEFORE, ["node-1 leads in term 4"]),
        (NO_LEADER, NO_LEADER, []),
        (
            BEFORE,
            replace(BEFORE, leader="node-2", leader_node_id="2", term=5),
            ["node-2 leads in term 5, before it node-1"],
        ),
        (
            BEFORE,
            replace(BEFORE, leader="node-2", leader_node_id="2", term=7),
            ["node-2 leads in term 7 after 3 elections, before it node-1"],
        ),
        (BEFORE, replace(BEFORE, term=5), ["node-1 was elected again, term 5"]),
        (BEFORE, replace(BEFORE, gate="closed"), ["clock gate closed"]),
        (
            BEFORE,
            replace(BEFORE, domain="9.ff"),
            ["another domain: 9.ff (was 1883295221547008.0123456789abcdef)"],
        ),
        (BEFORE, node(BEFORE, 1, reachable=False), ["node-2 does not answer"]),
        (node(BEFORE, 1, reachable=False), BEFORE, ["node-2 answers again"]),
        (node(BEFORE, 1, reachable=False, facts_ns=0), BEFORE, []),
        (BEFORE, node(BEFORE, 1, node_id="4"), ["node-2 was replaced: NodeId 2 became 4"]),
        (BEFORE, node(BEFORE, 1, role="learner"), ["node-2 is learner, was follower"]),
        (BEFORE, node(BEFORE, 1, role="candidate"), []),
        (BEFORE, replace(BEFORE, nodes=BEFORE.nodes[:2]), ["node-3 is no member any more"]),
        (replace(BEFORE, nodes=BEFORE.nodes[:2]), BEFORE, ["node-3 is new"]),
    ],
)
def test_what_two_readings_tell(before: ClusterView | None, after: ClusterView, told: list[str]) -> None:
    assert [event.text for event in changes(before, after, 1)] == told


def test_the_log_is_bounded() -> None:
    log = EventLog()
    for n in range(EVENTS_MAX + 100):
        log.add(BEFORE if n % 2 else NO_LEADER, n)
    assert len(log.events) == EVENTS_MAX


def test_what_is_seen_of_a_key() -> None:
    history = KeyHistory("k")

    def read(token: str | None, renewal: int = 0, *, error: str = "") -> None:
        lock = (
            None
            if token is None
            else lock_row({"key": "k", "token": token, "name": "shop", "renewal": renewal}, 1.0)
        )
        history.add(KeyDetail("k", lock, (), 0, False, 1, error), 1)

    for token, renewal in (("7", 0), ("7", 0), ("7", 1), ("8", 0), (None, 0), (None, 0)):
        read(token, renewal)
    read("9", error="no leader serves")
    assert [moment.text for moment in history.moments] == [
        "held by shop, token 7",
        "extended, token 7",
        "held by shop, token 8",
        "held by nobody",
    ]


def test_a_node_that_had_no_number_in_between_is_told_as_replaced() -> None:
    log = EventLog()
    for number in ("2", "", "", "4"):
        log.add(node(BEFORE, 1, node_id=number), 1)
    assert [event.text for event in log.events][1:] == ["node-2 was replaced: NodeId 2 became 4"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"kind": "leader", "term": "5"}, None),
        ({"kind": "gap", "lost": 3}, None),
        ({"kind": "gate", "what": "gate", "gate": "closed"}, None),
        ({"kind": "gate", "what": "step", "step_ms": 7}, "n: its wall clock was set by +7 ms"),
        ({"kind": "gate", "what": "step", "step_ms": None}, "n: its wall clock was set by +0 ms"),
        ({"kind": "overload", "what": "loop", "gaps": 2}, "n: its loop stood still"),
        ({"kind": "overload", "what": "counts", "counts": {}}, None),
        (
            {"kind": "member", "what": "change", "place": "node-2", "stage": "catching_up", "text": "43 %"},
            "node-2 is being replaced: catching up, 43 %",
        ),
        (
            {
                "kind": "audit",
                "event": "lock revoked",
                "facts": {"command": "1f", "name": "job", "why": "stuck", "key": "[k]", "next_token": None},
            },
            "n: lock revoked (key [k], why stuck, name job)",
        ),
        ({"kind": "audit", "event": 7, "facts": "x"}, "n: "),
        ({}, None),
    ],
)
def test_what_a_node_tells(line: dict[str, object], told: str | None) -> None:
    event = told_event(line, "n", 1)
    assert (None if event is None else event.text) == told
