"""Filling a place with another process: each rule, and leaders that die between any two steps."""

from __future__ import annotations

import pytest

from tests.node.clocks import S
from tests.node.place_model import TICK, Places, ask_for
from ticketing.node.commit_history import CommitHistory
from ticketing.node.members import MemberRecord
from ticketing.node.membership_messages import JoinAnswer, JoinTaken, Verdict
from ticketing.node.replacement import Done, ProposeChange, Tell, Transfer, not_leading
from ticketing.raft.types import MS, Member


def waiting(answer: JoinAnswer | JoinTaken) -> str:
    assert isinstance(answer, JoinAnswer)
    assert answer.verdict is Verdict.WAITING
    return answer.text


class TestAPlaceIsFilledAgain:
    def test_a_restarted_process_takes_its_place_under_a_new_number(self) -> None:
        places = Places()
        old = places.kill(2)
        places.asking.append(ask_for(2, 77))
        done = places.until(Done)
        assert isinstance(done, Done)
        assert (done.place, done.node_id, done.witnessed) == ("node-2", 4, True)
        assert places.proposed == ["add", "swap"]
        assert places.taken == {77: 4}
        assert places.configuration.voters == (Member(1, 1000), Member(4, 77), Member(3, 3000))
        assert places.configuration.learners == ()
        assert places.members.removed(old.node_id)
        assert [r.member for r in places.ended] == [old]

    def test_every_decision_has_its_line_for_the_audit(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(Done)
        lines = [a.audit for a in places.actions if isinstance(a, ProposeChange | Done)]
        assert len(lines) == 3
        assert all(line.startswith("node-2: ") for line in lines)
        assert "kim" in lines[0]
        assert "node-2:6225" in lines[0]

    def test_all_three_one_after_the_other_and_there_are_always_three_voters(self) -> None:
        places = Places()
        for number, place in enumerate([3, 2, 3, 2], start=1):
            places.kill(place)
            places.asking.append(ask_for(place, 70 + number))
            done = places.until(Done)
            assert isinstance(done, Done)
            assert done.node_id == 3 + number
            assert len(places.configuration.voters) == 3
        assert not places.configuration.joint

    def test_nothing_happens_where_nobody_asks(self) -> None:
        places = Places()
        places.kill(2)
        assert places.run(30) == []

    def test_a_proposal_that_raft_refuses_comes_again(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.refuse_proposals = True
        assert len(places.run(4)) > 1
        places.refuse_proposals = False
        assert isinstance(places.until(Done), Done)


class TestTaken:
    def test_not_while_a_link_to_the_present_voter_is_up(self) -> None:
        places = Places()
        assert "not gone: a link is up" in waiting(places.ask(ask_for(2, 77)))
        # It hangs: linked, but silent for long.
        places.processes[Member(2, 2000)].heard_ns = places.now - 60 * S
        assert "not gone: a link is up, heard 60.0 s ago" in waiting(places.ask(ask_for(2, 77)))

    @pytest.mark.parametrize(("ago_ms", "taken"), [(999, False), (1000, True)])
    def test_not_before_it_was_silent_for_a_second(self, ago_ms: int, taken: bool) -> None:
        places = Places()
        process = places.processes[places.kill(2)]
        process.heard_ns = places.now - ago_ms * MS
        answer = places.replacement.ask(ask_for(2, 77), places.facts(), places.now)
        assert ("it is next" in waiting(answer)) is taken
        assert (places.replacement.step(places.facts(), places.now) is not None) is taken

    def test_not_by_a_new_leader_in_its_first_second(self) -> None:
        places = Places()
        places.kill(2)
        places.run(5)
        places.begin_lead(Member(3, 3000))
        places.asking.append(ask_for(2, 77))
        began = places.now
        places.until(ProposeChange, "add")
        assert places.now - began >= 1 * S

    def test_not_by_a_leader_that_is_not_ready(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.ready = False
        assert places.run(10) == []
        assert "just begun" in waiting(places.answers[-1])

    def test_the_leaders_own_place_is_not_taken_by_whoever_comes(self) -> None:
        places = Places()
        places.asking.append(ask_for(1, 77))
        assert places.run(10) == []
        assert "it is the leader itself" in waiting(places.answers[-1])

    def test_the_process_is_told_only_once_its_learner_is_committed(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(ProposeChange, "add")
        assert "being added as 4" in waiting(places.ask(ask_for(2, 77)))
        assert isinstance(places.tick(), Tell)

    def test_whoever_asks_again_is_told_again(self) -> None:
        places = Places()
        places.kill(2)
        ask = ask_for(2, 77)
        places.asking.append(ask)
        places.until(Tell)
        again = places.replacement.ask(ask, places.facts(), places.now)
        assert isinstance(again, JoinTaken)
        assert (again.node_id, again.incarnation, again.domain_id) == (4, 77, "0123456789abcdef")

    def test_an_ask_that_is_not_repeated_is_over(self) -> None:
        places = Places()
        places.ask(ask_for(2, 77))
        places.run(3)
        assert len(places.replacement.views(places.facts(), places.now)) == 1
        places.run(0.1)
        assert places.replacement.views(places.facts(), places.now) == []
        places.kill(2)
        assert places.run(10) == []


class TestAnswers:
    def test_an_unknown_place(self) -> None:
        answer = Places().ask(ask_for(9, 77))
        assert isinstance(answer, JoinAnswer)
        assert answer.verdict is Verdict.DENIED

    def test_the_addresses_of_another_place(self) -> None:
        answer = Places().ask(ask_for(2, 77, host="node-3"))
        assert isinstance(answer, JoinAnswer)
        assert answer.verdict is Verdict.DENIED
        assert "node-3" in answer.text

    def test_two_processes_for_one_place(self) -> None:
        places = Places()
        places.ask(ask_for(2, 77))
        assert "only one of them may run" in waiting(places.ask(ask_for(2, 78)))
        places.run(3.1)
        assert "only one" not in waiting(places.ask(ask_for(2, 78)))

    def test_the_one_that_an_operator_prepared_comes_before_one_that_came_by_itself(self) -> None:
        places = Places()
        places.ask(ask_for(2, 77))
        assert "it is next" in waiting(places.ask(ask_for(2, 78, "cmd-1")))
        assert "only one of them may run" in waiting(places.ask(ask_for(2, 77)))

    def test_a_member_that_does_not_lead_names_the_leader(self) -> None:
        leader = MemberRecord("node-3", 9, 9000, "new:5225", "new:6225", "new:7225")
        answer = not_leading(ask_for(2, 77), leader)
        assert (answer.verdict, answer.incarnation) == (Verdict.NOT_LEADING, 77)
        assert (answer.leader, answer.leader_peer) == ("node-3", "new:6225")
        assert not_leading(ask_for(2, 77), None).leader == ""


class TestOneAtATime:
    def test_two_dead_of_five_are_filled_in_the_order_of_their_asks(self) -> None:
        places = Places(5)
        places.kill(4)
        places.kill(2)
        places.run(2)
        places.asking += [ask_for(4, 77), ask_for(2, 78)]
        places.run(1.2)
        texts = [v.text for v in places.replacement.views(places.facts(), places.now)]
        assert any("node-4 is being filled" in text for text in texts)
        places.until(Done)
        assert places.proposed == ["add", "swap"]
        places.until(Done)
        assert places.proposed == ["add", "swap", "add", "swap"]
        assert [d.place for d in places.done] == ["node-4", "node-2"]

    def test_the_next_begins_only_when_the_new_voter_has_applied_its_configuration(self) -> None:
        places = Places(5)
        places.kill(4)
        places.kill(2)
        places.asking += [ask_for(4, 77), ask_for(2, 78)]
        places.until(Tell)
        places.processes[Member(6, 77)].applies = False
        places.until(ProposeChange, "swap")
        places.run(5)
        assert places.done == []
        assert places.proposed == ["add", "swap"]
        busy = places.replacement.busy(places.facts(), places.now)
        assert busy is not None
        assert "has not applied" in busy
        places.processes[Member(6, 77)].applies = True
        places.until(Done)
        places.until(ProposeChange, "add")

    def test_a_new_voter_that_dies_before_it_applied_does_not_block_its_own_replacement(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(Tell)
        places.processes[Member(4, 77)].applies = False
        places.until(ProposeChange, "swap")
        places.run(0.5)
        places.kill(2)
        places.asking.append(ask_for(2, 78))
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.node_id == 5

    def test_nothing_is_proposed_while_a_change_is_open(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(ProposeChange, "add")
        places.kill(3)  # no majority: the learner's entry cannot be committed
        assert places.run(10) == []

    def test_busy_from_the_add_to_the_end(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        assert places.replacement.busy(places.facts(), places.now) is None
        places.until(ProposeChange, "add")
        while not places.done:
            assert places.replacement.busy(places.facts(), places.now) is not None
            places.tick()
        assert places.replacement.busy(places.facts(), places.now) is None


class TestPromotion:
    def learner(self, places: Places) -> Member:
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(Tell)
        return places.configuration.learners[0]

    def test_only_when_it_has_what_was_committed_one_election_timeout_ago(self) -> None:
        places = Places()
        places.catch_up = 3600 * S
        learner = self.learner(places)
        process = places.processes[learner]
        for _ in range(100):
            process.match = places.commit_index - 17  # 16 ticks of 50 ms make one timeout
            assert places.tick() is None
        process.match = places.commit_index + 1 - 16
        action = places.tick()
        assert isinstance(action, ProposeChange)
        assert action.what == "swap"

    def test_only_when_it_was_heard_since_then(self) -> None:
        places = Places()
        learner = self.learner(places)
        places.run(0.2)
        process = places.processes[learner]
        process.linked = False
        process.match = 10**9
        assert places.run(5) == []
        process.linked = True
        assert isinstance(places.until(ProposeChange, "swap"), ProposeChange)

    def test_a_learner_that_has_all_but_hangs_since_waits(self) -> None:
        places = Places()
        learner = self.learner(places)
        facts = places.facts()
        seen = facts.peers[learner]._replace(match=10**9, answered_ns=places.now, linked=True)
        facts = facts._replace(peers={**facts.peers, learner: seen})
        places.now += 800 * MS
        for _ in range(100):
            places.replacement._history.note(places.now, 100)
            assert places.replacement.step(facts, places.now) is None
            places.now += TICK

    def test_a_learner_that_has_all_but_has_no_link_waits(self) -> None:
        places = Places()
        learner = self.learner(places)
        places.run(0.5)
        process = places.processes[learner]
        process.match = 10**9
        process.linked = False
        for _ in range(40):
            process.heard_ns = process.answered_ns = places.now
            assert places.tick() is None

    def test_a_learner_silent_for_ten_seconds_is_given_up(self) -> None:
        places = Places()
        learner = self.learner(places)
        places.processes[learner].alive = False
        since = places.now
        action = places.until(ProposeChange, "give_up")
        assert 10 * S <= places.now - since <= 10 * S + 2 * TICK
        assert isinstance(action, ProposeChange)
        assert "10 s" in action.audit
        places.run(1)
        assert places.configuration.learners == ()
        assert places.members.removed(learner.node_id)

    def test_another_process_of_the_place_need_not_wait_for_that(self) -> None:
        places = Places()
        learner = self.learner(places)
        places.processes[learner].alive = False
        places.asking.append(ask_for(2, 78))
        since = places.now
        places.until(ProposeChange, "give_up")
        assert places.now - since <= 3 * S
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.node_id == 5

    def test_a_learner_past_the_bound_of_the_log_is_given_up_with_that_reason(self) -> None:
        places = Places()
        learner = self.learner(places)
        places.catch_up = 3600 * S
        places.processes[learner].given_up = True
        action = places.until(ProposeChange, "give_up")
        assert isinstance(action, ProposeChange)
        assert "bound of the log" in action.audit

    def test_a_voter_that_comes_back_keeps_its_place(self) -> None:
        places = Places()
        old = places.voter(2)
        places.catch_up = 3600 * S
        self.learner(places)
        places.processes[old].alive = True
        action = places.until(ProposeChange)
        assert isinstance(action, ProposeChange)
        assert action.what == "give_up"
        assert "heard from again" in action.audit

    def test_an_old_voter_with_a_link_but_silent_is_not_swapped(self) -> None:
        places = Places()
        old = places.voter(2)
        learner = self.learner(places)
        places.processes[learner].match = 10**9
        facts = places.facts()
        peers = dict(facts.peers)
        peers[old] = peers[old]._replace(linked=True)
        for _ in range(60):
            places.now += TICK
            peers[learner] = peers[learner]._replace(heard_ns=places.now)
            assert places.replacement.step(facts._replace(peers=peers), places.now) is None


class TestByAnOperator:
    def test_a_living_voter_is_replaced(self) -> None:
        places = Places()
        old = places.voter(2)
        places.asking.append(ask_for(2, 77, "cmd-1", host="node-2b"))
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.node_id == 4
        assert places.ended[-1].member == old
        new = places.members.by_node_id(4)
        assert new is not None
        assert new.peer == "node-2b:6225"

    def test_a_leader_to_be_replaced_gives_the_lead_away_first(self) -> None:
        places = Places()
        places.processes[Member(2, 2000)].match = 90
        places.processes[Member(3, 3000)].match = 100
        places.asking.append(ask_for(1, 77, "cmd-1"))
        places.ask(places.asking[0])
        action = places.replacement.step(places.facts(), places.now)
        assert isinstance(action, Transfer)
        assert action.target == Member(3, 3000)
        places.begin_lead(action.target)
        assert isinstance(places.until(Done), Done)

    def test_it_gives_it_to_nobody_who_is_not_living_and_not_too_often(self) -> None:
        places = Places()
        places.processes[Member(3, 3000)].match = 10**9
        places.ask(ask_for(1, 77, "cmd-1"))
        facts = places.facts()._replace(leaving=(Member(3, 3000),))
        # A voter that was given leave is as good as lost: nobody else may be swapped meanwhile.
        assert places.replacement.step(facts, places.now) is None
        facts = places.facts()
        first = places.replacement.step(facts, places.now)
        assert isinstance(first, Transfer)
        assert places.replacement.step(facts, places.now + 1 * S) is None
        later = places.now + 2 * S
        peers = {
            member: seen._replace(heard_ns=later, answered_ns=later) for member, seen in facts.peers.items()
        }
        places.ask(ask_for(1, 77, "cmd-1"))
        assert places.replacement.step(facts._replace(peers=peers), places.now + 2 * S) is not None

    def test_a_leader_that_got_the_lead_back_gives_it_away_before_the_swap(self) -> None:
        places = Places()
        places.asking.append(ask_for(1, 77, "cmd-1"))
        places.until(Transfer)
        places.until(Tell)
        places.begin_lead(Member(1, 1000))
        places.until(Transfer)
        assert "swap" not in places.proposed
        done = places.until(Done)
        assert isinstance(done, Done)
        assert places.leader != Member(1, 1000)

    def test_while_another_voter_is_not_heard_from_only_that_one_may_be_swapped(self) -> None:
        places = Places()
        places.kill(3)
        places.run(2)
        places.asking.append(ask_for(2, 77, "cmd-1"))
        assert places.run(5) == []
        assert "node-3 is not heard from: only that place" in waiting(places.answers[-1])
        places.asking.append(ask_for(3, 78))
        first = places.until(Done)
        assert isinstance(first, Done)
        assert first.place == "node-3"
        second = places.until(Done)
        assert isinstance(second, Done)
        assert second.place == "node-2"

    def test_by_a_new_leader_not_before_all_others_have_answered_it(self) -> None:
        places = Places()
        silent = places.processes[Member(3, 3000)]
        silent.hangs = True
        places.run(5)
        places.begin_lead(Member(1, 1000))
        places.asking.append(ask_for(2, 77, "cmd-1"))
        # It was not silent for a second of this lead yet, and it was all the same.
        assert "node-3 is not heard from" in waiting(places.ask(places.asking[0]))
        assert places.run(5) == []
        assert "node-3 is not heard from" in waiting(places.answers[-1])
        silent.hangs = False
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.place == "node-2"

    @pytest.mark.parametrize("hanging", [[Member(6, 77)], [Member(4, 4000), Member(5, 5000)]])
    def test_a_leader_that_stood_still_takes_nobody_for_living_whom_it_has_not_heard_since(
        self, hanging: list[Member]
    ) -> None:
        """The gap in its own loop is taken out of all silences; who died meanwhile looks as if just heard."""
        places = Places(5)
        places.asking.append(ask_for(3, 77, "cmd-1"))
        places.until(Tell)
        learner = Member(6, 77)
        places.run(0.2)
        gone = [places.processes[member] for member in hanging]
        places.processes[learner].match = places.commit_index
        places.now += 1_200 * MS
        for process in places.processes.values():
            process.heard_ns = places.now
        for process in gone:
            process.hangs = True
        assert not [action for action in places.run(0.9) if isinstance(action, ProposeChange)]
        for process in gone:
            process.hangs = False
        assert isinstance(places.until(Done), Done)

    def test_a_voter_lost_meanwhile_holds_the_swap_and_its_own_process_comes_first(self) -> None:
        places = Places()
        places.catch_up = 1 * S
        places.asking.append(ask_for(2, 77, "cmd-1"))
        places.until(Tell)
        places.kill(3)
        assert places.run(6) == []
        assert "only that place" in places.replacement.views(places.facts(), places.now)[0].text
        places.asking.append(ask_for(3, 78))
        action = places.until(ProposeChange)
        assert isinstance(action, ProposeChange)
        assert (action.what, action.place) == ("give_up", "node-2")
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.place == "node-3"

    def test_a_voter_that_hangs_is_the_one_not_heard_from_and_may_be_swapped(self) -> None:
        places = Places()
        hanging = places.processes[Member(2, 2000)]
        hanging.alive = False
        facts_of = places.facts

        def linked_but_silent() -> object:
            facts = facts_of()
            peers = dict(facts.peers)
            if Member(2, 2000) in peers:
                peers[Member(2, 2000)] = peers[Member(2, 2000)]._replace(linked=True)
            return facts._replace(peers=peers)

        places.facts = linked_but_silent  # type: ignore[assignment,method-assign]
        places.run(2)
        places.asking.append(ask_for(2, 77, "cmd-1"))
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.node_id == 4

    def test_a_command_that_was_used_throws_out_no_second_voter(self) -> None:
        places = Places()
        places.asking.append(ask_for(2, 77, "cmd-1"))
        places.until(Done)
        places.asking.append(ask_for(2, 78, "cmd-1"))
        assert places.run(10) == []
        assert "not gone" in waiting(places.answers[-1])

    def test_undone_while_it_waits(self) -> None:
        places = Places()
        places.kill(3)
        places.run(2)
        ask = ask_for(2, 77, "cmd-1")
        places.ask(ask)
        proposal = places.replacement.undo("node-2", "kim", "x" * 1000, places.facts())
        assert isinstance(proposal, ProposeChange)
        assert proposal.change.configuration == places.configuration
        places.members.apply(proposal.change)
        answer = places.ask(ask)
        assert isinstance(answer, JoinAnswer)
        assert answer.verdict is Verdict.UNDONE

    def test_undone_as_a_learner(self) -> None:
        places = Places()
        places.asking.append(ask_for(2, 77, "cmd-1"))
        places.until(Tell)
        proposal = places.replacement.undo("node-2", "kim", "wrong host", places.facts())
        assert isinstance(proposal, ProposeChange)
        places._carry_out(proposal)
        places.run(1)
        assert places.configuration.learners == ()
        assert places.members.removed(4)
        answer = places.ask(ask_for(2, 78, "cmd-1"))
        assert isinstance(answer, JoinAnswer)
        assert answer.verdict is Verdict.UNDONE
        assert "kim" in proposal.audit

    def test_not_undone_once_the_swap_is_proposed(self) -> None:
        places = Places()
        places.asking.append(ask_for(2, 77, "cmd-1"))
        places.until(ProposeChange, "swap")
        refusal = places.replacement.undo("node-2", "kim", "too late", places.facts())
        assert isinstance(refusal, str)
        assert "no longer" in refusal

    def test_what_is_not_under_way_or_came_by_itself_is_not_undone(self) -> None:
        places = Places()
        assert (
            places.replacement.undo("node-2", "kim", "", places.facts()) == "nothing is under way for node-2"
        )
        places.ask(ask_for(2, 77))
        assert "by itself" in str(places.replacement.undo("node-2", "kim", "", places.facts()))


class TestTheLeaderDies:
    @pytest.mark.parametrize("count", [3, 5])
    @pytest.mark.parametrize("operator", [False, True])
    @pytest.mark.parametrize("after", range(12))
    def test_after_any_action_another_goes_on_to_the_same_end(
        self, count: int, operator: bool, after: int
    ) -> None:
        """The lead is lost right after the action (its process lives, so a majority of three remains)."""
        places = Places(count)
        if not operator:
            places.kill(2)
        places.asking.append(ask_for(2, 77, "cmd-1" if operator else ""))
        seen = 0
        while not places.done:
            assert places.now < 60 * S
            if places.tick() is not None:
                seen += 1
                if seen - 1 == after:
                    assert places.elect()
        assert places.voter(2) == Member(count + 1, 77)
        assert len(places.configuration.voters) == count
        assert not places.configuration.joint
        assert places.proposed == ["add", "swap"]

    @pytest.mark.parametrize("what", ["add", "swap"])
    def test_an_entry_lost_with_its_leader_is_proposed_anew_by_the_next(self, what: str) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(ProposeChange, what)
        lost = places.log.pop()
        before = places.log[-1].change.configuration if places.log else None
        # The entry was never committed and is truncated: its configuration is in force no longer.
        places.configuration = before or Places().configuration
        places.committed = True
        assert places.elect()
        done = places.until(Done)
        assert isinstance(done, Done)
        assert done.node_id == lost.node_id

    @pytest.mark.parametrize("after", range(3))
    def test_the_leaders_process_dies_with_it_and_is_replaced_in_turn(self, after: int) -> None:
        places = Places(5)
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        seen = 0
        killed = False
        while len(places.done) < 2:
            assert places.now < 90 * S
            if places.tick() is not None:
                seen += 1
                if seen - 1 == after and not killed:
                    killed = True
                    places.kill(1)
                    assert places.elect()
                    places.asking.append(ask_for(1, 88))
        assert sorted(d.place for d in places.done) == ["node-1", "node-2"]
        assert all(places.processes[m].alive for m in places.configuration.voters)

    def test_a_learner_that_came_to_lead_hands_the_lead_to_a_voter(self) -> None:
        """Its log may be the only one that can win an election (spec 9, Identity)."""
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(Tell)
        places.begin_lead(places.configuration.learners[0])
        places.processes[Member(2, 2000)].match = 10**9  # as far as any, but dead
        action = places.until(Transfer)
        assert isinstance(action, Transfer)
        assert action.target in (Member(1, 1000), Member(3, 3000))
        assert isinstance(places.until(Done), Done)

    def test_a_leader_that_only_finds_it_complete_says_so(self) -> None:
        places = Places()
        places.kill(2)
        places.asking.append(ask_for(2, 77))
        places.until(Done)
        places.elect()
        again = places.until(Done)
        assert isinstance(again, Done)
        assert not again.witnessed


class TestViews:
    def test_the_stages_in_order(self) -> None:
        places = Places()
        places.asking.append(ask_for(2, 77))
        places.run(2)
        places.kill(2)
        stages: list[str] = []
        while not places.done:
            action = places.tick()
            if isinstance(action, ProposeChange) and action.what == "swap":
                # The new voter takes its time to apply.
                places.processes[Member(4, 77)].applies = False
            if stages[-1:] == ["completing"]:
                places.processes[Member(4, 77)].applies = True
            for view in places.replacement.views(places.facts(), places.now):
                assert view.place == "node-2"
                if view.stage not in stages:
                    stages.append(view.stage)
        assert stages == ["waiting", "joining", "catching_up", "swapping", "completing"]
        assert places.replacement.views(places.facts(), places.now) == []


class TestCommitHistory:
    def test_the_index_that_stood_then(self) -> None:
        history = CommitHistory(800 * MS)
        for step in range(40):
            history.note(step * 50 * MS, step)
        assert history.stood(39 * 50 * MS) == (23 * 50 * MS, 23)

    def test_none_before_it_is_known(self) -> None:
        history = CommitHistory(800 * MS)
        assert history.stood(0) is None
        history.note(0, 5)
        assert history.stood(799 * MS) is None
        assert history.stood(800 * MS) == (0, 5)

    def test_none_where_nothing_was_noted_for_long(self) -> None:
        history = CommitHistory(800 * MS)
        history.note(0, 5)
        assert history.stood(1000 * MS) == (0, 5)
        assert history.stood(1001 * MS) is None

    def test_its_size_is_bounded_however_often_it_is_told(self) -> None:
        history = CommitHistory(800 * MS)
        for step in range(10_000):
            history.note(step * MS, step)
        assert len(history._samples) <= 34
