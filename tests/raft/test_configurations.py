"""Which configuration is in force where."""

from tests.raft.hand import FIVE, THREE, A, B, C, D
from ticketing.raft.configurations import Configurations
from ticketing.raft.membership import swapping, with_learner
from ticketing.raft.types import Member

LEARNING = with_learner(THREE, D)
JOINT = swapping(LEARNING, C, D)


def history() -> Configurations:
    """In force from 5, 8 and 12 on."""
    configurations = Configurations(5, THREE)
    configurations.append(8, LEARNING)
    configurations.append(12, JOINT)
    return configurations


def test_each_is_in_force_from_its_entry_to_the_next() -> None:
    configurations = history()
    found = [configurations.at(index) for index in (5, 7, 8, 11, 12, 99)]
    assert found == [THREE, THREE, LEARNING, LEARNING, JOINT, JOINT]
    assert (configurations.newest_index, configurations.newest) == (12, JOINT)


def test_a_truncated_one_is_in_force_no_more() -> None:
    configurations = history()
    configurations.truncate(13)
    assert configurations.newest == JOINT
    configurations.truncate(9)
    assert (configurations.newest_index, configurations.newest) == (8, LEARNING)


def test_compaction_forgets_what_was_superseded_and_only_that() -> None:
    configurations = history()
    configurations.compact(9)
    assert configurations.at(9) == LEARNING
    assert configurations._history[0] == (8, LEARNING)
    configurations.compact(12)
    assert configurations._history == [(12, JOINT)]
    configurations.compact(40)
    assert configurations.at(40) == JOINT


def test_a_snapshot_replaces_what_lies_before_it() -> None:
    configurations = history()
    configurations.rebase(9, FIVE)
    assert (configurations.at(9), configurations.newest) == (FIVE, JOINT)
    configurations.reset(20, THREE)
    assert (configurations.at(20), configurations.newest_index) == (THREE, 20)


def test_a_node_is_known_by_one_incarnation_and_forgotten_with_its_configuration() -> None:
    configurations = history()
    other = Member(D.node_id, 1)
    assert not configurations.knows_otherwise(A)
    assert not configurations.knows_otherwise(Member(77, 1))
    assert configurations.knows_otherwise(Member(B.node_id, 1))
    assert configurations.knows_otherwise(other)
    configurations.truncate(6)
    assert not configurations.knows_otherwise(other)
