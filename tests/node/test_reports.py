"""What operators read of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.fake_shell import OWNER, START_WALL_NS, Cluster, Machine
from ticketing.node.asked import CannotError
from ticketing.node.settings import S
from ticketing.protocol import frames
from ticketing.raft.types import MS


def formed(count: int = 3) -> Cluster:
    cluster = Cluster(count)
    cluster.start()
    cluster.settle()
    return cluster


def hold(cluster: Cluster, keys: list[bytes], lease: int = 60) -> None:
    client = cluster.connect(cluster.leader)
    client.send(
        frames.encode_hello(b"shop")
        + b"".join(frames.encode_q(9, lease, OWNER + n, key) for n, key in enumerate(keys))
    )
    cluster.world.run(200 * MS)
    assert len(client.said(frames.GRANTED_WAITED)) == len(keys)


def listed(machine: Machine, prefix: str = "", after: str = "", limit: int = 100) -> dict[str, Any]:
    listing = machine.up.reports.keys(prefix.encode(), after.encode(), limit)
    while not listing.step():
        pass
    listing.close()
    return listing.answer


def keys_of(answer: dict[str, Any]) -> list[str]:
    return [lock["key"] for lock in answer["locks"]]


def test_a_held_lock_is_listed_with_its_facts_on_every_node() -> None:
    cluster = formed()
    hold(cluster, ["좌석/1".encode()])
    cluster.world.run(5 * S)
    for machine in cluster.machines:
        (lock,) = listed(machine)["locks"]
        leads = machine is cluster.leader
        assert lock["key"] == "좌석/1"
        assert lock["token"].isdigit()
        assert lock["owner"] == str(OWNER)
        assert lock["name"] == "shop"
        assert lock["lease_s"] == 60
        assert 54_000 < lock["lease_left_ms"] < 55_000
        assert abs(lock["granted_at_ms"] - (START_WALL_NS + cluster.world.now_ns) // MS) < 6_000
        assert lock["renewal"] == 0
        assert lock["waiting"] == (0 if leads else None)


def test_pages_by_key_follow_each_other_and_hold_every_key_of_the_prefix_once() -> None:
    cluster = formed()
    hold(cluster, [b"a%02d" % n for n in range(25)] + [b"b"])
    pages: list[list[str]] = []
    after = ""
    while True:
        answer = listed(cluster.leader, "a", after, 10)
        pages.append(keys_of(answer))
        if answer["next"] is None:
            break
        after = answer["next"]
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [key for page in pages for key in page] == [f"a{n:02}" for n in range(25)]


def test_a_page_under_way_goes_on_in_the_table_that_a_snapshot_has_put_in_place() -> None:
    cluster = formed()
    hold(cluster, [b"k"])
    node = cluster.leader.up
    listing = node.reports.keys(b"", b"", 10)
    assert node.state is not None
    old = node.state.table
    node.state.table = cluster.followers[0].up.state.table  # type: ignore[union-attr]
    old.dismantle(10)
    assert listing.step()
    assert keys_of(listing.answer) == ["k"]
    listing.close()
    assert old.held.walks == node.state.table.held.walks == []


def test_the_first_page_comes_by_age_by_lease_left_and_by_queue() -> None:
    cluster = formed()
    hold(cluster, [b"old"], lease=90)
    hold(cluster, [b"new"], lease=30)
    client = cluster.connect(cluster.leader)
    client.send(frames.encode_q(99, 9, OWNER + 50, b"new"))
    cluster.world.run(100 * MS)
    reports = cluster.leader.up.reports
    assert keys_of(reports.first("age", b"", 10)) == ["old", "new"]
    assert keys_of(reports.first("lease_left", b"", 10)) == ["new", "old"]
    assert keys_of(reports.first("lease_left", b"o", 10)) == ["old"]
    assert keys_of(reports.first("age", b"", 1)) == ["old"]
    (lock,) = reports.first("queue", b"", 10)["locks"]
    assert (lock["key"], lock["waiting"]) == ("new", 1)
    assert reports.first("queue", b"old", 10)["locks"] == []


def test_one_key_is_told_with_its_holders_connections_and_its_queue_in_order() -> None:
    cluster = formed()
    hold(cluster, [b"k"])
    client = cluster.connect(cluster.leader, "10.0.0.7")
    for n in range(1, 6):
        client.send(frames.encode_q(99, 20 + n, OWNER + 10 + n, b"k"))
        cluster.world.run(10 * MS)
    cluster.world.run(2 * S)
    reports = cluster.leader.up.reports
    first = reports.key(b"k", None, 3)
    assert first["lock"]["remotes"] == ["10.0.0.9:4000"]
    assert first["lock"]["waiting"] == first["waiting"] == 5
    assert [waiter["lease_s"] for waiter in first["waiters"]] == [21, 22, 23]
    assert first["waiters"][0]["remote"].startswith("10.0.0.7")
    assert 1_900 < first["waiters"][0]["waited_ms"] < 2_200
    assert 96_000 < first["waiters"][0]["wait_left_ms"] < 97_500
    read_ns, _, owner = first["next"].partition(".")
    rest = reports.key(b"k", (int(read_ns), int(owner)), 3)
    assert [waiter["lease_s"] for waiter in rest["waiters"]] == [24, 25]
    assert rest["next"] is None


def test_a_key_that_nobody_holds_or_waits_for_is_told_as_such() -> None:
    cluster = formed()
    assert cluster.leader.up.reports.key(b"free", None, 3) == {
        "lock": None,
        "waiters": [],
        "waiting": 0,
        "next": None,
    }


def test_a_node_that_does_not_lead_sends_the_caller_on() -> None:
    cluster = formed()
    reports = cluster.followers[0].up.reports
    asks: tuple[Callable[[], object], ...] = (
        lambda: reports.key(b"k", None, 3),
        lambda: reports.first("queue", b"", 3),
        reports.members,
    )
    for ask in asks:
        with pytest.raises(CannotError) as refused:
            ask()
        assert refused.value.code == "not_leader"
        assert refused.value.node is not None
        assert refused.value.node["admin"] == cluster.leader.place.admin


def test_without_a_leader_or_without_membership_that_is_said() -> None:
    cluster = formed()
    follower = cluster.followers[0]
    for machine in cluster.machines:
        if machine is not follower:
            machine.kill()
    cluster.world.run(5 * S)
    with pytest.raises(CannotError) as refused:
        follower.up.reports.members()
    assert refused.value.code == "no_leader"
    lone = Cluster()
    lone.machines[0].start()
    lone.world.run(S)
    with pytest.raises(CannotError, match="no member"):
        listed(lone.machines[0])


def test_members_are_told_with_the_changes_under_way() -> None:
    cluster = formed()
    leader, lost = cluster.leader, cluster.followers[0]
    answer = leader.up.reports.members()
    assert [member["role"] for member in answer["members"]] == ["voter"] * 3
    assert answer["changes"] == []
    assert answer["highest_node_id"] == "3"
    lost.kill()
    cluster.world.run(3 * S)
    lost.start()
    seen: list[dict[str, Any]] = []

    def learning() -> bool:
        seen[:] = leader.up.reports.members()["changes"]
        return bool(seen) and seen[0]["learner"] is not None and seen[0]["since_ms"] is not None

    cluster.world.until(learning)
    (change,) = seen
    assert change["place"] == lost.place.name
    assert change["learner"]["node_id"] == "4"
    assert change["operator"] is False


def test_clocks_are_told_as_this_node_sees_them_and_of_the_others_what_they_say() -> None:
    cluster = formed()
    cluster.world.run(3 * S)
    follower = cluster.followers[0]
    answer = follower.up.reports.clock()
    assert answer["gate"] == "open"
    own, *others = answer["nodes"]
    assert own["place"] == follower.place.name
    assert len(own["peers"]) == 2
    assert [(node["inside"], node["peers"]) for node in others] == [(True, None)] * 2


def test_a_standalone_node_has_reports_too() -> None:
    cluster = formed(1)
    hold(cluster, [b"k"])
    reports = cluster.leader.up.reports
    assert keys_of(listed(cluster.leader)) == ["k"]
    assert len(reports.members()["members"]) == 1
    assert reports.clock()["gate"] == "open"


def test_lists_tell_where_the_holder_is_and_how_long_the_head_of_its_queue_has_waited() -> None:
    cluster = formed()
    hold(cluster, [b"a"])
    waiter = cluster.connect(cluster.leader)
    waiter.send(frames.encode_q(30, 60, OWNER + 100, b"a"))
    cluster.world.run(2 * S)
    for order in ("queue", "age", "lease_left"):
        (lock,) = cluster.leader.up.reports.first(order, b"", 10)["locks"]
        assert 1_800 <= lock["longest_wait_ms"] <= 2_000
        assert lock["remote"] in cluster.leader.up.reports.key(b"a", None, 1)["lock"]["remotes"]


def test_the_leader_counts_waits_by_their_length() -> None:
    cluster = formed()
    hold(cluster, [b"a", b"b", b"c"])
    waits = cluster.leader.up.status()["locks"]["waits"]
    assert len(waits["counts"]) == len(waits["bounds_ms"]) + 1
    assert sum(waits["counts"]) == 3


def test_a_leader_is_known_to_serve_only_once_it_does() -> None:
    cluster = formed()
    assert [machine.up.status()["leader_serves"] for machine in cluster.machines] == [True] * 3
    followers = cluster.followers
    cluster.leader.kill()
    cluster.world.run(50 * MS)
    assert [machine.up.status()["leader_serves"] for machine in followers] == [False] * 2


def test_a_standalone_node_serves_only_once_its_domain_is_recorded() -> None:
    cluster = Cluster(1)
    cluster.start()
    assert cluster.machines[0].up.status()["leader_serves"] is False
    cluster.settle()
    assert cluster.machines[0].up.status()["leader_serves"] is True
