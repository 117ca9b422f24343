"""A small model of a cluster for the membership machines: configuration entries, processes, links, virtual
time.

Raft itself is not here. The newest configuration entry commits at the next tick while both majorities live,
a joint one is followed by its final one, and a learner's log grows as long as it lives.
"""

from __future__ import annotations

from tests.node.clocks import S
from ticketing.node.liveness import ClusterFacts, MemberFacts
from ticketing.node.members import MemberRecord, Members
from ticketing.node.membership_messages import JoinAnswer, JoinAsk, JoinTaken
from ticketing.node.rejoin import AppliedReport
from ticketing.node.replacement import Action, Done, ProposeChange, Replacement, Tell, Transfer
from ticketing.raft.membership import leaving_joint, problem
from ticketing.raft.types import MS, Configuration, ConfigurationChange, Member

TICK = 50 * MS
TIMEOUT = 800 * MS


def record(place: int, node_id: int, command_id: str = "") -> MemberRecord:
    name = f"node-{place}"
    return MemberRecord(
        name, node_id, node_id * 1000, f"{name}:5225", f"{name}:6225", f"{name}:7225", command_id
    )


def ask_for(place: int, incarnation: int, command_id: str = "", host: str = "") -> JoinAsk:
    name = host or f"node-{place}"
    return JoinAsk(
        f"node-{place}",
        incarnation,
        f"{name}:5225",
        f"{name}:6225",
        f"{name}:7225",
        command_id,
        "kim",
        "moved",
    )


class Process:
    """One process life as the others see it."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.alive = True
        self.linked = True
        self.heard_ns = 0
        self.answered_ns = 0
        self.match = 0
        self.given_up = False
        self.hangs = False
        """Its links are up and it says nothing."""
        self.applies = True
        """Whether it applies what it is sent (a new voter may take its time)."""
        self.report = AppliedReport()


class Places:
    """Places node-1.. with one voter each, and whoever asks for one of them."""

    def __init__(self, count: int = 3) -> None:
        founders = [record(n, n) for n in range(1, count + 1)]
        self.now = 10 * S
        self.names = tuple(r.place for r in founders)
        self.members = Members(founders)
        self.configuration = Configuration(tuple(r.member for r in founders))
        self.configuration_index = 1
        self.committed = True
        self.commit_index = 100
        self.processes = {r.member: Process(r.member) for r in founders}
        for process in self.processes.values():
            process.match = 100
            process.heard_ns = self.now
        self.asking: list[JoinAsk] = []
        self.log: list[ProposeChange] = []
        self.actions: list[Action] = []
        self.answers: list[JoinAnswer | JoinTaken] = []
        self.taken: dict[int, int] = {}
        self.ended: list[MemberRecord] = []
        self.leaving: tuple[Member, ...] = ()
        self.ready = True
        self.refuse_proposals = False
        self.catch_up = 300 * MS
        """How long a learner lags behind once it was told."""
        self._told_ns: dict[Member, int] = {}
        self.leader = founders[0].member
        self.begin_lead(founders[0].member)
        for process in self.processes.values():
            process.answered_ns = self.now

    # --- the leader

    def begin_lead(self, leader: Member) -> None:
        self.leader = leader
        self.since_ns = self.now
        for process in self.processes.values():
            process.heard_ns = max(process.heard_ns, self.now)
            process.answered_ns = 0
        self.replacement = Replacement("0123456789abcdef", 1 << 40, 500 * MS, self.names, TIMEOUT)

    def elect(self) -> bool:
        """The lead goes to the living voter with the lowest NodeId; False where no majority lives."""
        if not self.majority():
            return False
        voters = [m for m in self.configuration.voters if self.processes[m].alive and m != self.leader]
        if not voters:
            return False
        self.begin_lead(voters[0])
        return True

    def majority(self) -> bool:
        halves = [self.configuration.voters, self.configuration.outgoing]
        alive = [sum(self.processes[m].alive for m in half) > len(half) // 2 for half in halves if half]
        return all(alive)

    def facts(self) -> ClusterFacts:
        peers = {}
        for member in self.configuration.members():
            if member == self.leader:
                continue
            p = self.processes[member]
            peers[member] = MemberFacts(p.alive and p.linked, p.heard_ns, p.answered_ns, p.match, p.given_up)
        return ClusterFacts(
            self.leader,
            self.configuration,
            self.configuration_index,
            self.committed,
            self.ready,
            self.since_ns,
            self.commit_index,
            self.members,
            peers,
            self.leaving,
        )

    # --- time

    def tick(self) -> Action | None:
        """One tick of the leader; what it did."""
        self.now += TICK
        self.commit_index += 1
        self._commit()
        self._follow()
        if self.now % S == 0:
            for ask in self.asking:
                self.ask(ask)
        action = self.replacement.step(self.facts(), self.now)
        if action is not None:
            self._carry_out(action)
        return action

    def run(self, seconds: float) -> list[Action]:
        before = len(self.actions)
        for _ in range(int(seconds * S) // TICK):
            self.tick()
        return self.actions[before:]

    def until(self, kind: type[Action], what: str = "", seconds: float = 20) -> Action:
        for _ in range(int(seconds * S) // TICK):
            action = self.tick()
            if isinstance(action, kind) and (not what or getattr(action, "what", "") == what):
                return action
        raise AssertionError(f"no {kind.__name__} {what} within {seconds} s: {self.actions}")

    def _commit(self) -> None:
        if self.committed or not self.majority():
            return
        self.committed = True
        change = ConfigurationChange(self.configuration)
        if self.log and self.log[-1].change.configuration == self.configuration:
            change = self.log[-1].change
        self.ended += self.members.apply(change)
        if self.configuration.joint:
            self._append(leaving_joint(self.configuration))

    def _append(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.configuration_index = self.commit_index + 1
        self.committed = False

    def _follow(self) -> None:
        for member in self.configuration.members():
            p = self.processes.setdefault(member, Process(member))
            if not p.alive or not p.linked or p.hangs or member == self.leader:
                continue
            p.heard_ns = p.answered_ns = self.now
            learner = member in self.configuration.learners
            told = self._told_ns.get(member)
            if not learner or (told is not None and self.now - told >= self.catch_up):
                p.match = self.commit_index
            if not p.applies or not self.committed:
                continue
            report = p.report.due(
                self.now,
                member,
                self.leader,
                self.members,
                self.configuration_index,
                self.configuration_index,
            )
            if report is not None:
                self.replacement.applied(report.node_id, report.applied_index)

    def ask(self, ask: JoinAsk) -> JoinAnswer | JoinTaken:
        answer = self.replacement.ask(ask, self.facts(), self.now)
        self.answers.append(answer)
        if isinstance(answer, JoinTaken):
            self._tell(answer)
        return answer

    def _tell(self, taken: JoinTaken) -> None:
        if taken.incarnation not in [ask.incarnation for ask in self.asking]:
            return
        member = Member(taken.node_id, taken.incarnation)
        self.taken[taken.incarnation] = taken.node_id
        self._told_ns.setdefault(member, self.now)
        self.asking = [ask for ask in self.asking if ask.incarnation != taken.incarnation]

    def _carry_out(self, action: Action) -> None:
        self.actions.append(action)
        match action:
            case ProposeChange():
                assert self.committed, "a change was proposed while another one was open"
                assert problem(self.configuration, action.change.configuration) is None, action
                if self.refuse_proposals:
                    return
                self.log.append(action)
                for member in action.change.configuration.members():
                    if member not in self.processes:
                        process = self.processes[member] = Process(member)
                        process.heard_ns = self.now
                        process.alive = member.incarnation in [ask.incarnation for ask in self.asking]
                self._append(action.change.configuration)
            case Tell():
                self._tell(action.message)
            case Transfer():
                self.begin_lead(action.target)

    # --- faults

    def kill(self, place: int) -> Member:
        """The voter of a place dies."""
        member = self.voter(place)
        self.processes[member].alive = False
        return member

    def voter(self, place: int) -> Member:
        found = self.members.voter_of(f"node-{place}", self.configuration)
        assert found is not None
        return found.member

    @property
    def done(self) -> list[Done]:
        return [action for action in self.actions if isinstance(action, Done)]

    @property
    def proposed(self) -> list[str]:
        return [action.what for action in self.log]
