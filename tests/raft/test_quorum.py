"""Majorities against a twin that counts in the plainest way."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ticketing.raft.quorum import EVERYTHING, Vote, outcome, reached, reached_by_both
from ticketing.raft.types import Configuration, Member

MEMBERS = [Member(number, number) for number in range(1, 8)]
groups = st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=7, unique=True)
values = st.lists(st.integers(0, 9), max_size=7)


def naive_reached(values: list[int]) -> int:
    """The greatest value for which some majority exists that all have it."""
    majorities = combinations(values, len(values) // 2 + 1)
    return max(min(majority) for majority in majorities) if values else EVERYTHING


def naive_won(group: tuple[Member, ...], yes: list[Member]) -> bool:
    return sum(member in yes for member in group) * 2 > len(group)


@given(values)
def test_a_majority_has_reached_the_greatest_value_that_some_majority_shares(values: list[int]) -> None:
    assert reached(values) == naive_reached(values)


@given(values, values)
def test_both_majorities_have_reached_what_each_has(voters: list[int], outgoing: list[int]) -> None:
    expected = min(naive_reached(voters), naive_reached(outgoing))
    assert reached_by_both(voters, outgoing) == expected


@given(groups, st.just([]) | groups, st.dictionaries(st.sampled_from(MEMBERS), st.booleans()))
def test_a_vote_is_won_by_both_majorities_and_lost_when_no_answer_can_win_it_any_more(
    voters: list[Member], outgoing: list[Member], answers: dict[Member, bool]
) -> None:
    configuration = Configuration(tuple(voters), tuple(outgoing))
    yes = [member for member, answer in answers.items() if answer]
    possible = [member for member in MEMBERS if answers.get(member) is not False]
    halves = [half for half in (configuration.voters, configuration.outgoing) if half]
    if all(naive_won(half, yes) for half in halves):
        expected = Vote.WON
    elif all(naive_won(half, possible) for half in halves):
        expected = Vote.PENDING
    else:
        expected = Vote.LOST
    assert outcome(configuration, answers) is expected


@given(groups, groups)
def test_any_two_joint_decisions_share_a_member_with_either_simple_one(
    old: list[Member], new: list[Member]
) -> None:
    """The joint step is safe: it cannot win beside a decision of the old or of the new voters."""
    joint = Configuration(tuple(new), tuple(old))
    for half in (old, new):
        minority = half[: (len(half) - 1) // 2]
        elsewhere = [member for member in MEMBERS if member not in half]
        answers = dict.fromkeys((*minority, *elsewhere), True)
        assert outcome(joint, answers) is not Vote.WON
