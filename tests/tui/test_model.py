from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tui.fake_cluster import FakeCluster, Lock
from ticketing.tui.board import Board, is_old
from ticketing.tui.model import (
    ClusterView,
    NodeReading,
    Reading,
    change_rows,
    cluster_view,
    key_detail,
    lock_row,
)
from ticketing.tui.record import record
from ticketing.tui.render.frame import frame
from ticketing.tui.render.summary import Freshness
from ticketing.tui.render.text import UNICODE
from ticketing.tui.want import INTERVAL_LEAST_S, Want, clamped, rows_for

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def readings(cluster: FakeCluster, *, silent: str = "") -> tuple[NodeReading, ...]:
    return tuple(
        NodeReading(
            place,
            "127.0.0.1:7225",
            None if place == silent else cluster.status(node),
            1,
            "refused" if place == silent else None,
        )
        for place, node in cluster.nodes.items()
    )


def view_of(cluster: FakeCluster, *, silent: str = "") -> ClusterView:
    return cluster_view(readings(cluster, silent=silent))


async def test_the_leaders_view_of_the_others_counts() -> None:
    view = view_of(FakeCluster())
    assert view.served
    assert (view.leader, view.term, view.answering) == ("node-1", 4, 3)
    leader, follower, _ = view.nodes
    assert (leader.clock_ms, leader.clock_error_ms) == (0.0, None)
    assert (follower.clock_ms, follower.clock_error_ms, follower.lag) == (0.4, 0.2, 0)
    assert round(follower.certificate_days or 0) == 300


async def test_a_silent_node_is_a_row_with_its_reason() -> None:
    view = view_of(FakeCluster(), silent="node-2")
    node = view.nodes[1]
    assert not node.reachable
    assert node.error == "refused"
    assert any("node-2 does not answer" in fault for fault in view.faults)


async def test_without_a_leader_nothing_is_served() -> None:
    cluster = FakeCluster()
    cluster.leader = None
    view = view_of(cluster)
    assert not view.served
    assert view.leader == ""
    assert view.redundancy is None


async def test_alarms_are_among_the_faults() -> None:
    cluster = FakeCluster()
    cluster.odd = {"process": {"certificate_fault": "wrong name", "reload_fault": "no such file"}}
    faults = view_of(cluster).faults
    assert "node-1: its certificate would not pass: wrong name" in faults
    assert "node-1: the last reload changed nothing: no such file" in faults


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            (
                "raft",
                "locks",
                "clock",
                "process",
                "membership",
                "counters",
                "domain",
                "role",
                "serving",
                "leader",
                "sessions",
                "serves_in_s",
                "wall_ms",
                "place",
                "node_id",
            )
        ),
        JSON,
        max_size=6,
    )
)
def test_whatever_a_node_says_of_itself_there_is_a_picture(odd: dict[str, Any]) -> None:
    facts = {"place": "node-1", "serving": True} | odd
    node = NodeReading("node-1", "127.0.0.1:7225", facts, 1, None)
    board = Board()
    for n in (1, 2):
        board.take(Reading(n, 1_796_051_000_000, (node,), cluster_view((node,)), None, None, (), "", n))
    lines = frame(board, Want(), Freshness(1.0, old=False, paused=False, interval_s=1), 80, UNICODE)
    assert len(lines) > 8
    assert record(board)["format"] == 1


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ("key", "token", "name", "lease_s", "lease_left_ms", "granted_at_ms", "waiting", "remotes")
        ),
        JSON,
    ),
    JSON,
)
def test_whatever_a_list_says_there_are_rows(lock: dict[str, Any], waiters: Any) -> None:
    row = lock_row(lock, 5.0)
    assert row.left_share is None or 0 <= row.left_share <= 1
    detail = key_detail("k", {"lock": lock, "waiters": waiters}, None, 1)
    assert [waiter.place for waiter in detail.waiters] == list(range(1, len(detail.waiters) + 1))
    change_rows({"changes": waiters})


def test_a_lock_is_read_as_it_is_told() -> None:
    row = lock_row(
        Lock("k", 77, lease_s=30, lease_left_ms=15_000, held_ms=15_000).shown(1_000_000), 1_000_000
    )
    assert (row.key, row.token, row.left_share, row.held_ms) == ("k", "77", 0.5, 15_000)


def test_a_key_that_nobody_holds_has_no_lease() -> None:
    row = lock_row({"key": "k", "token": None, "waiting": 3}, 1.0)
    assert (row.token, row.left_ms, row.held_ms, row.waiting) == ("", None, None, 3)


def test_a_wall_clock_that_was_set_back_makes_no_negative_age() -> None:
    assert lock_row(Lock("k", 1, held_ms=-5_000).shown(1_000_000), 1_000_000).held_ms == 0


def test_data_is_old_after_some_intervals_or_two_seconds() -> None:
    assert is_old(None, 1)
    assert not is_old(1_999, 0.25)
    assert is_old(2_001, 0.25)
    assert not is_old(20_000, 10)
    assert is_old(25_001, 10)


def test_intervals_and_pages_are_bounded() -> None:
    assert clamped(0) == INTERVAL_LEAST_S
    assert clamped(1e9) == 60
    assert rows_for(1) == 50
    assert rows_for(60) == 100
    assert rows_for(10_000) == 1_000
