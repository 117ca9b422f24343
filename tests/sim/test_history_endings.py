"""What the checker says of releases, extensions and cancels: good histories and bad ones."""

from __future__ import annotations

import pytest

from tests.sim.history import LOST
from tests.sim.story import Story, ns_at
from tests.sim.world import Violation


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("op", ["R", "X"])
def test_the_token_of_another_key_ends_nothing(story: Story, op: str) -> None:
    story.granted(story.asks(0, key=b"other"), 0.1, 7)
    story.answered(story.asks(0, session=2), 0.1, LOST)
    story.forges(op, 7, 0.5, "N")
    story.history.check()
    story.forges(op, 7, 0.7, op)
    story.breaks(f"{op} of what was never held")


def test_a_token_that_nobody_was_told_of_is_one_whose_answer_was_lost(story: Story) -> None:
    lost = story.answered(story.asks(0), 0.1, LOST)
    story.forges("R", 7, 0.5, "R")
    story.granted(story.asks(1), 1.1, 8)
    story.history.check()
    lost.answer = "T"
    lost.answered_ns = ns_at(6)
    story.breaks("R of what was never held")


def test_a_token_that_was_released_before_lower_ones_were_asked_for_is_found(story: Story) -> None:
    story.answered(story.asks(0), 0.1, LOST)
    story.forges("R", 1 << 61, 0.5, "R")
    story.granted(story.asks(1), 1.1, 8)
    story.breaks("tokens rise")


def test_an_extension_of_what_was_released_is_found(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 0.5, "R")
    story.says("X", hold, 1.0, "X")
    story.breaks("X after its release")


def test_endings_are_judged_beyond_the_promised_rates_as_well(story: Story) -> None:
    hold = story.granted(story.asks(0, lease=1), 0.1, 7)
    story.says("R", hold, 0.5, "R")
    story.says("R", hold, 0.7, "R")
    with pytest.raises(Violation, match="R twice"):
        story.history.check(rates_hold=False)


def test_whose_lease_has_not_ended_is_not_judged_beyond_the_promised_rates(story: Story) -> None:
    story.says("R", story.granted(story.asks(0), 0.1, 7), 1.0, "N")
    story.history.check(rates_hold=False)


def test_a_cancel_of_what_was_refused_finds_nothing(story: Story) -> None:
    refused = story.answered(story.asks(0), 0.1, "V")
    story.cancels(refused, 0.5, "N")
    story.history.check()
    story.cancels(refused, 0.7, "R")
    story.breaks("R of what was never held")


def test_a_cancel_that_finds_nothing_although_its_owner_holds_is_found(story: Story) -> None:
    request = story.asks(0)
    story.granted(request, 0.1, 7)
    story.cancels(request, 0.5, "N", session=2)
    story.breaks("N although held")


def test_a_cancel_after_the_release_finds_nothing(story: Story) -> None:
    hold = story.granted(story.asks(0), 0.1, 7)
    story.says("R", hold, 0.3, "R")
    cancel = story.cancels(hold.request, 0.5, "N")
    story.history.check()
    cancel.answer = "R"
    story.breaks("R twice")


def test_a_cancel_that_ends_what_was_over_before_the_next_grant_is_found(story: Story) -> None:
    first = story.granted(story.asks(0, lease=1), 0.1, 7)
    story.granted(story.asks(0.2, session=2), 1.2, 8)
    story.cancels(first.request, 1.5, "R", session=3)
    story.breaks("R after the next grant")


def test_two_cancels_of_one_owner_that_both_find_it_one_after_the_other_are_found(story: Story) -> None:
    lost = story.answered(story.asks(0), 0.1, LOST)
    story.cancels(lost, 0.5, "R")
    story.cancels(lost, 0.7, "R")
    story.breaks("R twice")


def test_a_cancel_that_takes_a_request_out_does_not_say_that_there_was_none(story: Story) -> None:
    request = story.asks(0)
    cancel = story.cancels(request, 0.5, "R")
    story.answered(request, 0.6, "R")
    story.history.check()
    cancel.answer = "N"
    story.breaks("N although it waits")
