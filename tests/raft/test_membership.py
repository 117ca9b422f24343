"""Deriving configurations, and which of them may follow which."""

import pytest

from tests.raft.hand import THREE, A, B, C, D, E
from ticketing.raft.membership import (
    leaving_joint,
    problem,
    swapping,
    with_learner,
    without_learner,
)
from ticketing.raft.types import Configuration, Member


def test_a_swap_goes_learner_then_joint_then_final() -> None:
    learning = with_learner(THREE, D)
    assert learning == Configuration((A, B, C), learners=(D,))
    joint = swapping(learning, B, D)
    assert joint == Configuration((A, D, C), outgoing=(A, B, C))
    assert leaving_joint(joint) == Configuration((A, D, C))
    assert problem(THREE, learning) is None
    assert problem(learning, joint) is None


def test_a_learner_can_be_given_up() -> None:
    assert without_learner(with_learner(THREE, D), D) == THREE
    assert problem(with_learner(THREE, D), THREE) is None


def test_other_learners_stay_through_a_swap() -> None:
    both = Configuration((A, B, C), learners=(D, E))
    assert leaving_joint(swapping(both, C, E)).learners == (D,)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Configuration(()), "needs voters"),
        (Configuration((A, A, B)), "twice"),
        (Configuration((A, B, C), learners=(C,)), "as well"),
        (Configuration((A, B, C), learners=(Member(2, 99),)), "share a NodeId"),
        (Configuration((A, B, D)), "joint configuration only"),
        (Configuration((A, B, D), outgoing=(A, B, E)), "voters in force"),
    ],
)
def test_what_cannot_follow_is_refused_with_a_reason(wanted: Configuration, why: str) -> None:
    assert why in str(problem(THREE, wanted))


def test_members_are_listed_once_and_in_order() -> None:
    joint = swapping(with_learner(THREE, D), B, D)
    assert joint.members() == (A, D, C, B)
