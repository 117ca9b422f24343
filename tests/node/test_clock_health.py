"""The clock gate and what stands behind it."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.node.clocks import Machine, S, exchange
from ticketing.node import clock_messages
from ticketing.node.clock_health import PEERS_MAX, ClockHealth, ClocksApartError, read_together
from ticketing.node.clock_messages import ClockProbe, ClockReply
from ticketing.node.peer_clock import READING_ERROR_NS, RHO_PPB, PeerClock
from ticketing.raft.types import MS, Member

# A peer's wall clock is disciplined, an elapsed clock is not; together they stay within the 1 ms a second
# of widening.
elapsed_rates = st.integers(-900_000, 900_000)
wall_rates = st.integers(-100_000, 100_000)
delays = st.integers(0, 124 * MS)


def cluster(*offsets_ms: int) -> list[Machine]:
    return [Machine(number + 1, wall_offset=ms * MS) for number, ms in enumerate(offsets_ms)]


def measure_all(machines: list[Machine], true: int) -> None:
    for a in machines:
        for b in machines:
            if a is not b:
                assert exchange(a, b, true) is None


def report_all(machines: list[Machine], true: int) -> None:
    """Everybody tells everybody its own verdict."""
    voters = [m.member for m in machines]
    for a in machines:
        inside = a.health.gate(*a.clocks(true), a.member, voters)
        for b in machines:
            b.health.peer_reported(a.life, inside, b.elapsed(true))


def gate(machine: Machine, machines: list[Machine], true: int) -> bool:
    return machine.health.gate(*machine.clocks(true), machine.member, [m.member for m in machines])


class TestSample:
    @settings(max_examples=200)
    @given(
        own=st.tuples(elapsed_rates, st.integers(-(10**12), 10**12)),
        peer=st.tuples(elapsed_rates, wall_rates, st.integers(-(10**12), 10**12)),
        out=delays,
        takes=st.integers(0, 2 * S),
        back=delays,
        age=st.integers(0, 700 * MS),
        step=st.integers(-(10**11), 10**11),
    )
    def test_the_true_difference_lies_in_the_interval(
        self,
        own: tuple[int, int],
        peer: tuple[int, int, int],
        out: int,
        takes: int,
        back: int,
        age: int,
        step: int,
    ) -> None:
        a = Machine(1, elapsed_ppb=own[0], wall_offset=own[1])
        b = Machine(2, elapsed_ppb=peer[0], wall_ppb=peer[1], wall_offset=peer[2])
        begin = 3 * S
        refusal = exchange(a, b, begin, out=out, takes=takes, back=back)
        if refusal is not None:
            # Two seconds at rates that differ by more than 1 ms in that time look like a moved wall clock.
            assert refusal in ("own_wall_moved", "peer_wall_moved")
            return
        a.wall_offset += step
        use = begin + out + takes + back + age
        measured = a.health._peers[b.life].difference(*a.clocks(use))
        if measured is None:
            assert a.elapsed(use) - a.elapsed(begin) > 3 * S
            return
        difference, error = measured
        assert abs(b.wall(use) - a.wall(use) - difference) <= error

    @settings(max_examples=300)
    @given(
        travel=st.tuples(st.integers(0, 5 * MS), st.integers(0, 5 * MS)),
        behind=st.tuples(*[st.sampled_from([0, 1, 50_000, READING_ERROR_NS])] * 3),
        late=st.sampled_from([0, 1, READING_ERROR_NS - 1]),
        age=st.integers(0, S),
    )
    def test_the_interval_holds_for_readings_that_are_late(
        self, travel: tuple[int, int], behind: tuple[int, int, int], late: int, age: int
    ) -> None:
        """An elapsed clock is up to 100 µs behind and catches up; a wall clock is read up to 100 µs after it."""
        a, b = cluster(0, 7)
        at_probe, at_reply, at_use = sorted(behind, reverse=True)
        begin, read = 3 * S, 3 * S + sum(travel)
        use = read + age
        a.health.watch(b.life, 0)
        probe = a.health.probe(b.life, a.elapsed(begin) - at_probe, a.wall(begin), None)
        clocks = b.clocks(begin + travel[0])
        reply = b.health.answer(a.life, probe, *clocks, *clocks)
        assert a.health.reply(b.life, reply, a.elapsed(read) - at_reply, a.wall(read)) is None
        measured = a.health._peers[b.life].difference(a.elapsed(use) - at_use, a.wall(use + late))
        assert measured is not None
        assert abs(7 * MS - measured[0]) <= measured[1] - age // 1000

    def test_the_error_is_half_the_round_trip_and_widens_by_a_millisecond_a_second(self) -> None:
        a, b = cluster(0, 40)
        exchange(a, b, 0, out=6 * MS, back=6 * MS)
        clock = a.health._peers[b.life]
        fresh, later = clock.difference(*a.clocks(12 * MS)), clock.difference(*a.clocks(2012 * MS))
        assert fresh is not None
        assert later is not None
        assert fresh[0] == 40 * MS
        assert fresh[1] == pytest.approx(6 * MS, abs=200_000)
        assert later[1] - fresh[1] == 2 * MS

    def test_the_peers_own_time_is_not_travel(self) -> None:
        a, b = cluster(0, 0)
        assert exchange(a, b, 0, out=1 * MS, takes=200 * MS, back=1 * MS) is None
        assert a.health.verdicts(*a.clocks(202 * MS))[b.life].round_trip_ns == pytest.approx(
            2 * MS, abs=500_000
        )

    @pytest.mark.parametrize(("ms", "taken"), [(250, True), (251, False)])
    def test_a_round_trip_over_half_of_delta_is_thrown_away(self, ms: int, taken: bool) -> None:
        a, b = cluster(0, 0)
        refusal = exchange(a, b, 0, out=ms * MS, back=0)
        assert refusal == (None if taken else "round_trip")

    @pytest.mark.parametrize(("us", "taken"), [(1000, True), (1001, False), (-1000, True), (-1001, False)])
    def test_our_wall_clock_set_by_more_than_a_millisecond_meanwhile(self, us: int, taken: bool) -> None:
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        probe = health.probe(7, 0, 10 * S, None)
        reply = ClockReply(probe.sent_ns, 5, 10 * S, 5, 10 * S)
        refusal = health.reply(7, reply, 4 * MS, 10 * S + 4 * MS + us * 1000)
        assert refusal == (None if taken else "own_wall_moved")

    @pytest.mark.parametrize(("us", "taken"), [(1000, True), (1001, False), (-1000, True), (-1001, False)])
    def test_the_peers_wall_clock_set_by_more_than_a_millisecond_meanwhile(
        self, us: int, taken: bool
    ) -> None:
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        probe = health.probe(7, 0, 10 * S, None)
        reply = ClockReply(probe.sent_ns, 0, 10 * S, 2 * MS, 10 * S + 2 * MS + us * 1000)
        refusal = health.reply(7, reply, 4 * MS, 10 * S + 4 * MS)
        assert refusal == (None if taken else "peer_wall_moved")

    def test_only_the_awaited_probe_has_a_reply_and_only_one(self) -> None:
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        old = health.probe(7, 0, S, None)
        new = health.probe(7, 100, S + 100, None)
        assert health.reply(7, ClockReply(old.sent_ns, 0, S, 0, S), 200, S + 200) == "not_awaited"
        assert health.reply(7, ClockReply(new.sent_ns, 0, S, 0, S), 200, S + 200) is None
        assert health.reply(7, ClockReply(new.sent_ns, 0, S, 0, S), 200, S + 200) == "not_awaited"
        assert health.reply(8, ClockReply(new.sent_ns, 0, S, 0, S), 200, S + 200) == "not_awaited"

    @pytest.mark.parametrize(
        "reply",
        [
            ClockReply(0, 10, S, 5, S),  # replied before it received
            ClockReply(0, 0, S, 3 * S, 4 * S),  # took longer than passed here
            ClockReply(0, 0, -1, 0, -1),  # before 1970
            ClockReply(0, 1 << 63, S, 1 << 63, S),
        ],
    )
    def test_impossible_times_are_no_sample(self, reply: ClockReply) -> None:
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        health.probe(7, 0, S, None)
        assert health.reply(7, reply, MS, S + MS) == "malformed"
        assert health.verdicts(MS, S + MS)[7].verdict == "unknown"
        assert health.verdicts(MS, S + MS)[7].thrown_away == 1

    def test_a_peer_whose_wall_clock_is_set_is_counted(self) -> None:
        a, b = cluster(0, 0)
        exchange(a, b, 0)
        b.wall_offset += 70 * MS
        exchange(a, b, 1 * S)
        exchange(a, b, 2 * S)
        view = a.health.verdicts(*a.clocks(3 * S))[b.life]
        assert view.steps == 1
        assert view.last_step_ns == pytest.approx(70 * MS, abs=3 * MS)


class TestGate:
    @pytest.mark.parametrize(
        ("offsets_ms", "is_open"),
        [
            ((0, 0, 0), True),
            ((0, 247, 900), True),  # one peer of two is enough: with the leader that is a majority
            ((0, 253, 900), False),
            ((0, -247, 900), True),
            ((0, -253, -900), False),
            ((0, 10, 900, -20, 900), True),
            ((0, 10, 900, 800, 900), False),
        ],
    )
    def test_open_while_a_majority_is_within_half_of_delta(
        self, offsets_ms: tuple[int, ...], is_open: bool
    ) -> None:
        machines = cluster(*offsets_ms)
        measure_all(machines, 0)
        assert gate(machines[0], machines, 2 * MS) is is_open

    def test_the_whole_interval_must_be_inside(self) -> None:
        machines = cluster(0, 240, 900)
        exchange(machines[0], machines[1], 0, out=30 * MS, back=30 * MS)
        assert not gate(machines[0], machines, 60 * MS)
        views = machines[0].health.verdicts(*machines[0].clocks(60 * MS))
        assert views[machines[1].life].verdict == "unclear"

    def test_unknown_is_outside_and_a_sample_counts_for_three_seconds(self) -> None:
        machines = cluster(0, 0, 0)
        assert not gate(machines[0], machines, 0)
        exchange(machines[0], machines[1], 0)
        assert gate(machines[0], machines, 3 * S)
        assert not gate(machines[0], machines, 3 * S + 1)

    @given(st.integers(260, 10**6), st.sampled_from([1, -1]))
    @settings(max_examples=30)
    def test_a_step_of_our_own_wall_clock_is_seen_at_the_next_use(self, ms: int, sign: int) -> None:
        machines = cluster(0, 0, 0)
        measure_all(machines, 0)
        assert gate(machines[0], machines, 10 * MS)
        machines[0].wall_offset += sign * ms * MS
        assert not gate(machines[0], machines, 10 * MS + 1)

    def test_it_opens_again_by_itself(self) -> None:
        machines = cluster(5000, 0, 0)
        measure_all(machines, 0)
        assert not gate(machines[0], machines, 2 * MS)
        machines[0].wall_offset = 0
        assert gate(machines[0], machines, 3 * MS)

    def test_two_nodes_with_open_gates_are_within_delta(self) -> None:
        machines = cluster(0, 240, -240)
        measure_all(machines, 0)
        assert all(gate(m, machines, 2 * MS) for m in machines[:1])
        machines[1].wall_offset, machines[2].wall_offset = 490 * MS, 251 * MS
        measure_all(machines, S)
        walls = [m.wall(0) for m in machines if gate(m, machines, S + 2 * MS)]
        assert walls
        assert max(walls) - min(walls) <= 500 * MS

    def test_joint_needs_both_majorities(self) -> None:
        a, b, c, d = machines = cluster(0, 0, 900, 900)
        measure_all(machines, 0)
        clocks = a.clocks(2 * MS)
        old, new = [a.member, b.member, c.member], [a.member, c.member, d.member]
        assert a.health.gate(*clocks, a.member, old)
        assert not a.health.gate(*clocks, a.member, new)
        assert not a.health.gate(*clocks, a.member, new, old)
        assert not a.health.gate(*clocks, a.member, old, new)
        assert a.health.gate(*clocks, a.member, old, [a.member, b.member, d.member])

    def test_a_node_that_does_not_vote_does_not_count_itself(self) -> None:
        a, b, c, d = machines = cluster(0, 0, 900, 900)
        measure_all(machines, 0)
        assert not a.health.gate(*a.clocks(2 * MS), a.member, [b.member, c.member, d.member])

    def test_another_life_of_the_same_voter_is_unknown(self) -> None:
        a, _b, c = machines = cluster(0, 0, 900)
        measure_all(machines, 0)
        reborn = Member(4, 4000)
        assert not a.health.gate(*a.clocks(2 * MS), a.member, [a.member, reborn, c.member])

    def test_a_source_that_is_not_synchronised_closes_it(self) -> None:
        machines = cluster(0, 0, 0)
        measure_all(machines, 0)
        machines[0].health.source_says(False, "stratum 0")
        assert not gate(machines[0], machines, 2 * MS)
        machines[0].health.source_says(None)
        assert gate(machines[0], machines, 2 * MS)

    def test_what_is_forgotten_is_unknown(self) -> None:
        machines = cluster(0, 0, 900)
        measure_all(machines, 0)
        machines[0].health.forget(machines[1].life)
        assert not gate(machines[0], machines, 2 * MS)


class TestRate:
    def run(self, machines: list[Machine], seconds: int, *, from_s: int = 0, travel: int = MS) -> int:
        for second in range(from_s, from_s + seconds + 1):
            for m in machines[1:]:
                exchange(machines[0], m, second * S, out=travel, back=travel)
        return (from_s + seconds) * S + 2 * travel

    @settings(max_examples=60, deadline=None)
    @given(
        own=st.integers(-500_000, 500_000),
        peer=st.integers(-500_000, 500_000),
        travels=st.lists(st.tuples(delays, delays), min_size=2, max_size=70),
    )
    def test_the_true_rate_lies_in_the_interval_so_rates_within_rho_are_never_proved_outside(
        self, own: int, peer: int, travels: list[tuple[int, int]]
    ) -> None:
        a, b = Machine(1, elapsed_ppb=own), Machine(2, elapsed_ppb=peer)
        now = 0
        for second, (out, back) in enumerate(travels):
            exchange(a, b, second * S, out=out, back=back)
            now = second * S + out + back
            assert a.health._peers[b.life].rate_outside(a.elapsed(now)) is not True
        rate = a.health._peers[b.life].rate(a.elapsed(now))
        if rate is not None:
            true_rate = (10**9 + peer) * 10**9 // (10**9 + own) - 10**9
            assert rate[0] <= true_rate + 1
            assert true_rate <= rate[1] + 1

    @pytest.mark.parametrize("ppb", [-3 * RHO_PPB, 3 * RHO_PPB])
    def test_proved_wrong_against_a_majority_is_our_own_rate(self, ppb: int) -> None:
        a, b, _c = machines = [Machine(1, elapsed_ppb=ppb), Machine(2), Machine(3)]
        # A wall clock that follows true time while the elapsed clock does not: the sample itself stays short.
        now = self.run(machines, 30)
        voters = [m.member for m in machines]
        assert a.health.rate_proved_wrong(a.elapsed(now), a.member, voters)
        assert a.health.rate_proved_wrong(a.elapsed(now), a.member, [a.member], voters)
        assert not gate(a, machines, now)
        assert a.health.verdicts(*a.clocks(now))[b.life].verdict == "rate"

    def test_one_peer_that_runs_wrong_proves_nothing_against_us_and_leaves_the_gate_open(self) -> None:
        a, b, _c = machines = [Machine(1), Machine(2, elapsed_ppb=5 * RHO_PPB), Machine(3)]
        now = self.run(machines, 30)
        assert a.health._peers[b.life].rate_outside(a.elapsed(now)) is True
        assert not a.health.rate_proved_wrong(a.elapsed(now), a.member, [m.member for m in machines])
        assert gate(a, machines, now)
        assert not gate(a, [a, b], now)

    def test_unknown_is_not_outside(self) -> None:
        a, b, _c = machines = [Machine(1, elapsed_ppb=3 * RHO_PPB), Machine(2), Machine(3)]
        # Slow round trips: 30 s are not enough to prove 0.3 %.
        now = self.run(machines, 20, travel=100 * MS)
        assert a.health._peers[b.life].rate_outside(a.elapsed(now)) is None
        assert gate(a, machines, now)

    def test_one_short_round_trip_among_slow_ones_is_the_one_that_counts(self) -> None:
        a, b = Machine(1), Machine(2)
        for second in range(40):
            travel = MS if second in (3, 35) else 100 * MS
            exchange(a, b, second * S, out=travel, back=travel)
        assert a.health._peers[b.life].rate_outside(a.elapsed(40 * S)) is False

    def test_sixty_seconds_after_it_was_put_right_it_is_no_longer_held_against_anyone(self) -> None:
        a, _b, _c = machines = [Machine(1), Machine(2), Machine(3)]
        now = self.run(machines, 30)
        a.elapsed_offset += 5 * S  # as a virtual machine that was frozen for the others' five seconds
        now = self.run(machines, 30, from_s=31)
        voters = [m.member for m in machines]
        assert a.health.rate_proved_wrong(a.elapsed(now), a.member, voters)
        now = self.run(machines, 62, from_s=62)
        assert not a.health.rate_proved_wrong(a.elapsed(now), a.member, voters)
        assert gate(a, machines, now)

    def test_what_was_measured_over_sixty_seconds_ago_is_unknown(self) -> None:
        a, b, _c = machines = [Machine(1, elapsed_ppb=3 * RHO_PPB), Machine(2), Machine(3)]
        now = self.run(machines, 30) + 61 * S
        assert a.health._peers[b.life].rate_outside(a.elapsed(now)) is None


class TestWithinDelta:
    @pytest.mark.parametrize(("ms", "expected"), [(497, True), (500, None), (503, False), (-497, True)])
    def test_within_the_whole_of_delta(self, ms: int, expected: bool | None) -> None:
        a, b = cluster(0, ms)
        exchange(a, b, 0)
        assert a.health.within_delta(b.life, *a.clocks(2 * MS)) is expected

    def test_unknown_without_a_sample(self) -> None:
        a, b = cluster(0, 0)
        assert a.health.within_delta(b.life, *a.clocks(0)) is None
        exchange(a, b, 0)
        assert a.health.within_delta(b.life, *a.clocks(4 * S)) is None


class TestOddOneOut:
    def odd(self, machines: list[Machine], true: int) -> tuple[Member, ...]:
        leader = machines[0]
        voters = [m.member for m in machines]
        return leader.health.odd_one_out(*leader.clocks(true), leader.member, voters)

    def test_a_leader_that_is_outside_alone_names_the_others(self) -> None:
        machines = cluster(800, 0, 10)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        assert self.odd(machines, 3 * MS) == (machines[1].member, machines[2].member)

    def test_of_five_the_majority_that_agrees(self) -> None:
        machines = cluster(800, 0, 10, -2000, 20)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        assert self.odd(machines, 3 * MS) == tuple(machines[i].member for i in (1, 2, 4))

    def test_nobody_while_the_gate_is_open(self) -> None:
        machines = cluster(0, 0, 800)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        assert self.odd(machines, 3 * MS) == ()

    def test_nobody_where_all_disagree(self) -> None:
        machines = cluster(0, 800, 1600)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        assert self.odd(machines, 3 * MS) == ()

    def test_nobody_where_the_others_said_so_of_clocks_that_were_set_since(self) -> None:
        machines = cluster(0, 0, 10)
        leader, ahead, behind = machines
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        ahead.wall_offset += 3600 * S
        behind.wall_offset -= 3600 * S
        for other in (ahead, behind):
            assert exchange(leader, other, 1 * S) is None
        assert not gate(leader, machines, 1 * S + 3 * MS)
        assert self.odd(machines, 1 * S + 3 * MS) == ()

    def test_nobody_where_we_have_no_fresh_sample(self) -> None:
        machines = cluster(800, 0, 10)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        for m in machines[1:]:
            machines[0].health.peer_reported(m.life, True, machines[0].elapsed(4 * S))
        assert self.odd(machines, 4 * S) == ()

    def test_reports_count_for_three_seconds(self) -> None:
        machines = cluster(800, 0, 10)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        measure_all(machines[:1] + machines[1:], 3 * S)
        assert self.odd(machines, 3 * S + 5 * MS) == ()

    def test_our_own_source_outside_is_enough_when_the_others_agree(self) -> None:
        machines = cluster(0, 0, 0)
        measure_all(machines, 0)
        report_all(machines, 2 * MS)
        machines[0].health.source_says(False)
        assert self.odd(machines, 3 * MS) == (machines[1].member, machines[2].member)

    def test_joint_needs_a_majority_of_both(self) -> None:
        a, b, c, d = machines = cluster(800, 0, 0, 1700)
        measure_all(machines, 0)
        report_all(machines[:3], 2 * MS)
        clocks = a.clocks(3 * MS)
        old, new = [a.member, b.member, c.member], [a.member, b.member, d.member]
        assert a.health.odd_one_out(*clocks, a.member, old) == (b.member, c.member)
        assert a.health.odd_one_out(*clocks, a.member, old, new) == ()
        assert a.health.odd_one_out(*clocks, a.member, old, [a.member, b.member, c.member]) != ()

    def test_the_verdict_travels_in_the_probe(self) -> None:
        a, b = cluster(0, 0)
        exchange(a, b, 0, inside=False)
        assert b.health.verdicts(*b.clocks(2 * MS))[a.life].reports_inside is False
        assert b.health.verdicts(*b.clocks(4 * S))[a.life].reports_inside is None


class TestProbing:
    def test_a_new_peer_is_probed_at_once_then_once_a_second(self) -> None:
        a, b = cluster(0, 0)
        health = a.health
        health.watch(b.life, 50)
        assert health.due(49) == []
        assert health.due(50) == [b.life]
        exchange(a, b, S)
        asked_ns = a.elapsed(S)
        assert health.due(asked_ns + S - 1) == []
        assert health.next_due_ns() == asked_ns + S
        assert health.due(asked_ns + S) == [b.life]

    def test_a_first_probe_that_nobody_answers_is_soon_repeated(self) -> None:
        """The peer may have had no link yet to answer on."""
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        health.probe(7, 0, S, None)
        assert health.due(250 * MS - 1) == []
        assert health.due(250 * MS) == [7]

    def test_after_a_sample_was_thrown_away_the_next_comes_sooner_while_there_is_none(self) -> None:
        health = ClockHealth(500 * MS)
        health.watch(7, 0)
        health.probe(7, 0, S, None)
        assert health.reply(7, ClockReply(0, 0, S, 0, S), MS, S + MS) is None
        health.probe(7, 4 * S, 5 * S, None)  # the sample is too old by now
        late = ClockReply(4 * S, 4 * S, 5 * S, 4 * S, 5 * S)
        assert health.reply(7, late, 4 * S + 251 * MS, 5 * S + 251 * MS) == "round_trip"
        assert health.next_due_ns() == 4 * S + 501 * MS

    def test_a_probe_never_overtakes_a_reply_that_would_still_be_taken(self) -> None:
        health = ClockHealth(4 * S)
        health.watch(7, 0)
        health.probe(7, 0, S, None)
        assert health.next_due_ns() == 2 * S

    def test_a_link_that_comes_up_again_is_probed_at_once_only_where_no_sample_is_valid(self) -> None:
        a, b = cluster(0, 0)
        exchange(a, b, 0)
        a.health.watch(b.life, a.elapsed(500 * MS))
        assert a.health.due(a.elapsed(500 * MS)) == []
        a.health.watch(b.life, a.elapsed(900 * MS) + 3 * S)
        assert a.health.due(a.elapsed(900 * MS) + 3 * S) == [b.life]

    def test_peers_are_bounded_and_the_one_sampled_longest_ago_goes(self) -> None:
        a, b = cluster(0, 0)
        exchange(a, b, 0)
        for life in range(PEERS_MAX + 5):
            a.health.watch(10_000 + life, S)
        views = a.health.verdicts(*a.clocks(S))
        assert len(views) == PEERS_MAX
        assert b.life in views


class TestOwnSteps:
    def test_steps_of_our_wall_clock_are_counted_and_slews_are_not(self) -> None:
        health = ClockHealth(500 * MS)
        assert health.observe(0, 100 * S) == 0
        assert health.observe(1 * S, 101 * S + MS) == 0
        assert health.observe(2 * S, 102 * S + MS + 30 * MS) == 30 * MS
        assert health.observe(3 * S, 43 * S + 31 * MS) == -60 * S
        assert (health.steps, health.last_step_ns) == (2, -60 * S)

    def test_both_clocks_of_one_moment(self) -> None:
        elapsed = iter([0, 900_000, 1_000_000, 1_000_050])
        walls = iter([7, 8])
        assert read_together(lambda: next(elapsed), lambda: next(walls)) == (1_000_000, 8)

    def test_a_reading_at_hand_is_the_first_one(self) -> None:
        elapsed, walls = iter([99_999]), iter([7])
        assert read_together(lambda: next(elapsed), lambda: next(walls), 0) == (0, 7)

    def test_a_reading_at_hand_that_is_too_old_is_made_again(self) -> None:
        elapsed, walls = iter([100_000, 200_000, 200_050]), iter([7, 8])
        assert read_together(lambda: next(elapsed), lambda: next(walls), 0) == (200_000, 8)

    @pytest.mark.parametrize("interruptions", [1, 7, 8, 500])
    def test_a_pair_that_was_interrupted_is_never_returned(self, interruptions: int) -> None:
        """No difference allows for more than the wall clock being read 100 µs late."""
        times = [number * S + late for number in range(interruptions) for late in (0, 100_000)]
        times += [interruptions * S, interruptions * S + 99_999]
        elapsed, walls = iter(times), itertools.count()
        found = read_together(lambda: next(elapsed), lambda: next(walls))
        assert found == (interruptions * S, interruptions)

    def test_a_machine_that_never_reads_both_clocks_in_one_moment_has_none(self) -> None:
        elapsed = itertools.count(0, 100_000)
        with pytest.raises(ClocksApartError):
            read_together(lambda: next(elapsed), lambda: 7)


@st.composite
def clock_events(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What befalls machine 0: an event, whom it concerns, and by how many nanoseconds."""
    amounts = st.one_of(st.integers(-600 * MS, 600 * MS), st.integers(-3 * MS, 3 * MS))
    names = st.sampled_from(
        ["wait", "wait long", "sample", "own step", "peer step", "forget", "source", "delta", "voters", "me"]
    )
    return draw(st.lists(st.tuples(names, st.integers(1, 3), amounts), max_size=25))


class TestOpenGate:
    """An open gate that is not reckoned anew is what it would be if it were."""

    @settings(max_examples=400)
    @given(
        offsets=st.tuples(*[st.sampled_from([0, 240 * MS, -240 * MS, 400 * MS])] * 3),
        rates=st.tuples(*[st.one_of(st.just(0), st.integers(-3_000_000, 3_000_000))] * 3),
        events=clock_events(),
    )
    def test_it_is_open_whenever_it_would_be_found_open(
        self,
        offsets: tuple[int, int, int],
        rates: tuple[int, int, int],
        events: list[tuple[str, int, int]],
    ) -> None:
        own = Machine(1)
        peers = [
            Machine(number, wall_offset=offset, elapsed_ppb=rate)
            for number, offset, rate in zip((2, 3, 4), offsets, rates, strict=True)
        ]
        true = 3 * S
        me = own.member
        voters: tuple[Member, ...] = (own.member, peers[0].member, peers[1].member)
        outgoing: tuple[Member, ...] = ()
        for peer in peers:
            exchange(own, peer, true)
        true += 2 * MS
        for event, whom, amount in events:
            own.health.gate(*own.clocks(true), me, voters, outgoing)
            peer = peers[whom - 1]
            match event:
                case "wait":
                    true += abs(amount)
                case "wait long":
                    true += 3 * S - 5 * MS + amount // 60
                case "sample":
                    exchange(own, peer, true)
                    true += 2 * MS
                case "own step":
                    own.wall_offset += amount
                case "peer step":
                    peer.wall_offset += amount
                case "forget":
                    own.health.forget(peer.life)
                case "source":
                    own.health.source_says((None, True, False)[whom - 1])
                case "delta":
                    own.health.delta_ns = max(2 * MS, 500 * MS + amount)
                case "voters":
                    voters = (
                        peer.member,
                        *[other.member for other in (own, *peers) if other is not peer][:3],
                    )
                    outgoing = (peer.member, own.member) if amount > 0 else ()
                case "me":
                    me = peer.member if amount > 0 else own.member
            found = own.health.gate(*own.clocks(true), me, voters, outgoing)
            own.health._open = None
            assert found == own.health.gate(*own.clocks(true), me, voters, outgoing)

    @pytest.fixture
    def three(self) -> list[Machine]:
        """The first one's gate is open and kept; the third has no part in that."""
        machines = cluster(0, 100, 2_000)
        measure_all(machines, 0)
        assert self.is_open(machines)
        return machines

    @staticmethod
    def is_open(machines: list[Machine], true: int = 2 * MS) -> bool:
        """For three voters, as tuples: what a node hands in."""
        a, b, c = machines
        return a.health.gate(*a.clocks(true), a.member, (a.member, b.member, c.member))

    def test_a_step_of_our_wall_clock_closes_it_at_once(self, three: list[Machine]) -> None:
        three[0].wall_offset -= 151 * MS
        assert not self.is_open(three)
        three[0].wall_offset += 2 * 151 * MS
        assert self.is_open(three)
        three[0].wall_offset += 200 * MS
        assert not self.is_open(three)

    @pytest.mark.parametrize("us", range(-160_000, -140_000, 500))
    def test_a_step_to_the_limit_counts_the_error_and_its_growth(self, three: list[Machine], us: int) -> None:
        three[0].wall_offset += us * 1000
        for true in (2 * MS, 1_000 * MS, 2_900 * MS):
            found = self.is_open(three, true)
            three[0].health._open = None
            assert found == self.is_open(three, true)
            assert self.is_open(three, 2 * MS) or not found

    def test_the_older_of_two_samples_closes_it(self) -> None:
        machines = cluster(0, 0, 0, 400, 400)
        a, b, c = machines[:3]
        exchange(a, b, 0)
        exchange(a, c, 1 * S)
        voters = tuple(machine.member for machine in machines)
        assert a.health.gate(*a.clocks(2 * S), a.member, voters)
        assert not a.health.gate(*a.clocks(3 * S + 1), a.member, voters)

    @settings(max_examples=300)
    @given(
        offsets=st.tuples(*[st.integers(-249, 249)] * 4),
        arrangement=st.sampled_from(["five", "joint", "joint, the other way"]),
        steps=st.lists(st.integers(-260 * MS, 260 * MS), min_size=1, max_size=5),
    )
    def test_of_several_peers_the_one_nearest_to_the_limit_closes_it(
        self, offsets: tuple[int, int, int, int], arrangement: str, steps: list[int]
    ) -> None:
        own, *peers = cluster(0, *offsets)
        me, (b, c, d, e) = own.member, [peer.member for peer in peers]
        voters, outgoing = {
            "five": ((me, b, c, d, e), ()),
            "joint": ((me, b, c), (me, d, e)),
            "joint, the other way": ((me, d, e), (me, b, c)),
        }[arrangement]
        for peer in peers:
            exchange(own, peer, 0)
        for step in steps:
            own.health.gate(*own.clocks(2 * MS), me, voters, outgoing)
            own.wall_offset = step
            found = own.health.gate(*own.clocks(2 * MS), me, voters, outgoing)
            own.health._open = None
            assert found == own.health.gate(*own.clocks(2 * MS), me, voters, outgoing)
            own.wall_offset = 0

    def test_a_peer_that_is_dropped_for_a_new_one_closes_it(self) -> None:
        a, b, c = machines = cluster(0, 0, 900)
        exchange(a, b, 0)
        others = [Machine(number) for number in range(10, 9 + PEERS_MAX)]
        for other in others:
            exchange(a, other, 1 * MS)
        assert self.is_open(machines, 4 * MS)
        a.health.watch(c.life, a.elapsed(4 * MS))
        assert not self.is_open(machines, 4 * MS)

    def test_a_new_sample_closes_it(self, three: list[Machine]) -> None:
        three[1].wall_offset += 200 * MS
        assert self.is_open(three, 1 * S)
        exchange(three[0], three[1], 1 * S)
        assert not self.is_open(three, 1 * S + 2 * MS)

    def test_a_smaller_delta_closes_it(self, three: list[Machine]) -> None:
        three[0].health.delta_ns = 200 * MS
        assert not self.is_open(three)

    def test_other_voters_close_it(self, three: list[Machine]) -> None:
        a, b, c = three
        assert not a.health.gate(*a.clocks(2 * MS), a.member, (a.member, c.member))
        assert self.is_open(three)
        assert not a.health.gate(
            *a.clocks(2 * MS), a.member, (a.member, b.member, c.member), (a.member, c.member)
        )

    def test_it_is_not_reckoned_anew_while_nothing_happens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b, c = machines = cluster(0, 20, -20)
        measure_all(machines, 0)
        assert gate(a, machines, 2 * MS)
        voters = tuple(machine.member for machine in (a, b, c))
        assert a.health.gate(*a.clocks(2 * MS), a.member, voters)
        monkeypatch.setattr(PeerClock, "difference", lambda *_: pytest.fail("reckoned anew"))
        assert a.health.gate(*a.clocks(2_900 * MS), a.member, voters)


class TestMessages:
    @pytest.mark.parametrize("message", [ClockProbe(5, True), ClockProbe(5), ClockReply(1, 2, 3, 4, 5)])
    def test_round_trip(self, message: ClockProbe | ClockReply) -> None:
        assert clock_messages.decode(clock_messages.encode(message)) == message

    @pytest.mark.parametrize("payload", [b"", b"\x93\x01", b"\x92\x03\x05", b'["x"]', b"\x92\x01\xa1x"])
    def test_anything_else_is_a_decode_error(self, payload: bytes) -> None:
        with pytest.raises(msgspec.DecodeError):
            clock_messages.decode(payload)
