"""A random life of a cluster by one seed: load, faults and an operator first, then peace, in which it must
recover.

Faults are drawn as a swarm: each run has some kinds of them off and others extreme. Crashes never take a
majority of any configuration that may be in force, for what a lost majority held is lost by design.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.raft.network import Network, Process, S
from ticketing.raft.membership import ChangeRefused, swapping, with_learner, without_learner
from ticketing.raft.types import MS, ConfigurationChange, Member, RaftSettings

SMALL = RaftSettings(
    heartbeat_ns=40 * MS,
    election_timeout_min_ns=150 * MS,
    election_timeout_max_ns=300 * MS,
    leader_lease_ns=150 * MS,
    quorum_check_ns=300 * MS,
    orphan_campaign_max_ns=40 * MS,
    transfer_timeout_ns=300 * MS,
    uncommitted_bytes_max=12_000,
    uncommitted_bytes_reserved=1_000,
    inflight_bytes_max=2_000,
    message_bytes_max=700,
    log_keep_bytes=1_500,
    learner_log_bytes_max=20_000,
)
"""Bounds so small, and elections so near, that a short run meets all of them."""


class Chaos:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.network = Network(seed, voters=(3, 3, 3, 5)[seed % 4], settings=SMALL)
        self.rng = self.network.rng
        self.swapped = 0
        self.caught_up: dict[Member, int] = {}
        chance = self.rng.random
        self.crashes_left = self.rng.choice((0, 1, 1, 2))
        self.replace_living = chance() < 0.3
        self.network.snapshots_fail = self.rng.choice((0.0, 0.0, 0.5))
        self.actions: list[Callable[[], None]] = [self.load, self.load, self.load, self.ask, self.weather]
        for action in (self.part, self.pause, self.hand_over, self.relink, self.abandon, self.deafen):
            if chance() < 0.6:
                self.actions.append(action)

    def run(self) -> None:
        network = self.network
        network.run_to_leader()
        stormy_until = network.now + 2 * S
        while network.now < stormy_until:
            network.run(self.rng.randrange(2 * MS, 90 * MS))
            self.rng.choice(self.actions)()
            self.operate()
            if self.crashes_left and self.rng.random() < 0.08:
                self.crash_somebody()
        self.recover()

    # --- load

    def load(self) -> None:
        for process in self.network.running():
            for _ in range(self.rng.randrange(1, 4)):
                self.network.propose(process, self.rng.randbytes(self.rng.choice((5, 100, 400, 900))))

    def ask(self) -> None:
        for process in self.network.running():
            self.network.begin_barrier(process)

    # --- faults

    def somebody(self) -> Process | None:
        running = self.network.running()
        return self.rng.choice(running) if running else None

    def weather(self) -> None:
        network = self.network
        network.drop = self.rng.choice((0.0, 0.0, 0.05, 0.3))
        network.double = self.rng.choice((0.0, 0.0, 0.2))
        network.delay_ns = self.rng.choice(((1, 2 * MS), (1, 20 * MS), (1, 150 * MS)))

    def part(self) -> None:
        """A partition of some kind, for a while or for good."""
        network = self.network
        members = list(network.processes)
        leader = network.leader()
        kind = self.rng.randrange(4)
        if kind == 0 or leader is None:
            network.isolate(self.rng.choice(members))
        elif kind == 1:
            network.isolate(leader.member)
        else:
            network.split(self.rng.sample(members, len(members) // 2))
        self.heal_sometimes()

    def deafen(self) -> None:
        """One direction only."""
        one, other = self.rng.sample(list(self.network.processes), 2)
        self.network.cut.add((one, other))
        self.heal_sometimes()

    def heal_sometimes(self) -> None:
        network = self.network
        if self.rng.random() < 0.8:
            network.at(network.now + self.rng.randrange(1 * MS, 700 * MS), network.cut.clear)

    def pause(self) -> None:
        network = self.network
        process = self.somebody()
        if process is None:
            return
        member = process.member
        network.stop(member)
        network.at(network.now + self.rng.randrange(1 * MS, 600 * MS), lambda: network.go_on(member))

    def relink(self) -> None:
        leader = self.network.leader()
        if leader is not None:
            member = self.rng.choice(list(self.network.processes))
            if self.rng.random() < 0.5:
                leader.raft.link_down(member, leader.now())
            leader.raft.link_up(member, leader.now())
            self.network.flush(leader)

    def abandon(self) -> None:
        process = self.somebody()
        if process is not None:
            process.raft.leader_gone(process.now())
            self.network.flush(process)

    def hand_over(self) -> None:
        leader = self.network.leader()
        if leader is not None:
            leader.raft.transfer(self.rng.choice(list(self.network.processes)), leader.now())
            self.network.flush(leader)

    def crash_somebody(self) -> None:
        network = self.network
        victim = self.somebody()
        if victim is None:
            return
        configurations = [p.raft.configuration for p in network.processes.values() if p.alive]
        for configuration in configurations:
            for group in (configuration.voters, configuration.outgoing):
                left = sum(network.processes[member].alive for member in group if member != victim.member)
                if group and left <= len(group) // 2:
                    return
        self.crashes_left -= 1
        network.crash(victim.member)

    # --- the operator: replaces voters, one at a time

    def operate(self) -> None:
        leader = self.network.leader()
        if leader is None:
            return
        self.replace(leader)
        self.network.flush(leader)

    def replace(self, leader: Process) -> None:
        raft = leader.raft
        configuration = raft.configuration
        processes = self.network.processes
        if configuration.joint:
            return
        for learner in configuration.learners:
            progress = raft.progress(learner)
            assert progress is not None
            if not processes[learner].alive:
                self.propose(leader, ConfigurationChange(without_learner(configuration, learner)))
            elif 0 < self.caught_up.get(learner, 0) <= progress.match:
                old = self.voter_to_replace(leader)
                if old is not None:
                    self.propose(leader, ConfigurationChange(swapping(configuration, old, learner)))
                    self.swapped += 1
            else:
                self.caught_up[learner] = raft.commit_index
            return
        if self.voter_to_replace(leader) is not None and raft.own_term_committed:
            learner = self.network.start_blank()
            self.propose(leader, ConfigurationChange(with_learner(configuration, learner)))

    def voter_to_replace(self, leader: Process) -> Member | None:
        voters = leader.raft.configuration.voters
        dead = [voter for voter in voters if not self.network.processes[voter].alive]
        if dead:
            return dead[0]
        if self.replace_living and self.swapped < 2:
            return voters[0]
        return None

    def propose(self, leader: Process, change: ConfigurationChange) -> None:
        try:
            leader.raft.propose_configuration(change, leader.now())
        except ChangeRefused as refused:
            if refused.reason == "invalid":
                raise

    # --- peace

    def recover(self) -> None:
        """Nothing fails any more: a leader comes soon, takes proposals, and all its members come level."""
        network = self.network
        network.heal()
        network.delay_ns = (1 * MS, 2 * MS)
        network.snapshots_fail = 0.0
        self.replace_living = False
        network.run(700 * MS)  # until who stands still has gone on
        index = 0

        def decided() -> bool:
            nonlocal index
            leader = network.leader()
            if leader is None:
                return False
            if not index or leader.raft.last_index < index:
                index = network.propose(leader, b"peace")
            return 0 < index <= network.highest_decided

        assert network.run(10 * S, decided), "no decision in peace"
        leader = network.run_to_leader()

        def level() -> bool:
            members = leader.raft.configuration.members()
            lives = [network.processes[member] for member in members if network.processes[member].alive]
            return all(process.raft.applied_index >= index for process in lives)

        assert network.run(5 * S, level), "members do not come level"
        assert not leader.raft.configuration.joint
        assert leader.raft.role.value == "leader", "no election in peace"
