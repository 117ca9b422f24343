"""Members on a stage: time, deliveries and losses happen only where a script says so, and all is written down.

All members read one clock. What a member sends lies on the wire until it is delivered or dropped. A member's
random draws are replaced by a fixed share for each, so its timeouts can be read off its number: n1 waits 400
ms, n2 450 ms, n3 500 ms, and so on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.raft.hand import output_of
from tests.raft.showing import show_configuration, show_entry, show_message
from ticketing.raft.core import Output, Raft
from ticketing.raft.election import Role
from ticketing.raft.invariants import Witness
from ticketing.raft.messages import AppendEntries, Message, WireEntry, decode, encode
from ticketing.raft.types import (
    BLANK,
    MS,
    Base,
    Configuration,
    Entry,
    EntryKind,
    Member,
    RaftSettings,
    first_base,
)

TURNS_MAX = 200
"""Deliveries in one `stabilise`; past it the members talk in a circle."""

EARLIER = Member(99, 1)
"""Led before the script begins: whose entries a prepared log holds."""


class Share(random.Random):
    """Draws the same share of every range."""

    def __init__(self, share: float) -> None:
        super().__init__(0)
        self._share = share

    def random(self) -> float:
        return self._share


class Snapshot(NamedTuple):
    """A snapshot on the wire: its base and what the state machine had applied."""

    base: Base
    applied: tuple[str, ...]


class SnapshotAnswer(NamedTuple):
    """The receiver of a snapshot has it, or did without."""

    upto: int


class Letter(NamedTuple):
    """Something on the wire."""

    sender: Member
    target: Member
    content: Message | Snapshot | SnapshotAnswer

    @property
    def kind(self) -> str:
        return type(self.content).__name__


class Player:
    """One process life on the stage."""

    def __init__(self, name: str, member: Member, raft: Raft) -> None:
        self.name = name
        self.member = member
        self.raft = raft
        self.witness = Witness(raft)
        self.alive = True
        self.applied: list[str] = []
        self.standing = ""


class Stage:
    """The members, the wire, the clock and the transcript."""

    def __init__(self) -> None:
        self.now = 1000 * MS
        self.settings = RaftSettings()
        self.players: dict[str, Player] = {}
        self.wire: list[Letter] = []
        self.cuts: set[tuple[Member, Member]] = set()
        self.transcript: list[str] = []
        self._names: dict[Member, str] = {EARLIER: "earlier"}
        self._leaders: dict[int, Member] = {}
        self._decided: dict[int, tuple[int, bytes]] = {}

    # --- who is there

    def player(self, name: str) -> Player:
        try:
            return self.players[name]
        except KeyError:
            raise ValueError(f"there is no member {name}") from None

    def member(self, name: str) -> Member:
        return self.player(name).member

    def name(self, member: Member) -> str:
        return self._names.get(member, str(member))

    def names(self, members: Iterable[Member]) -> str:
        return " ".join(self.name(member) for member in members)

    def form(self, voters: int, learners: int = 0) -> None:
        """A domain that was just formed: n1, n2 …, the learners last."""
        members = [Member(number, 1) for number in range(1, voters + learners + 1)]
        configuration = Configuration(tuple(members[:voters]), learners=tuple(members[voters:]))
        for member in members:
            self._start(f"n{member.node_id}", member, first_base(configuration))

    def start_blank(self, name: str) -> None:
        """A process without a log. A name that was there before: another incarnation of its NodeId."""
        number = int(name.strip("n'"))
        incarnation = 1 + name.count("'")
        self._start(name, Member(number, incarnation), BLANK)

    def _start(self, name: str, member: Member, base: Base) -> None:
        share = (member.node_id - 1) / 8
        player = Player(name, member, Raft(member, base, self.settings, Share(share), self.now))
        self.players[name] = player
        self._names[member] = name
        self._say_standing(player)

    def prepare(self, player: Player, terms: Sequence[int]) -> None:
        """Gives a member the entries of these terms, as earlier leaders would have."""
        self._names[EARLIER] = "earlier"
        for term in terms:
            raft = player.raft
            entry = WireEntry(term, EntryKind.COMMANDS, b"t%d" % term, 0)
            append = AppendEntries(term, 1, raft.last_index, raft.last_term, 1, [entry])
            raft.step(EARLIER, append, self.now)
            raft.take_output(self.now)
            player.witness.observe()
        self._say_standing(player)

    # --- turns

    def turn(self, player: Player) -> Output:
        """The end of a member's turn: what it puts out is written down and put on the wire."""
        player.witness.observe()
        output = output_of(player.raft, self.now)
        player.witness.observe()
        self._check_leader(player)
        self._say_standing(player)
        for entry in output.committed:
            self._apply(player, entry)
        for word, ids in (("passed", output.barriers), ("lost", output.barriers_lost)):
            for identity in ids:
                self.say(f"{player.name} barrier {identity} {word}")
        for member in output.snapshots_wanted:
            self.say(f"{player.name} wants a snapshot sent to {self.name(member)}")
        for member in output.given_up:
            self.say(f"{player.name} gives {self.name(member)} up")
        for member in output.rolled_back:
            self.say(f"{player.name} takes {self.name(member)} for rolled back")
        for member, message in output.messages:
            self.post(player.member, member, decode(encode(message)))
        return output

    def _apply(self, player: Player, entry: Entry) -> None:
        fact = (entry.term, entry.data)
        known = self._decided.setdefault(entry.index, fact)
        assert known == fact, f"{player.name} applies {entry}, another applied {known}"
        shown = show_entry(self.names, entry.index, entry)
        player.applied.append(shown)
        self.say(f"{player.name} applies {shown}")

    def _check_leader(self, player: Player) -> None:
        raft = player.raft
        if raft.role is Role.LEADER:
            known = self._leaders.setdefault(raft.term, player.member)
            assert known == player.member, f"{self.name(known)} and {player.name} lead term {raft.term}"

    def post(self, sender: Member, target: Member, content: Message | Snapshot | SnapshotAnswer) -> None:
        """Onto the wire, or into the void."""
        letter = Letter(sender, target, content)
        line = f"{self.name(sender)} -> {self.name(target)} {self.show(content)}"
        if self.reachable(letter):
            self.wire.append(letter)
            self.say(line)
        else:
            self.say(f"{line} (lost)")

    def reachable(self, letter: Letter) -> bool:
        player = self.players.get(self.name(letter.target))
        cut = (letter.sender, letter.target) in self.cuts
        return player is not None and player.alive and not cut

    def hear(self, player: Player, letters: Sequence[Letter]) -> None:
        """Hears letters in one turn."""
        for letter in letters:
            self.say(f"{player.name} <- {self.name(letter.sender)} {self.show(letter.content)}")
            content = letter.content
            if isinstance(content, Snapshot):
                self._hear_snapshot(player, letter.sender, content)
            elif isinstance(content, SnapshotAnswer):
                player.raft.snapshot_done(letter.sender, self.now)
            else:
                player.raft.step(letter.sender, content, self.now)
        self.turn(player)

    def _hear_snapshot(self, player: Player, sender: Member, snapshot: Snapshot) -> None:
        if player.raft.restore(snapshot.base, self.now):
            player.applied = list(snapshot.applied)
            self.say(f"{player.name} restored at {snapshot.base.index}/{snapshot.base.term}")
        else:
            self.say(f"{player.name} has no need of it")
        self.post(player.member, sender, SnapshotAnswer(snapshot.base.index))

    def deliver(
        self,
        names: Sequence[str],
        wanted: Callable[[Letter], bool],
        *,
        among: bool = False,
        count: int | None = None,
    ) -> bool:
        """Delivers what lies on the wire now to these members, in their order, each in one turn; False if
        nothing did.

        `among`: only what one of them sent. `count`: no more than the first so many, in all.
        """
        members = {self.member(name) for name in names}
        some = False
        taken = [
            letter
            for letter in self.wire
            if letter.target in members and wanted(letter) and (not among or letter.sender in members)
        ][:count]
        for letter in taken:
            self.wire.remove(letter)
        for name in names:
            player = self.player(name)
            letters = [letter for letter in taken if letter.target == player.member]
            if letters:
                some = True
                self.hear(player, letters)
        return some

    def stabilise(self, names: Sequence[str], *, among: bool) -> None:
        """Delivers until nothing is under way (between these members)."""
        for _ in range(TURNS_MAX):
            if not self.deliver(names, lambda _: True, among=among):
                return
        raise AssertionError(f"still talking after {TURNS_MAX} rounds")

    def discard(self, wanted: Callable[[Letter], bool]) -> None:
        """Takes letters off the wire."""
        for letter in [letter for letter in self.wire if wanted(letter)]:
            self.wire.remove(letter)
            self.say(f"lost: {self.name(letter.sender)} -> {self.name(letter.target)} {letter.kind}")

    # --- time

    def wait(self, names: Sequence[str], for_ns: int) -> None:
        """Time passes; these members look at the clock when they asked to."""
        end = self.now + for_ns
        players = [self.player(name) for name in names]
        while players:
            player = min(players, key=lambda player: player.raft.next_deadline_ns)
            if player.raft.next_deadline_ns > end:
                break
            self.now = max(self.now, player.raft.next_deadline_ns)
            player.raft.tick(self.now)
            self.turn(player)
        self.now = end

    def run(self, names: Sequence[str], for_ns: int) -> None:
        """Time passes; these members look at the clock when they asked to, and what they send to one another
        takes no time.
        """
        end = self.now + for_ns
        while self.now < end:
            due = min(self.player(name).raft.next_deadline_ns for name in names)
            self.wait(names, min(max(due, self.now + 1), end) - self.now)
            self.stabilise(names, among=True)

    def time_out(self, player: Player) -> None:
        """Time passes until this member's timer runs out; it alone looks at the clock."""
        self.now = max(self.now, player.raft.next_deadline_ns)
        player.raft.tick(self.now)
        self.turn(player)

    # --- the transcript

    def say(self, line: str) -> None:
        self.transcript.append(line)

    def show(self, content: Message | Snapshot | SnapshotAnswer) -> str:
        if isinstance(content, Snapshot):
            base = content.base
            shown = show_configuration(self.names, base.configuration)
            return f"Snapshot {base.index}/{base.term} {shown}"
        if isinstance(content, SnapshotAnswer):
            return f"SnapshotAnswer {content.upto}"
        return show_message(self.names, content)

    def _say_standing(self, player: Player) -> None:
        """One line where role, term, vote, leader or an index changed."""
        raft = player.raft
        role = raft.role.value.replace("_", "-")
        vote = "-" if raft.vote is None else self.name(raft.vote)
        leader = "-" if raft.leader is None else self.name(raft.leader)
        standing = (
            f"{player.name} is {role} term={raft.term} vote={vote} leader={leader}"
            f" commit={raft.commit_index} last={raft.last_index}/{raft.last_term}"
        )
        if raft.role is Role.LEADER and not raft.confirmed:
            standing += " unconfirmed"
        if standing != player.standing:
            player.standing = standing
            self.say(standing)
