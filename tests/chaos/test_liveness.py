"""When a majority could serve, and the gaps between grants meanwhile."""

from __future__ import annotations

from tests.chaos.liveness import Gap, Timeline, majority

FIVE = ("a", "b", "c", "d", "e")


def everybody(_one: str, _other: str = "") -> bool:
    return True


def test_more_than_half_of_the_places_have_to_be_fit() -> None:
    assert majority(FIVE[:3], 5, everybody, everybody)
    assert not majority(FIVE[:2], 5, everybody, everybody)
    assert majority(FIVE[:2], 3, everybody, everybody)


def test_each_of_them_reaches_each_other_one() -> None:
    assert not majority(FIVE[:3], 5, lambda one, other: {one, other} != {"a", "b"}, everybody)
    assert majority(FIVE[:4], 5, lambda one, other: {one, other} != {"a", "b"}, everybody)
    halves = ({"a", "b"}, {"c", "d", "e"})
    assert majority(FIVE, 5, lambda one, other: any({one, other} <= half for half in halves), everybody)
    chain = {("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")}
    assert not majority(FIVE, 5, lambda one, other: (one, other) in chain, everybody)


def test_clients_reach_them() -> None:
    assert majority(FIVE, 5, everybody, lambda node: node in "abc")
    assert not majority(FIVE, 5, everybody, lambda node: node in "ab")


def test_they_reach_the_leader_unless_it_has_lost_its_majority() -> None:
    def reached(node: str) -> bool:
        return node != "a"

    assert majority(FIVE, 5, everybody, reached)
    assert not majority(FIVE, 5, everybody, reached, leader="a")
    assert majority(FIVE, 5, everybody, reached, leader="b")
    assert majority(FIVE, 5, lambda one, other: "a" not in (one, other), reached, leader="a")
    assert majority(FIVE[1:], 5, everybody, reached, leader="a"), "it is not fit: another will be elected"


def test_only_what_lies_within_such_a_time_is_a_gap() -> None:
    timeline = Timeline()
    timeline.note(10, True)
    timeline.note(12, True)
    timeline.note(20, False)
    timeline.note(50, True)
    timeline.finish(56)
    timeline.note(60, True)
    timeline.finish(100)
    assert timeline.total == 16
    gaps = timeline.gaps([5, 11, 14, 30, 51, 53, 70])
    assert gaps[0] == Gap(6, 14), "from the last grant to the end of the time"
    assert sorted(gap.seconds for gap in gaps) == [1, 1, 2, 3, 3, 6]


def test_a_time_without_any_grant_is_one_gap() -> None:
    timeline = Timeline()
    timeline.note(10, True)
    timeline.finish(40)
    assert timeline.gaps([]) == [Gap(30, 10)]
