"""The checker itself: histories made by hand, good ones and one bad one for each rule."""

from __future__ import annotations

import pytest

from tests.sim.history import LOST, Hold, Request
from tests.sim.story import KEY, NODE, T0, Story, ns_at
from tests.sim.world import S


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_hand_over_is_a_good_history(story: Story) -> None:
    first = story.granted(story.asks(0), 0.1, 7)
    waiting = story.asks(0.2, session=2)
    story.says("R", first, 1.0, "R")
    second = story.granted(waiting, 1.1, 8, waited_ms=800)
    story.says("X", second, 2.0, "X")
    story.says("R", second, 3.0, "R")
    story.says("R", second, 3.5, "N")
    story.history.check()


def test_a_lease_that_ran_out_makes_room_for_the_next(story: Story) -> None:
    story.granted(story.asks(0, lease=1), 0.1, 7)
    story.granted(story.asks(0.2), 1.1, 8, waited_ms=800)
    story.history.check()


def test_two_holders_at_once_are_found(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 0.4, 8)
    story.breaks("one holder")


def test_an_extension_that_reaches_into_the_next_hold_is_found(story: Story) -> None:
    first = story.granted(story.asks(0, lease=1), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 1.2, 8)
    first.until_ns = ns_at(2)
    story.breaks("one holder")


def test_a_token_given_twice_is_found(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(0.2, key=b"other"), 0.4, 7)
    story.breaks("a token once")


def test_a_token_that_falls_is_found_even_between_keys(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 8)
    story.granted(story.asks(0.2, key=b"other"), 0.4, 7)
    story.breaks("tokens rise")


def test_tokens_of_requests_under_way_together_have_no_order(story: Story) -> None:
    one, other = story.asks(0), story.asks(0.01, key=b"other")
    story.granted(one, 0.1, 8)
    story.granted(other, 0.1, 7)
    story.history.check()


def test_a_wait_longer_than_what_passed_is_found(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7, waited_ms=110)
    story.breaks("waited")


def test_a_timeout_before_the_wait_was_over_is_found(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.answered(story.asks(1, wait=2), 2.5, "T")
    story.breaks("T too early")


def test_a_cancelled_request_times_out_at_once(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    request = story.asks(1, wait=2)
    cancel = Request("C", KEY, request.ident, 1, ns_at(1.1))
    story.history.add(cancel)
    story.answered(request, 1.2, "T")
    story.answered(cancel, 1.2, "R")
    story.history.check()


def test_a_refusal_for_want_of_room_where_there_is_room_is_found(story: Story) -> None:
    story.answered(story.asks(0), 0.1, "B")
    story.breaks("B without a bound")
    story.history.bounds_are_wide = False
    story.history.check()


def test_not_free_while_nobody_can_have_it_is_found(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.history.requests.remove(hold.request)
    story.answered(story.asks(1, wait=0), 1.1, "T")
    story.breaks("T without a holder")


def test_a_release_that_found_nothing_although_held_is_found(story: Story) -> None:
    story.says("R", story.granted(story.asks(0), 0.1, 7), 1.0, "N")
    story.breaks("N although held")


def test_an_extension_refused_although_held_is_found(story: Story) -> None:
    story.says("X", story.granted(story.asks(0), 0.1, 7), 1.0, "N")
    story.breaks("N although held")


def test_a_release_after_the_lease_may_find_nothing(story: Story) -> None:
    story.says("R", story.granted(story.asks(0, lease=1), 0.1, 7), 1.5, "N")
    story.history.check()


def test_two_releases_of_one_token_that_both_succeed_are_found(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 1.0, "R")
    story.says("R", hold, 2.0, "R")
    story.breaks("R twice")


@pytest.mark.parametrize("op", ["R", "X"])
def test_an_ownership_that_is_alive_after_the_next_one_began_is_found(story: Story, op: str) -> None:
    first = story.granted(story.asks(0, lease=1), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 1.2, 8)
    story.says(op, first, 1.5, op)
    story.breaks(f"{op} after the next grant")


def test_a_queue_jumper_on_one_session_is_found(story: Story) -> None:
    earlier, later = story.asks(0), story.asks(0.01)
    hold = story.granted(later, 0.1, 7)
    story.says("R", hold, 0.2, "R")
    story.granted(earlier, 0.3, 8)
    story.breaks("first come, first served")


def test_a_queue_jumper_on_another_session_is_found_once_the_earlier_was_surely_read(story: Story) -> None:
    earlier = story.asks(0)
    story.answered(story.asks(0.01, wait=0, key=b"other"), 0.05, "T")
    story.asks(0, wait=0, key=b"other")
    hold = story.granted(story.asks(0.1, session=2), 0.2, 7)
    story.says("R", hold, 0.3, "R")
    story.granted(earlier, 0.4, 8)
    story.breaks("first come, first served")


def test_who_came_first_to_different_sessions_is_not_known(story: Story) -> None:
    earlier = story.asks(0)
    hold = story.granted(story.asks(0.01, session=2), 0.2, 7)
    story.says("R", hold, 0.3, "R")
    story.granted(earlier, 0.4, 8)
    story.history.check()


def test_what_was_written_behind_an_answered_request_at_the_same_moment_may_be_read_later(
    story: Story,
) -> None:
    story.asks(0, wait=0, key=b"other", session=2)
    first = story.asks(0, wait=0, key=b"other")
    earlier = story.asks(0)
    story.answered(first, 0.05, "T")
    hold = story.granted(story.asks(0.1, session=2), 0.2, 7)
    story.says("R", hold, 0.3, "R")
    story.granted(earlier, 0.4, 8)
    story.history.check()


def test_of_two_requests_written_at_the_same_moment_the_one_in_front_comes_first(story: Story) -> None:
    front = story.asks(0)
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 0.2, "R")
    story.granted(front, 0.3, 8)
    story.breaks("first come, first served")


def test_a_dropped_queue_is_no_queue(story: Story) -> None:
    earlier = story.asks(0)
    hold = story.granted(story.asks(0.01), 0.1, 7)
    story.says("R", hold, 0.2, "R")
    story.granted(earlier, 0.3, 8)
    story.history.ended_sessions[1] = ns_at(0.3)
    story.history.check()
    story.history.ended_sessions[1] = ns_at(0.4)
    story.breaks("first come, first served")


def test_a_wait_of_nothing_comes_before_what_is_asked_later(story: Story) -> None:
    once = story.asks(0, wait=0)
    hold = story.granted(story.asks(0.01), 0.1, 7)
    story.says("R", hold, 0.2, "R")
    story.granted(once, 0.3, 8)
    story.breaks("first come, first served")


def test_what_an_operator_has_ended_is_held_no_more(story: Story) -> None:
    first = story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 1.1, 8)
    story.says("R", first, 2.0, "N")
    story.history.revoked[7] = ns_at(1.0)
    story.history.check()
    story.history.revoked[7] = ns_at(1.2)
    story.breaks("one holder")


def test_tickets_of_a_former_domain_end_when_the_next_one_has_formed(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=250), 0.1, 7)
    story.history.domains = [(1, T0), (100, ns_at(5))]
    story.says("R", hold, 6.0, "N")
    story.history.check()
    story.history.domains = [(1, T0), (100, ns_at(6.5))]
    story.breaks("N although held")


def test_a_cancelled_owner_gets_nothing_until_the_next_domain_has_formed(story: Story) -> None:
    request = story.asks(0, lease=1)
    cancel = Request("C", KEY, request.ident, 2, ns_at(0.5))
    story.history.add(cancel)
    story.answered(cancel, 0.6, "N")
    copy = Request("Q", KEY, request.ident, 3, ns_at(6.0), wait=1, lease=1)
    story.history.add(copy)
    story.granted(copy, 6.1, 100)
    story.breaks("a cancelled owner gets nothing")
    story.history.domains = [(1, T0), (100, ns_at(5))]
    story.history.check()


def test_a_domain_that_knows_a_former_ones_tickets_is_found(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=250), 0.1, 7)
    story.history.domains = [(1, T0), (100, ns_at(5))]
    story.says("R", hold, 6.0, "R")
    story.breaks("a ticket of a former domain")


def test_a_new_domain_waits_for_the_leases_of_the_former_one_unless_told_otherwise(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(6, session=2), 6.1, 100)
    story.history.domains = [(1, T0), (100, ns_at(5))]
    story.breaks("one holder")
    story.history.apart = True
    story.history.check()


def test_a_request_asked_again_may_get_the_token_of_its_first_copy(story: Story) -> None:
    first = story.asks(0)
    other = story.granted(story.asks(1, session=2, key=b"other"), 1.1, 8)
    copy = Request(first.op, first.key, first.ident, 3, ns_at(2), wait=5, lease=first.lease)
    copy.first_ns = first.sent_ns
    story.history.add(copy)
    hold = story.granted(copy, 2.1, 7)
    assert other.token > hold.token
    story.history.check()
    copy.first_ns = copy.sent_ns
    story.breaks("tokens rise")


def test_a_former_leader_may_call_a_key_taken_for_as_long_as_it_may_not_know_better(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 0.5, "R")
    story.answered(story.asks(1.8, wait=0), 1.9, "T")
    hold.request.answered_ns = ns_at(0.1)
    story.history.check()
    story.history.stale_ns = 1 * S
    story.breaks("T without a holder")


# --- tokens in the order of true time


def test_tokens_of_one_key_rise_though_their_requests_were_under_way_together(story: Story) -> None:
    one, other = story.asks(0, session=1), story.asks(0, session=2)
    hold = story.granted(one, 0.1, 8)
    story.says("R", hold, 0.2, "R")
    story.granted(other, 0.3, 7)
    story.breaks("tokens rise")


def test_a_grant_that_was_read_when_it_was_over_says_nothing_of_order(story: Story) -> None:
    late, other = story.asks(0, session=1, lease=1), story.asks(0, session=2)
    story.granted(other, 1.2, 8)
    story.granted(late, 1.3, 7)
    story.history.check()


# --- waits and refusals


def test_a_grant_whose_lease_ran_out_before_its_answer_is_answered_T(story: Story) -> None:  # noqa: N802
    story.answered(story.asks(0, wait=5, lease=1), 1.1, "T")
    story.history.check()


def test_a_lease_cannot_have_run_out_meanwhile_where_others_held_the_key(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.answered(story.asks(0.2, wait=5, lease=1), 1.4, "T")
    story.breaks("T too early")


def test_a_copy_waits_for_what_is_left_of_the_wait(story: Story) -> None:
    first = story.answered(story.asks(0, wait=5), 2, LOST)
    story.granted(story.asks(0, session=4, lease=20), 0.1, 7)
    copy = Request(first.op, first.key, first.ident, 3, ns_at(3), wait=2, lease=first.lease)
    copy.first_ns = first.sent_ns
    story.history.add(copy)
    story.answered(copy, 5.1, "T")
    story.history.check()
    copy.answered_ns = ns_at(4.5)
    story.breaks("T too early")


def test_a_request_that_cannot_wait_is_refused_for_want_of_proven_clocks_only(story: Story) -> None:
    story.served(0, 5)
    story.served(5.1, 6, gate=False)
    refused = story.answered(story.asks(5.5, wait=0), 5.6, "B")
    story.history.check()
    refused.sent_ns, refused.answered_ns = ns_at(3), ns_at(3.1)
    story.breaks("B without a bound")


def test_an_A_is_refused_where_nobody_leads(story: Story) -> None:  # noqa: N802
    story.served(0, 5)
    story.answered(story.asks(6, op="A"), 6.1, "B")
    story.history.check()
    story.answered(story.asks(3, op="A"), 3.1, "B")
    story.breaks("B without a bound")


def _passed_over(story: Story) -> tuple[Request, Hold]:
    waits = story.asks(0, wait=5)
    hold = story.granted(story.asks(1, session=2), 1.1, 8)
    story.answered(waits, 5.1, "T")
    story.history.nodes = {1: NODE, 2: NODE}
    return waits, hold


def test_who_was_passed_over_is_found(story: Story) -> None:
    waits, hold = _passed_over(story)
    story.history.check()  # which of the two was read first nobody knows
    story.history.read_upto[1].insert(0, (ns_at(0.5), waits.order))
    story.breaks("nobody is passed over")
    story.history.nodes[2] = "node-2:5225"
    story.history.check()
    story.history.nodes[2] = NODE
    hold.from_ns = ns_at(5.1)
    story.history.check()


def test_who_was_passed_over_on_its_own_session_is_found(story: Story) -> None:
    _waits, hold = _passed_over(story)
    hold.request.session = 1
    story.breaks("nobody is passed over")


# --- leases end


def test_a_lease_that_is_over_is_no_holder_once_somebody_has_served_for_long_enough(story: Story) -> None:
    story.granted(story.asks(0, lease=1), 0.1, 7)
    story.answered(story.asks(6, wait=0, session=2), 6.1, "T")
    story.served(0, 2)
    story.history.check()  # nobody can have ended it
    story.served(2.5, 6.5, lead=2, ends=False)
    story.history.check()
    story.served(2.5, 6.5, lead=3)
    story.breaks("T without a holder")


def test_an_extension_that_may_have_been_read_keeps_the_key(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=1), 0.1, 7)
    extension = Request("X", KEY, hold.token, 1, ns_at(0.5), lease=10)
    story.history.add(extension)
    story.answered(extension, 0.6, LOST)
    story.answered(story.asks(6, wait=0, session=2), 6.1, "T")
    story.served(0, 10)
    story.history.check()
    story.history.requests.remove(extension)
    story.breaks("T without a holder")


def test_who_waits_behind_a_lease_that_is_over_is_served(story: Story) -> None:
    story.answered(story.asks(0, wait=0, lease=1), 0.1, LOST)
    for session in (2, 3):
        story.answered(story.asks(1, wait=9, session=session), 10.1, "T")
    story.served(0, 2.5)
    story.served(2.5, 11, gate=False)
    story.history.check()
    story.served(4.1, 11, node="node-2:5225")
    story.history.check()
    story.served(4.1, 11)
    story.breaks("nobody waits behind a lease that is over")


def test_a_leader_that_leads_on_is_none_that_others_have_left(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 0.5, "R")
    story.answered(story.asks(1.2, wait=0, session=2), 1.3, "T")
    story.served(0, 2)
    story.history.check()
    story.served(2, 2.5)
    story.breaks("T without a holder")


def test_what_a_later_leader_was_brought_late_ends_late(story: Story) -> None:
    story.granted(story.asks(0, lease=1), 0.1, 7)
    story.answered(story.asks(3.0, wait=0, session=2), 3.1, "T")
    story.served(0, 0.5)
    story.served(1.2, 9, lead=2)
    story.history.check()
    story.history.serving = None
    story.served(0, 9)
    story.breaks("T without a holder")
