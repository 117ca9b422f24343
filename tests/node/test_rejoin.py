"""A process that asks for its place."""

from __future__ import annotations

import msgspec
import pytest

from tests.node.clocks import S
from tests.node.place_model import Places, ask_for
from ticketing.node import membership_messages as messages
from ticketing.node.membership_messages import (
    JoinAnswer,
    JoinApplied,
    JoinAsk,
    JoinTaken,
    LeaveAnswer,
    LeaveAsk,
    Removed,
    Verdict,
)
from ticketing.node.rejoin import (
    DENIED_AGAIN_NS,
    NEXT_PLACE_NS,
    AppliedReport,
    Ask,
    LeaderAt,
    Rejoin,
    Stop,
    Taken,
    asks,
    refusal,
    removed,
)
from ticketing.node.settings import NodeSettings, Place
from ticketing.raft.types import MS, Member

ME = 77
LIVES = {"node-1": 11, "node-3": 33}
"""Incarnations of the processes that are asked."""


def node_settings(**changes: object) -> NodeSettings:
    places = tuple(Place(f"node-{n}", f"h{n}:5225", f"h{n}:6225", f"h{n}:7225") for n in (1, 2, 3))
    return msgspec.structs.replace(
        NodeSettings(place="node-2", places=places, earlier_domain="00" * 8, earlier_first_token=1000),
        **changes,
    )


def asking(*linked: str, **changes: object) -> Rejoin:
    rejoin = Rejoin(node_settings(**changes), ME, 0)
    for place in linked:
        rejoin.linked(place, LIVES[place], 0)
    return rejoin


def asked(rejoin: Rejoin, now: int) -> str | None:
    action = rejoin.step(now)
    return None if action is None else action.place


def taken(**changes: object) -> JoinTaken:
    return msgspec.structs.replace(JoinTaken(ME, "node-2", 4, "ab" * 8, 2000, 500 * MS), **changes)


class TestAsking:
    def test_it_says_who_it_is_and_where(self) -> None:
        action = asking("node-1").step(0)
        assert isinstance(action, Ask)
        assert action.message == JoinAsk("node-2", ME, "h2:5225", "h2:6225", "h2:7225", why="started again")
        assert not action.message.operator

    def test_an_operators_command_goes_with_it(self) -> None:
        rejoin = Rejoin(node_settings(), ME, 0, command_id="cmd-1", who="kim", why="disk")
        rejoin.linked("node-1", LIVES["node-1"], 0)
        action = rejoin.step(0)
        assert isinstance(action, Ask)
        assert action.message.operator
        assert (action.message.command_id, action.message.who, action.message.why) == ("cmd-1", "kim", "disk")

    def test_places_are_asked_in_turn_until_one_leads(self) -> None:
        rejoin = asking("node-1", "node-3")
        assert asked(rejoin, 0) == "node-1"
        rejoin.receive("node-1", JoinAnswer(ME, Verdict.NOT_LEADING, "no leader is known here"), 0)
        assert asked(rejoin, NEXT_PLACE_NS - 1) is None
        assert asked(rejoin, NEXT_PLACE_NS) == "node-3"

    def test_one_that_says_nothing_is_passed_over_after_a_second(self) -> None:
        rejoin = asking("node-1", "node-3")
        assert asked(rejoin, 0) == "node-1"
        assert asked(rejoin, 1 * S - 1) is None
        assert asked(rejoin, 1 * S) == "node-3"
        assert asked(rejoin, 2 * S) == "node-1"

    def test_only_places_with_a_link_are_asked(self) -> None:
        rejoin = asking("node-3")
        assert [asked(rejoin, n * S) for n in range(3)] == ["node-3", "node-3", "node-3"]
        assert asked(asking(), 0) is None

    def test_the_leader_that_is_named_is_asked_next_and_then_every_second(self) -> None:
        rejoin = asking("node-1", "node-3")
        asked(rejoin, 0)
        rejoin.receive("node-1", JoinAnswer(ME, Verdict.NOT_LEADING, "node-3 leads", "node-3"), 0)
        now = NEXT_PLACE_NS
        for _ in range(4):
            assert asked(rejoin, now) == "node-3"
            rejoin.receive("node-3", JoinAnswer(ME, Verdict.WAITING, "its present voter is not gone"), now)
            assert asked(rejoin, now + 1 * S - 1) is None
            now += 1 * S

    def test_a_leader_that_falls_silent_is_not_asked_for_ever(self) -> None:
        rejoin = asking("node-1", "node-3")
        asked(rejoin, 0)
        rejoin.receive("node-1", JoinAnswer(ME, Verdict.WAITING, "it is next"), 0)
        assert asked(rejoin, 1 * S) == "node-1"
        assert asked(rejoin, 2 * S) == "node-3"

    def test_a_leader_whose_link_ends_is_left_at_once(self) -> None:
        rejoin = asking("node-1", "node-3")
        asked(rejoin, 0)
        rejoin.receive("node-1", JoinAnswer(ME, Verdict.WAITING, "it is next"), 0)
        rejoin.parted("node-1", LIVES["node-1"], 10 * MS)
        assert asked(rejoin, 10 * MS + NEXT_PLACE_NS) == "node-3"

    def test_after_a_denial_it_asks_seldom(self) -> None:
        rejoin = asking("node-1", "node-3")
        asked(rejoin, 0)
        assert rejoin.receive("node-1", JoinAnswer(ME, Verdict.DENIED, "no place of this cluster"), 0) is None
        assert asked(rejoin, DENIED_AGAIN_NS - 1) is None
        assert asked(rejoin, DENIED_AGAIN_NS) == "node-1"

    def test_what_was_said_is_shown_with_the_address(self) -> None:
        rejoin = asking("node-1")
        rejoin.turned_away("node-3", "refuses: removed", 0)
        asked(rejoin, 0)
        rejoin.receive("node-1", JoinAnswer(ME, Verdict.WAITING, "its present voter is not gone"), 1 * S)
        first, second = rejoin.views(3 * S)
        assert (first.place, first.address, first.linked) == ("node-1", "h1:6225", True)
        assert (first.said, first.said_ago_ns) == ("waiting: its present voter is not gone", 2 * S)
        assert (second.place, second.linked, second.said) == ("node-3", False, "refuses: removed")


class TestALeaderWhosePlaceHasMoved:
    """Where it is, whoever does not lead says; a link to it is needed before it can be asked."""

    MOVED = JoinAnswer(ME, Verdict.NOT_LEADING, "node-3 leads", "node-3", "new:6225")

    def test_it_is_dialled_where_it_is_said_to_be_and_asked_as_soon_as_it_is_linked(self) -> None:
        rejoin = asking("node-1")
        asked(rejoin, 0)
        assert rejoin.receive("node-1", self.MOVED, 0) == LeaderAt("node-3", "new:6225")
        assert asked(rejoin, NEXT_PLACE_NS) == "node-1", "meanwhile whoever can be asked is"
        assert rejoin.receive("node-1", self.MOVED, NEXT_PLACE_NS) is None, "it is dialled already"
        rejoin.linked("node-3", 34, 250 * MS)
        assert asked(rejoin, 250 * MS) == "node-3"
        assert rejoin.views(250 * MS)[1].address == "new:6225"

    def test_also_while_its_former_process_still_answers_at_the_former_address(self) -> None:
        rejoin = asking("node-1", "node-3")
        asked(rejoin, 0)
        assert rejoin.receive("node-1", self.MOVED, 0) == LeaderAt("node-3", "new:6225")
        rejoin.linked("node-3", 34, 10 * MS)
        rejoin.parted("node-3", LIVES["node-3"], 20 * MS)
        rejoin.turned_away("node-3", "refuses: removed", 30 * MS)
        assert asked(rejoin, 30 * MS) == "node-3", "it was linked: that the former one is gone means nothing"

    @pytest.mark.parametrize(
        "answer",
        [
            JoinAnswer(
                ME, Verdict.NOT_LEADING, "node-3 leads", "node-3", "h3:6225"
            ),  # where it is dialled anyway
            JoinAnswer(ME, Verdict.NOT_LEADING, "node-3 leads", "node-3"),  # of a node that speaks format 1
            JoinAnswer(ME, Verdict.NOT_LEADING, "node-2 leads", "node-2", "new:6225"),  # our own place
            JoinAnswer(ME, Verdict.NOT_LEADING, "node-9 leads", "node-9", "new:6225"),  # no place of ours
            JoinAnswer(ME, Verdict.WAITING, "it is next", "node-3", "new:6225"),
        ],
    )
    def test_nobody_else_is_dialled(self, answer: JoinAnswer) -> None:
        rejoin = asking("node-1")
        asked(rejoin, 0)
        assert rejoin.receive("node-1", answer, 0) is None
        assert [view.address for view in rejoin.views(0)] == ["h1:6225", "h3:6225"]


class TestTaken:
    def test_taken_in(self) -> None:
        message = taken()
        assert asking("node-1").receive("node-1", message, 0) == Taken(message)

    @pytest.mark.parametrize("changes", [{"incarnation": 78}, {"place": "node-3"}])
    def test_what_is_meant_for_another_process_is_not_taken(self, changes: dict[str, object]) -> None:
        assert asking("node-1").receive("node-1", taken(**changes), 0) is None

    @pytest.mark.parametrize(("first_token", "is_taken"), [(999, False), (1000, True)])
    def test_not_into_a_domain_older_than_the_one_recorded(self, first_token: int, is_taken: bool) -> None:
        rejoin = asking("node-1")
        result = rejoin.receive("node-1", taken(first_token=first_token), 0)
        assert (result is not None) is is_taken
        assert ("older" in rejoin.views(0)[0].said) is not is_taken

    def test_an_answer_to_an_earlier_process_life_is_dropped(self) -> None:
        rejoin = asking("node-1")
        rejoin.receive("node-1", JoinAnswer(78, Verdict.UNDONE, "undone"), 0)
        assert rejoin.views(0)[0].said == ""

    def test_a_process_whose_command_was_undone_stops_for_good(self) -> None:
        result = asking("node-1").receive(
            "node-1", JoinAnswer(ME, Verdict.UNDONE, "undone by an operator"), 0
        )
        assert result == Stop(12, "undone by an operator")


class TestWhoAsks:
    @pytest.mark.parametrize(
        ("changes", "domain_lives", "expected"),
        [
            ({"earlier_domain": "ab" * 8, "permit": "p"}, False, True),  # a record of an earlier life
            ({"earlier_domain": "", "permit": ""}, False, True),  # neither record nor permit
            ({"earlier_domain": "", "permit": "p"}, False, False),  # it forms
            ({"earlier_domain": "", "permit": "p"}, True, True),  # the permit was used without it
            ({"earlier_domain": "ab" * 8, "rejoin": False}, True, False),
            ({"earlier_domain": "ab" * 8, "standalone": True}, False, False),
        ],
    )
    def test_who_asks(self, changes: dict[str, object], domain_lives: bool, expected: bool) -> None:
        assert asks(node_settings(**changes), domain_lives=domain_lives) is expected

    def test_told_not_to_rejoin_it_names_the_commands(self) -> None:
        text = refusal(node_settings(rejoin=False))
        assert text is not None
        assert "ticketing node start" in text
        assert "ticketing node replace --node node-2" in text

    def test_told_not_to_rejoin_a_process_without_record_may_still_form(self) -> None:
        assert refusal(node_settings(rejoin=False, earlier_domain="")) is None
        assert refusal(node_settings()) is None


class TestRemoved:
    def test_a_voter_that_was_replaced_stops_for_good(self) -> None:
        stop = removed("node-1 says so", voted=True)
        assert stop.status == 12
        assert "node-1 says so" in stop.reason

    def test_a_learner_that_was_given_up_may_be_started_again(self) -> None:
        assert removed("not heard from", voted=False).status == 1


class TestAppliedReport:
    def test_the_newest_voter_reports_how_far_it_is_at_once_and_every_second(self) -> None:
        places = Places()
        places.members.newest_swap = 3
        me, leader = Member(3, 3000), Member(1, 1000)
        report = AppliedReport()
        assert report.due(0, me, leader, places.members, 40, 540) == JoinApplied(3, 540)
        assert report.due(1 * S - 1, me, leader, places.members, 40, 540) is None
        assert report.due(1 * S, me, leader, places.members, 40, 540) == JoinApplied(3, 540)
        assert report.due(1 * S, me, leader, places.members, 41, 541) == JoinApplied(3, 541)
        assert report.due(1 * S, me, Member(2, 2000), places.members, 41, 541) == JoinApplied(3, 541)

    @pytest.mark.parametrize(
        ("newest", "leader"), [(0, Member(1, 1000)), (2, Member(1, 1000)), (3, None), (3, Member(3, 3000))]
    )
    def test_nobody_else_and_to_nobody_else(self, newest: int, leader: Member | None) -> None:
        places = Places()
        places.members.newest_swap = newest
        assert AppliedReport().due(0, Member(3, 3000), leader, places.members, 40, 540) is None


class TestMessages:
    @pytest.mark.parametrize(
        "message",
        [
            ask_for(2, 77, "cmd-1"),
            JoinAnswer(77, Verdict.WAITING, "why", "node-1", "h1:6225"),
            JoinTaken(77, "node-2", 4, "ab" * 8, 1 << 61, 500 * MS),
            JoinApplied(4, 100),
            Removed(2, 2000, "replaced by 4"),
        ],
    )
    def test_membership_round_trip(self, message: messages.MembershipMessage) -> None:
        assert messages.decode_membership(messages.encode(message)) == message

    @pytest.mark.parametrize("message", [LeaveAsk(2, 2000, 7), LeaveAnswer(2, 2000, 7, "not now")])
    def test_leave_round_trip(self, message: messages.LeaveMessage) -> None:
        assert messages.decode_leave(messages.encode(message)) == message

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\x93\x09\x01\x02",
            msgspec.msgpack.encode([1, "x" * 65, 1, "a", "b", "c"]),
            msgspec.msgpack.encode([1, "node-2", -1, "a", "b", "c"]),
            msgspec.msgpack.encode([1, "node-2", 1, "a" * 129, "b", "c"]),
            msgspec.msgpack.encode([2, 1, "perhaps", "text", ""]),
            msgspec.msgpack.encode([2, 1, "waiting", "t" * 513, ""]),
            msgspec.msgpack.encode([2, 1, "waiting", "text", "node-1", "a" * 129]),
            msgspec.msgpack.encode([3, 1, "node-2", 4, "xyz", 1, 1]),
        ],
    )
    def test_what_is_out_of_bounds_is_a_decode_error(self, payload: bytes) -> None:
        with pytest.raises(msgspec.DecodeError):
            messages.decode_membership(payload)
