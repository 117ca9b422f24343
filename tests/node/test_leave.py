"""Who may stop, and what a process that stops does."""

from __future__ import annotations

import pytest

from tests.node.clocks import S
from tests.node.place_model import TICK, Places, ask_for
from ticketing.node.leave import AskLeave, GiveLeadAway, Leaves, Leaving, StopNow
from ticketing.node.liveness import redundancy
from ticketing.node.membership_messages import LeaveAnswer, LeaveAsk
from ticketing.node.replacement import Done, ProposeChange, Tell
from ticketing.raft.types import MS, Configuration, Member

TERM = 7


def member(number: int) -> Member:
    return Member(number, number * 1000)


class Cluster:
    """A leader that gives leave, over the model of the places."""

    def __init__(self, count: int) -> None:
        self.places = Places(count)
        self.leaves = Leaves()
        self.places.run(1)

    def ask(self, number: int, term: int = TERM) -> str:
        places = self.places
        places.leaving = self.leaves.given(places.configuration.voters)
        facts = places.facts()
        busy = places.replacement.busy(facts, places.now)
        answer = self.leaves.ask(LeaveAsk(number, number * 1000, term), facts, busy, TERM, places.now)
        assert (answer.node_id, answer.incarnation, answer.term) == (number, number * 1000, TERM)
        places.leaving = self.leaves.given(places.configuration.voters)
        return answer.refusal

    def stop(self, number: int) -> None:
        self.places.processes[member(number)].alive = False


class TestLeaves:
    def test_one_of_three_may_stop_and_then_nobody(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(2) == ""
        refusal = cluster.ask(3)
        assert "1 of 3 voters would be left living and 2 are needed" in refusal
        assert "node-2" in refusal

    def test_two_of_five_may_stop_and_then_nobody(self) -> None:
        cluster = Cluster(5)
        assert cluster.ask(2) == ""
        assert cluster.ask(3) == ""
        assert "2 of 5 voters" in cluster.ask(4)

    def test_a_voter_is_counted_as_lost_from_its_leave_although_it_is_still_heard(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(2) == ""
        cluster.places.run(5)
        assert cluster.places.processes[member(2)].alive
        assert cluster.ask(3) != ""

    def test_asking_again_is_answered_the_same(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(2) == ""
        cluster.places.run(1)
        assert cluster.ask(2) == ""
        cluster.stop(3)
        assert cluster.ask(2) == ""

    def test_after_its_place_is_filled_again_the_next_may_go(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(2) == ""
        cluster.stop(2)
        cluster.places.asking.append(ask_for(2, 77))
        while not isinstance(cluster.places.tick(), Done):
            assert cluster.ask(3) != "", cluster.places.actions
        assert cluster.ask(3) == ""

    @pytest.mark.parametrize("count", [3, 5])
    def test_nobody_goes_while_a_place_is_being_filled(self, count: int) -> None:
        cluster = Cluster(count)
        cluster.stop(2)
        cluster.places.asking.append(ask_for(2, 77))
        cluster.places.until(ProposeChange, "add")
        assert "one change at a time" in cluster.ask(3)
        cluster.places.until(Tell)
        assert "node-2 is being filled" in cluster.ask(3)
        cluster.places.until(ProposeChange, "swap")
        assert "being swapped" in cluster.ask(3)

    def test_nobody_goes_where_another_voter_is_silent(self) -> None:
        cluster = Cluster(3)
        cluster.stop(3)
        assert "node-3" in cluster.ask(2)

    def test_a_voter_with_a_link_that_is_silent_for_a_second_does_not_count_as_living(self) -> None:
        cluster = Cluster(3)
        cluster.places.processes[member(3)].answered_ns = cluster.places.now - 1 * S
        assert "node-3" in cluster.ask(2)
        cluster.places.processes[member(3)].answered_ns = cluster.places.now - 1 * S + 1
        assert cluster.ask(2) == ""

    def test_a_voter_heard_a_moment_ago_whose_link_is_down_does_not_count_as_living(self) -> None:
        cluster = Cluster(3)
        cluster.places.processes[member(3)].linked = False
        assert "node-3" in cluster.ask(2)

    @pytest.mark.parametrize(("ms", "given"), [(950, False), (1000, True)])
    def test_a_new_leader_gives_none_in_its_first_second(self, ms: int, given: bool) -> None:
        cluster = Cluster(3)
        cluster.places.begin_lead(member(3))
        cluster.leaves = Leaves()
        cluster.places.run(ms / 1000)
        assert (cluster.ask(2) == "") is given

    def test_a_leader_that_is_not_ready_gives_none(self) -> None:
        cluster = Cluster(3)
        cluster.places.ready = False
        assert "just begun" in cluster.ask(2)

    def test_the_leader_itself_has_to_give_the_lead_away(self) -> None:
        assert "lead is given away" in Cluster(3).ask(1)

    def test_who_is_no_voter_needs_no_leave_and_costs_none(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(9) == ""
        assert cluster.ask(2) == ""

    def test_an_ask_of_another_term_is_refused_and_not_counted(self) -> None:
        cluster = Cluster(3)
        assert cluster.ask(2, term=TERM - 1) == "it asked in another term"
        assert cluster.ask(3) == ""

    def test_whether_it_could_stop_is_told_without_giving_anything(self) -> None:
        cluster = Cluster(3)
        facts = cluster.places.facts()
        assert cluster.leaves.refusal(member(2), facts, None, cluster.places.now) is None
        assert cluster.ask(3) == ""

    def test_a_joint_configuration_counts_both_halves(self) -> None:
        cluster = Cluster(3)
        facts = cluster.places.facts()
        joint = Configuration((member(1), member(2), member(3)), (member(1), member(2), member(9)))
        facts = facts._replace(configuration=joint)
        refusal = cluster.leaves.refusal(member(2), facts, None, cluster.places.now)
        assert refusal is not None
        assert "9:" in refusal


def step(leaving: Leaving, now: int, **changes: object) -> object:
    facts: dict[str, object] = {
        "me": member(2),
        "voter": True,
        "leading": False,
        "leader": member(1),
        "term": TERM,
    }
    facts.update(changes)
    return leaving.step(now, **facts)  # type: ignore[arg-type]


def answer(leaving: Leaving, refusal: str = "", /, **changes: object) -> None:
    leaving.answered(
        LeaveAnswer(2, changes.pop("incarnation", 2000), changes.pop("answer_term", TERM), refusal),  # type: ignore[arg-type]
        changes.pop("sender", member(1)),  # type: ignore[arg-type]
        me=member(2),
        leader=changes.pop("leader", member(1)),  # type: ignore[arg-type]
        term=TERM,
    )


class TestLeaving:
    def test_it_asks_and_stops_when_it_may(self) -> None:
        leaving = Leaving(0, 25 * S)
        assert step(leaving, 0) == AskLeave(member(1), LeaveAsk(2, 2000, TERM))
        answer(leaving)
        stop = step(leaving, TICK)
        assert isinstance(stop, StopNow)
        assert not stop.warning

    def test_it_asks_again_every_half_second_and_a_new_leader_at_once(self) -> None:
        leaving = Leaving(0, 25 * S)
        step(leaving, 0)
        assert step(leaving, 499 * MS) is None
        assert isinstance(step(leaving, 500 * MS), AskLeave)
        assert isinstance(step(leaving, 550 * MS, leader=member(3)), AskLeave)

    def test_refused_until_stop_wait_is_over_it_stops_and_says_what_that_may_mean(self) -> None:
        leaving = Leaving(0, 25 * S)
        step(leaving, 0)
        answer(leaving, "1 of 3 voters would be left living")
        assert leaving.waiting_for == "1 of 3 voters would be left living"
        assert not isinstance(step(leaving, 25 * S - 1), StopNow)
        stop = step(leaving, 25 * S)
        assert isinstance(stop, StopNow)
        assert stop.warning
        assert "may have ended the domain: 1 of 3 voters" in stop.reason

    def test_without_a_leader_it_waits_as_long(self) -> None:
        leaving = Leaving(0, 25 * S)
        assert step(leaving, 0, leader=None) is None
        stop = step(leaving, 25 * S, leader=None)
        assert isinstance(stop, StopNow)
        assert "no leader" in stop.reason

    def test_a_leader_gives_the_lead_away_first_and_tries_once_a_second(self) -> None:
        leaving = Leaving(0, 25 * S)
        assert step(leaving, 0, leading=True, leader=member(2)) == GiveLeadAway()
        assert step(leaving, 999 * MS, leading=True, leader=member(2)) is None
        assert step(leaving, 1000 * MS, leading=True, leader=member(2)) == GiveLeadAway()
        assert isinstance(step(leaving, 1050 * MS, leader=member(3)), AskLeave)

    def test_who_is_no_voter_stops_at_once(self) -> None:
        stop = step(Leaving(0, 25 * S), 0, voter=False)
        assert isinstance(stop, StopNow)
        assert not stop.warning

    @pytest.mark.parametrize(
        "changes",
        [
            {"sender": member(3)},  # not whom it follows
            {"leader": member(3)},  # the lead has moved since
            {"leader": None},
            {"answer_term": TERM - 1},
            {"answer_term": TERM + 1},
            {"incarnation": 1},
        ],
    )
    def test_a_leave_counts_only_from_the_leader_it_follows_and_in_its_term(
        self, changes: dict[str, object]
    ) -> None:
        leaving = Leaving(0, 25 * S)
        step(leaving, 0)
        answer(leaving, **changes)
        assert not isinstance(step(leaving, TICK), StopNow)


class TestRedundancy:
    @pytest.mark.parametrize(
        ("voters", "living", "figure"),
        [
            (3, 3, 1),
            (3, 2, 0),
            (3, 1, -1),
            (5, 5, 2),
            (5, 4, 1),
            (5, 3, 0),
            (5, 2, -1),
            (5, 0, -1),
            (1, 1, 0),
        ],
    )
    def test_failures_until_the_domain_is_lost(self, voters: int, living: int, figure: int) -> None:
        configuration = Configuration(tuple(member(n) for n in range(voters)))
        assert redundancy(configuration, lambda m: m.node_id < living) == figure

    def test_during_a_change_the_smaller_figure_of_both_halves(self) -> None:
        old = (member(1), member(2), member(3))
        new = (member(1), member(4), member(3))
        dead = {member(2)}
        assert redundancy(Configuration(new), lambda m: m not in dead) == 1
        assert redundancy(Configuration(new, old), lambda m: m not in dead) == 0
