"""Plays interaction scripts (`scripts/README.md` has the language) and writes their transcripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.raft.showing import show_configuration, show_entries, show_progress
from tests.raft.stage import Letter, Player, Snapshot, Stage
from ticketing.raft.membership import ChangeRefused, swapping, with_learner, without_learner
from ticketing.raft.types import MS, Configuration, ConfigurationChange, RaftSettings

INDENT = "    "
"""Lines that begin like this are transcript, all others are the script's own."""

Options: TypeAlias = dict[str, str]
Command: TypeAlias = Callable[[Stage, list[str], Options], None]


def play(text: str) -> str:
    """The script with the transcript that the core gives now in place of the one that it has."""
    stage = Stage()
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if not line or line.startswith("#"):
            continue
        try:
            _perform(stage, line)
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(f"line {number}: {line}: {error!r}") from error
        lines += [INDENT + said for said in stage.transcript]
        stage.transcript.clear()
    return "\n".join(lines) + "\n"


def _perform(stage: Stage, line: str) -> None:
    words = line.split()
    silently = words[0] == "silently"
    if silently:
        del words[0]
    command = COMMANDS[words[0]]
    plain = [word for word in words[1:] if "=" not in word]
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    command(stage, plain, options)
    if options:
        raise ValueError(f"unknown options {sorted(options)}")
    if silently:
        stage.transcript.clear()


def _duration(text: str) -> int:
    if not text.endswith("ms"):
        raise ValueError(f"{text} is no duration in ms")
    return int(text[:-2]) * MS


def _names(stage: Stage, words: Sequence[str]) -> list[str]:
    """These members, or all that live."""
    if words:
        for word in words:
            stage.player(word)
        return list(words)
    return [name for name, player in stage.players.items() if player.alive]


def _filter(stage: Stage, options: Options) -> Callable[[Letter], bool]:
    sender = options.pop("from", None)
    kind = options.pop("kind", None)
    return lambda letter: (
        (sender is None or stage.name(letter.sender) == sender) and (kind is None or letter.kind == kind)
    )


def _two(stage: Stage, words: list[str]) -> tuple[Player, Player]:
    first, second = words
    return stage.player(first), stage.player(second)


# --- who is there


def _settings(stage: Stage, _: list[str], options: Options) -> None:
    known = set(RaftSettings.__struct_fields__)
    if not known.issuperset(options):
        raise ValueError(f"unknown settings {sorted(set(options) - known)}")
    stage.settings = RaftSettings(**{name: int(value) for name, value in options.items()})
    options.clear()


def _form(stage: Stage, words: list[str], options: Options) -> None:
    (voters,) = words
    stage.form(int(voters), int(options.pop("learners", "0")))


def _blank(stage: Stage, words: list[str], _: Options) -> None:
    for name in words:
        stage.start_blank(name)


def _entries(stage: Stage, words: list[str], _: Options) -> None:
    stage.prepare(stage.player(words[0]), [int(term) for term in words[1:]])


def _kill(stage: Stage, words: list[str], _: Options) -> None:
    for name in words:
        player = stage.player(name)
        player.alive = False
        stage.discard(lambda letter, dead=player.member: letter.target == dead)  # type: ignore[misc]


# --- wire and time


def _deliver(stage: Stage, words: list[str], options: Options) -> None:
    count = int(options.pop("count", "0")) or None
    if not stage.deliver(_names(stage, words), _filter(stage, options), count=count):
        raise ValueError("nothing is under way to them")


def _stabilise(stage: Stage, words: list[str], _: Options) -> None:
    stage.stabilise(_names(stage, words), among=bool(words))


def _drop(stage: Stage, words: list[str], options: Options) -> None:
    targets = {stage.member(name) for name in words}
    wanted = _filter(stage, options)
    stage.discard(lambda letter: (not targets or letter.target in targets) and wanted(letter))


def _double(stage: Stage, words: list[str], options: Options) -> None:
    targets = {stage.member(name) for name in words}
    wanted = _filter(stage, options)
    stage.wire += [letter for letter in stage.wire if letter.target in targets and wanted(letter)]


def _reverse(stage: Stage, words: list[str], _: Options) -> None:
    targets = {stage.member(name) for name in words}
    turned = [letter for letter in stage.wire if letter.target in targets]
    stage.wire = [letter for letter in stage.wire if letter.target not in targets] + turned[::-1]


def _wire(stage: Stage, _: list[str], __: Options) -> None:
    for letter in stage.wire:
        stage.say(f"{stage.name(letter.sender)} -> {stage.name(letter.target)} {stage.show(letter.content)}")
    if not stage.wire:
        stage.say("nothing is under way")


def _partition(stage: Stage, words: list[str], _: Options) -> None:
    """Groups are written `n1,n2`; members of different groups do not reach each other."""
    groups = [[stage.member(name) for name in word.split(",")] for word in words]
    for group in groups:
        for other in groups:
            if other is not group:
                stage.cuts |= {(one, two) for one in group for two in other}
    stage.discard(lambda letter: not stage.reachable(letter))


def _cut(stage: Stage, words: list[str], _: Options) -> None:
    sender, target = _two(stage, words)
    stage.cuts.add((sender.member, target.member))
    stage.discard(lambda letter: not stage.reachable(letter))


def _heal(stage: Stage, _: list[str], __: Options) -> None:
    stage.cuts.clear()


def _wait(stage: Stage, words: list[str], _: Options) -> None:
    stage.wait(_names(stage, words[1:]), _duration(words[0]))


def _run(stage: Stage, words: list[str], _: Options) -> None:
    stage.run(_names(stage, words[1:]), _duration(words[0]))


def _timeout(stage: Stage, words: list[str], _: Options) -> None:
    (name,) = words
    stage.time_out(stage.player(name))


def _gap(stage: Stage, words: list[str], _: Options) -> None:
    player, gap = stage.player(words[0]), _duration(words[1])
    stage.now += gap
    player.raft.after_gap(gap, stage.now)
    player.raft.tick(stage.now)
    stage.turn(player)


# --- wishes


def _campaign(stage: Stage, words: list[str], _: Options) -> None:
    (name,) = words
    player = stage.player(name)
    player.raft.campaign(stage.now)
    stage.turn(player)


def _leader_gone(stage: Stage, words: list[str], _: Options) -> None:
    for name in words:
        player = stage.player(name)
        player.raft.leader_gone(stage.now)
        stage.turn(player)


def _link(stage: Stage, words: list[str], _: Options) -> None:
    player, other = _two(stage, words)
    player.raft.link_up(other.member, stage.now)
    stage.turn(player)


def _propose(stage: Stage, words: list[str], options: Options) -> None:
    """All that is proposed here is one turn."""
    player = stage.player(words[0])
    reserved = options.pop("reserved", "no") == "yes"
    size = int(options.pop("size", "0"))
    for text in words[1:]:
        data = text.encode().ljust(size, b".")
        refusal = player.raft.refusal(len(data), reserved=reserved)
        index = player.raft.propose(data, stage.now, reserved=reserved)
        assert (refusal is None) == (index > 0)
        if refusal is not None:
            stage.say(f"{player.name} refuses {text}: {refusal}")
    stage.turn(player)


def _barrier(stage: Stage, words: list[str], _: Options) -> None:
    (name,) = words
    player = stage.player(name)
    identity = player.raft.begin_barrier()
    stage.say(f"{player.name} begins barrier {identity}" if identity else f"{player.name} does not lead")
    stage.turn(player)


def _transfer(stage: Stage, words: list[str], _: Options) -> None:
    player, target = _two(stage, words)
    reason = player.raft.transfer(target.member, stage.now)
    if reason is not None:
        stage.say(f"{player.name} refuses: {reason}")
    stage.turn(player)


def _change(stage: Stage, player: Player, configuration: Configuration) -> None:
    try:
        player.raft.propose_configuration(ConfigurationChange(configuration), stage.now)
    except ChangeRefused as refused:
        stage.say(f"{player.name} refuses: {refused}")
    stage.turn(player)


def _add_learner(stage: Stage, words: list[str], _: Options) -> None:
    player, learner = _two(stage, words)
    _change(stage, player, with_learner(player.raft.configuration, learner.member))


def _remove_learner(stage: Stage, words: list[str], _: Options) -> None:
    player, learner = _two(stage, words)
    _change(stage, player, without_learner(player.raft.configuration, learner.member))


def _swap(stage: Stage, words: list[str], _: Options) -> None:
    player = stage.player(words[0])
    old, new = _two(stage, words[1:])
    _change(stage, player, swapping(player.raft.configuration, old.member, new.member))


def _voters(stage: Stage, words: list[str], options: Options) -> None:
    """A joint change to any voters; `direct=yes` asks for it without the joint step. `learners=n3,n4`: with
    these; else with those of before that do not become voters.
    """
    player = stage.player(words[0])
    now = player.raft.configuration
    voters = tuple(stage.member(name) for name in words[1:])
    outgoing = () if options.pop("direct", "no") == "yes" else now.voters
    learners = tuple(member for member in now.learners if member not in voters)
    if "learners" in options:
        learners = tuple(stage.member(name) for name in options.pop("learners").split(","))
    _change(stage, player, Configuration(voters, outgoing, learners))


def _snapshot(stage: Stage, words: list[str], _: Options) -> None:
    player, target = _two(stage, words)
    base = player.raft.snapshot_base()
    if not player.raft.snapshot_begun(target.member, base, stage.now):
        stage.say(f"{player.name} does not begin one")
        return
    stage.post(player.member, target.member, Snapshot(base, tuple(player.applied)))
    stage.turn(player)


def _snapshot_failed(stage: Stage, words: list[str], _: Options) -> None:
    player, target = _two(stage, words)
    player.raft.snapshot_failed(target.member, stage.now)
    stage.turn(player)


# --- looking


def _status(stage: Stage, words: list[str], _: Options) -> None:
    for name in _names(stage, words):
        player = stage.player(name)
        raft = player.raft
        shown = show_configuration(stage.names, raft.configuration)
        stage.say(f"{player.standing} configuration={shown}")
        for line in show_progress(stage.name, raft):
            stage.say(f"  {line}")


def _log(stage: Stage, words: list[str], _: Options) -> None:
    for name in _names(stage, words):
        log = stage.player(name).raft._replica.log
        entries = log.entries(log.base_index + 1, log.last_index)
        shown = show_entries(stage.names, log.base_index + 1, entries)
        stage.say(f"{name} base={log.base_index}/{log.base_term} {shown}")


def _applied(stage: Stage, words: list[str], _: Options) -> None:
    for name in _names(stage, words):
        stage.say(f"{name} [{' '.join(stage.player(name).applied)}]")


COMMANDS: dict[str, Command] = {
    "add-learner": _add_learner,
    "applied": _applied,
    "barrier": _barrier,
    "blank": _blank,
    "campaign": _campaign,
    "cut": _cut,
    "deliver": _deliver,
    "double": _double,
    "drop": _drop,
    "entries": _entries,
    "form": _form,
    "gap": _gap,
    "heal": _heal,
    "kill": _kill,
    "leader-gone": _leader_gone,
    "link": _link,
    "log": _log,
    "partition": _partition,
    "propose": _propose,
    "remove-learner": _remove_learner,
    "reverse": _reverse,
    "run": _run,
    "settings": _settings,
    "snapshot": _snapshot,
    "snapshot-failed": _snapshot_failed,
    "stabilise": _stabilise,
    "status": _status,
    "swap": _swap,
    "timeout": _timeout,
    "transfer": _transfer,
    "voters": _voters,
    "wait": _wait,
    "wire": _wire,
}
