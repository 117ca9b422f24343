"""That rules of the simulator can be broken: facts that all members share are forged behind their backs."""

from __future__ import annotations

import msgspec
import pytest

from tests.sim.answers import Answers
from tests.sim.invariants_log import check_uncommitted
from tests.sim.scenario import Scenario
from tests.sim.seen import Domain
from tests.sim.world import S, Violation, World
from ticketing.raft.core import Output
from ticketing.raft.messages import VoteAnswer
from ticketing.raft.types import Configuration, EntryKind, Member

SEED = 5


def running() -> tuple[Scenario, Domain]:
    """A cluster of one domain that keeps hardly any log, after a few entries."""
    scenario = Scenario(SEED)
    scenario.swarm.log_keep_bytes = 300
    scenario._settings = scenario._raft_settings()
    domains = scenario.invariants.domains
    while not domains or next(iter(domains.values())).applied < 20:
        assert scenario.world.now < 20 * S
        scenario.world.run(scenario.world.now + S // 10)
    (domain,) = domains.values()
    return scenario, domain


def goes_on(scenario: Scenario) -> None:
    scenario.world.run(scenario.world.now + 3 * S)


def test_entries_are_compared_that_are_compacted_as_soon_as_they_are_applied() -> None:
    scenario, domain = running()
    for index in range(domain.highest + 1, domain.highest + 4):
        domain.decided[index] = (99, (0, b"another"))
    with pytest.raises(Violation, match="state machine safety"):
        goes_on(scenario)


def test_a_token_has_to_rise_with_each_grant() -> None:
    scenario, domain = running()
    domain.highest_token += 1_000
    with pytest.raises(Violation, match="tokens rise"):
        goes_on(scenario)


def test_a_log_begins_behind_the_same_configuration_everywhere() -> None:
    scenario, domain = running()
    known = domain.bases[max(domain.bases)]
    for index in range(domain.applied + 1, domain.applied + 200):
        domain.bases[index] = Configuration(known.voters, learners=known.voters)
    with pytest.raises(Violation, match="log matching"):
        goes_on(scenario)


def test_two_votes_of_one_turn_are_seen() -> None:
    scenario, _domain = running()
    machine = scenario.machines["node-1"]
    assert machine.process is not None
    raft = machine.process.node.raft
    assert raft is not None
    answers, output = Answers(), Output()
    output.messages = [(Member(7, 7), VoteAnswer(9, True)), (Member(7, 7), VoteAnswer(9, True))]
    answers.carrying_out("node-1", raft, output)
    output.messages = [(Member(7, 7), VoteAnswer(10, True)), (Member(8, 8), VoteAnswer(10, True))]
    with pytest.raises(Violation, match="one vote a term"):
        answers.carrying_out("node-1", raft, output)


@pytest.mark.parametrize(
    ("event", "reason"),
    [("bad snapshot", "a slice outside a snapshot"), ("peer link refused", "rolled_back")],
)
def test_alarms_about_peers_are_false_here(event: str, reason: str) -> None:
    scenario, _domain = running()
    process = scenario.machines["node-1"].process
    assert process is not None
    process.shell.log("warning", "peer link refused", reason="changed")
    with pytest.raises(Violation, match="members say what is true"):
        process.shell.log("warning", event, reason=reason)


def test_a_run_has_an_end() -> None:
    world = World(0)

    def again() -> None:
        world.after(0, again)

    again()
    with pytest.raises(Violation, match="bounded run"):
        world.run(S)


def test_what_is_not_committed_is_bounded() -> None:
    scenario, _domain = running()
    process = scenario.machines["node-1"].process
    assert process is not None
    raft = process.node.raft
    assert raft is not None
    check_uncommitted("node-1", raft)
    replica = raft._replica
    replica.settings = msgspec.structs.replace(replica.settings, uncommitted_bytes_max=1_000)
    for number in range(4):
        replica.append_own(EntryKind.EMPTY, b"", 0, None)
        check_uncommitted("node-1", raft)
        replica.append_own(EntryKind.COMMANDS, bytes(number), 0, None)
    replica.append_own(EntryKind.COMMANDS, bytes(300), 0, None)
    with pytest.raises(Violation, match="bounded log"):
        check_uncommitted("node-1", raft)
