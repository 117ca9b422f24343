"""The members as replicated state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.node.first_state import FirstMember
from ticketing.node.members import COMMANDS_MAX, MemberRecord, Members, MembersChange
from ticketing.raft.membership import leaving_joint, swapping, with_learner, without_learner
from ticketing.raft.types import Configuration, ConfigurationChange, Member


def record(place: int, node_id: int, command_id: str = "") -> MemberRecord:
    name = f"node-{place}"
    return MemberRecord(
        name, node_id, node_id * 1000, f"{name}:5225", f"{name}:6225", f"{name}:7225", command_id
    )


def founded() -> tuple[Members, Configuration]:
    members = Members([record(1, 1), record(2, 2), record(3, 3)])
    return members, Configuration(tuple(r.member for r in members.records))


def adding(configuration: Configuration, new: MemberRecord) -> ConfigurationChange:
    change = MembersChange("add", new.place, new.node_id, (new,))
    return ConfigurationChange(with_learner(configuration, new.member), change.encode())


def swap(configuration: Configuration, old: MemberRecord, new: MemberRecord) -> ConfigurationChange:
    change = MembersChange("swap", new.place, new.node_id, command_id=new.command_id)
    return ConfigurationChange(swapping(configuration, old.member, new.member), change.encode())


def test_the_founders_are_known_with_their_addresses() -> None:
    founders = [FirstMember(f"node-{n}", n, n * 1000, f"c{n}:1", f"p{n}:2", f"a{n}:3") for n in (2, 1, 3)]
    members = Members(founders)
    assert [r.node_id for r in members.records] == [1, 2, 3]
    assert members.by_node_id(2) == MemberRecord("node-2", 2, 2000, "c2:1", "p2:2", "a2:3")
    assert members.highest == 3


def test_a_record_comes_with_its_learner_and_goes_with_the_final_configuration() -> None:
    members, configuration = founded()
    new, old = record(2, 4), record(2, 2)
    added = adding(configuration, new)
    assert members.apply(added) == []
    assert members.by_node_id(4) == new
    joint = swap(added.configuration, old, new)
    assert members.apply(joint) == []
    # While the joint configuration is in force the old voter is half of a majority, so it is no stranger yet.
    assert not members.removed(2)
    assert members.newest_swap == 4
    assert members.apply(ConfigurationChange(leaving_joint(joint.configuration))) == [old]
    assert members.removed(2)
    assert [r.node_id for r in members.records] == [1, 3, 4]


def test_a_learner_given_up_is_removed_and_its_number_is_never_used_again() -> None:
    members, configuration = founded()
    added = adding(configuration, record(2, 4))
    members.apply(added)
    without = without_learner(added.configuration, Member(4, 4000))
    members.apply(ConfigurationChange(without, MembersChange("give_up", "node-2", 4).encode()))
    assert members.removed(4)
    assert members.next_node_id(without) == 5


def test_the_next_number_is_above_those_of_a_configuration_not_yet_committed() -> None:
    members, configuration = founded()
    assert members.next_node_id(with_learner(configuration, Member(9, 1))) == 10


@pytest.mark.parametrize(
    ("node_id", "removed"), [(0, False), (1, False), (3, False), (4, False), (100, False)]
)
def test_what_was_never_a_member_was_not_removed(node_id: int, removed: bool) -> None:
    members, _ = founded()
    assert members.removed(node_id) is removed


def test_a_number_is_never_given_twice() -> None:
    members, configuration = founded()
    with pytest.raises(AssertionError, match="used again"):
        members.apply(adding(configuration, record(2, 3)))


def test_members_are_found_by_number_life_and_place() -> None:
    members, configuration = founded()
    added = adding(configuration, record(2, 4))
    members.apply(added)
    joint = swap(added.configuration, record(2, 2), record(2, 4))
    assert members.find(Member(2, 2000)) == record(2, 2)
    assert members.find(Member(2, 7)) is None
    assert members.by_incarnation(4000) == record(2, 4)
    assert members.by_incarnation(5) is None
    assert members.voter_of("node-2", added.configuration) == record(2, 2)
    assert members.voter_of("node-2", joint.configuration) == record(2, 4)
    assert members.voter_of("node-9", configuration) is None


def test_commands_that_were_undone_are_remembered_within_a_bound() -> None:
    members, configuration = founded()
    for number in range(COMMANDS_MAX + 3):
        change = MembersChange("undo", "node-2", 4, command_id=f"c{number}")
        members.apply(ConfigurationChange(configuration, change.encode()))
    assert len(members.undone) == COMMANDS_MAX
    assert members.undone[-1] == f"c{COMMANDS_MAX + 2}"


def test_a_command_is_used_by_the_swap_and_not_before() -> None:
    members, configuration = founded()
    added = adding(configuration, record(2, 4, "by-hand"))
    members.apply(added)
    assert "by-hand" not in members.used
    members.apply(swap(added.configuration, record(2, 2), record(2, 4, "by-hand")))
    assert members.used == ("by-hand",)


def test_a_context_that_cannot_be_read_is_refused() -> None:
    members, configuration = founded()
    with pytest.raises(msgspec.DecodeError):
        members.apply(ConfigurationChange(configuration, b"\x91\x01"))


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=8), st.booleans())
def test_a_snapshot_holds_all_of_it(places: list[int], undone: bool) -> None:
    members, configuration = founded()
    for place in places:
        old = members.voter_of(f"node-{place}", configuration)
        assert old is not None
        new = record(place, members.next_node_id(configuration), f"by-hand-{place}")
        for change in (added := adding(configuration, new), joint := swap(added.configuration, old, new)):
            members.apply(change)
        configuration = leaving_joint(joint.configuration)
        members.apply(ConfigurationChange(configuration))
        assert sorted(r.place for r in members.records) == ["node-1", "node-2", "node-3"]
        assert members.removed(old.node_id)
    if undone:
        members.apply(
            ConfigurationChange(configuration, MembersChange("undo", "x", 9, command_id="c").encode())
        )
    image = members.encode()
    restored = Members.decode(image)
    assert restored.encode() == image
    assert restored.records == members.records
    assert (restored.highest, restored.newest_swap) == (members.highest, members.newest_swap)
    assert (restored.used, restored.undone) == (members.used, members.undone)
    assert restored.removed(2) == members.removed(2)


def test_equal_states_have_equal_bytes_however_they_came_about() -> None:
    forwards = Members([record(1, 1), record(2, 2)])
    backwards = Members([record(2, 2), record(1, 1)])
    assert forwards.encode() == backwards.encode()
