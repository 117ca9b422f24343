from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.cli.lease_watch import Act, LeaseWatch


class Timeline:
    """A command that never ends by itself, under a lease that counts down; virtual time."""

    def __init__(
        self, lease_s: float, grace_s: float, *, extend: bool = False, leave_alone: bool = False
    ) -> None:
        self.watch = LeaseWatch(lease_s=lease_s, grace_s=grace_s, extend=extend, leave_alone=leave_alone)
        self.lease_s = lease_s
        self.now_s = 1000.0
        self.end_s = self.now_s + lease_s
        self.acts: list[tuple[Act, float]] = []
        self.lost = False
        self.extends = False

    def run_until(self, now_s: float) -> None:
        while self.now_s < now_s:
            step = self.watch.step(self.now_s, self.end_s - self.now_s, lost=self.lost)
            assert step.wait_s > 0 or step.act is Act.TERM
            if step.act is not Act.NOTHING and (step.act is not Act.KILL or Act.KILL not in self.done()):
                self.acts.append((step.act, round(self.end_s - self.now_s, 6)))
            if step.act is Act.EXTEND and self.extends:
                self.end_s = self.now_s + self.lease_s
            self.now_s += max(step.wait_s, 0.0001)

    def done(self) -> list[Act]:
        return [act for act, _ in self.acts]


def test_term_comes_a_grace_before_kill_and_kill_before_the_end() -> None:
    line = Timeline(30, 5)
    line.run_until(line.end_s)
    (term, term_left), (kill, kill_left) = line.acts
    assert (term, kill) == (Act.TERM, Act.KILL)
    assert term_left == pytest.approx(5.2, abs=0.01)
    assert kill_left == pytest.approx(0.2, abs=0.01)
    assert line.watch.ran_out


@given(st.floats(1, 250), st.floats(0, 1))
def test_kill_always_lands_before_the_end(lease_s: float, share: float) -> None:
    grace_s = share * lease_s * 0.9
    line = Timeline(lease_s, grace_s)
    line.run_until(line.end_s + 1)
    left = dict(line.acts)
    assert 0 < left[Act.KILL] <= left[Act.TERM]
    assert left[Act.TERM] - left[Act.KILL] >= grace_s - 0.002


def test_an_extension_is_asked_for_when_a_third_has_passed_and_nothing_is_killed_while_they_succeed() -> None:
    line = Timeline(30, 5, extend=True)
    line.extends = True
    line.run_until(line.now_s + 95)
    assert set(line.done()) == {Act.EXTEND}
    assert [round(left) for _, left in line.acts] == [20] * 9


def test_extensions_that_fail_are_tried_again_until_the_signals_are_due() -> None:
    line = Timeline(30, 5, extend=True)
    line.run_until(line.end_s)
    assert line.done()[-2:] == [Act.TERM, Act.KILL]
    assert 13 <= line.done().count(Act.EXTEND) <= 16


def test_a_lost_lock_ends_the_command_at_once() -> None:
    line = Timeline(30, 5)
    line.run_until(line.now_s + 3)
    assert line.acts == []
    line.lost = True
    line.run_until(line.now_s + 6)
    (term, term_left), (kill, kill_left) = line.acts
    assert (term, kill) == (Act.TERM, Act.KILL)
    assert term_left == pytest.approx(27, abs=0.3)
    assert kill_left == pytest.approx(22, abs=0.3)


def test_after_a_suspend_beyond_the_end_kill_follows_term_immediately() -> None:
    line = Timeline(30, 5)
    line.run_until(line.now_s + 1)
    line.now_s = line.end_s + 10
    line.run_until(line.now_s + 0.1)
    assert line.done() == [Act.TERM, Act.KILL]


def test_left_alone_it_is_only_told_once_and_only_after_the_end() -> None:
    line = Timeline(30, 5, leave_alone=True)
    line.run_until(line.end_s - 0.3)
    assert line.acts == []
    assert not line.watch.ran_out
    line.run_until(line.end_s + 5)
    assert line.done() == [Act.WARN]
    assert line.watch.ran_out


def test_what_a_stop_left_behind_gets_the_grace_and_is_no_lease_that_ran_out() -> None:
    watch = LeaseWatch(lease_s=30, grace_s=2, extend=False, leave_alone=False)
    watch.end_now(10.0)
    assert watch.step(11.9, 20.0, lost=False).act is Act.NOTHING
    assert watch.step(12.0, 20.0, lost=False).act is Act.KILL
    assert not watch.ran_out
