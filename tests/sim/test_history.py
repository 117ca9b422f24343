"""The checker itself: histories made by hand, good ones and one bad one for each rule."""

from __future__ import annotations

import pytest

from tests.sim.history import History, Hold, Request
from tests.sim.world import MS, S, Violation

KEY = b"seat"
T0 = 100 * S


class Story:
    """A history told in seconds after its beginning."""

    def __init__(self) -> None:
        self.history = History()
        self._owner = 1 << 63

    def asks(
        self, at: float, *, wait: int = 5, lease: int = 10, session: int = 1, key: bytes = KEY, op: str = "Q"
    ) -> Request:
        self._owner += 1
        request = Request(op, key, self._owner, session, _ns(at), wait=wait, lease=lease)
        self.history.add(request)
        return request

    def answered(self, request: Request, at: float, answer: str) -> Request:
        request.answer, request.answered_ns = answer, _ns(at)
        self.history.was_read(request, _ns(at))
        return request

    def granted(self, request: Request, at: float, token: int, *, waited_ms: int = 0) -> Hold:
        self.answered(request, at, "G")
        request.token, request.waited_ms = token, waited_ms
        hold = Hold(request, token, _ns(at), request.sent_ns + request.lease * S * 998 // 1000)
        self.history.holds.append(hold)
        return hold

    def says(self, op: str, hold: Hold, at: float, answer: str, took: float = 0.1) -> Request:
        ident = hold.request.ident if op == "C" else hold.token
        request = Request(op, hold.key, ident, hold.request.session, _ns(at))
        if op in "RC" and hold.released_ns is None:
            hold.released_ns = _ns(at)
        self.history.add(request)
        return self.answered(request, at + took, answer)

    def breaks(self, rule: str) -> None:
        with pytest.raises(Violation) as caught:
            self.history.check()
        assert caught.value.rule == rule


def _ns(at: float) -> int:
    return T0 + int(at * S)


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
    first.until_ns = _ns(2)
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
    cancel = Request("C", KEY, request.ident, 1, _ns(1.1))
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
    story.says("R", hold, 0.5, "R")
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
    story.history.ended_sessions[1] = 500 * MS
    story.history.check()


def test_what_an_operator_has_ended_is_held_no_more(story: Story) -> None:
    first = story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 1.1, 8)
    story.says("R", first, 2.0, "N")
    story.history.revoked[7] = _ns(1.0)
    story.history.check()
    story.history.revoked[7] = _ns(1.2)
    story.breaks("one holder")


def test_tickets_of_a_former_domain_end_when_the_next_one_has_formed(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=250), 0.1, 7)
    story.history.domains = [(1, T0), (100, _ns(5))]
    story.says("R", hold, 6.0, "N")
    story.history.check()
    story.history.domains = [(1, T0), (100, _ns(6.5))]
    story.breaks("N although held")


def test_a_cancelled_owner_gets_nothing_until_the_next_domain_has_formed(story: Story) -> None:
    request = story.asks(0, lease=1)
    cancel = Request("C", KEY, request.ident, 2, _ns(0.5))
    story.history.add(cancel)
    story.answered(cancel, 0.6, "N")
    copy = Request("Q", KEY, request.ident, 3, _ns(6.0), wait=1, lease=1)
    story.history.add(copy)
    story.granted(copy, 6.1, 100)
    story.breaks("a cancelled owner gets nothing")
    story.history.domains = [(1, T0), (100, _ns(5))]
    story.history.check()


def test_a_domain_that_knows_a_former_ones_tickets_is_found(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=250), 0.1, 7)
    story.history.domains = [(1, T0), (100, _ns(5))]
    story.says("R", hold, 6.0, "R")
    story.breaks("a ticket of a former domain")


def test_a_new_domain_waits_for_the_leases_of_the_former_one_unless_told_otherwise(story: Story) -> None:
    story.granted(story.asks(0), 0.1, 7)
    story.granted(story.asks(6, session=2), 6.1, 100)
    story.history.domains = [(1, T0), (100, _ns(5))]
    story.breaks("one holder")
    story.history.apart = True
    story.history.check()


def test_a_request_asked_again_may_get_the_token_of_its_first_copy(story: Story) -> None:
    first = story.asks(0)
    other = story.granted(story.asks(1, session=2, key=b"other"), 1.1, 8)
    copy = Request(first.op, first.key, first.ident, 3, _ns(2), wait=5, lease=first.lease)
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
    hold.request.answered_ns = _ns(0.1)
    story.history.check()
    story.history.stale_ns = 1 * S
    story.breaks("T without a holder")
