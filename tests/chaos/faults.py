"""One function a kind of fault: it strikes, lasts as long as the plan says, and is mended by itself.

What a fault has done is undone in its `finally`, so whatever ends it leaves a good network. `FAULTS` has them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.chaos.cluster import FOLDER
from tests.chaos.machines import Machine
from tests.chaos.network import CUT, RESET, lost
from tests.chaos.plan import Fault
from tests.e2e.waiting import until

if TYPE_CHECKING:
    from tests.chaos.nemesis import Nemesis

STOP_S = 60.0
"""As the shipped unit allows."""
TAKEN_IN_S = 10.0
"""A process that was started again is a voter within this, unless other faults keep it out."""
BAD_DELAY_MS = 40
BAD_LOSS = 5
"""From here on two machines do not count as connected."""


class Withheld(Exception):  # noqa: N818 - no error: what the plan wants makes no sense at this moment
    """The fault cannot strike now."""


async def kill(nemesis: Nemesis, fault: Fault) -> None:
    """SIGKILL; the supervisor starts it again after a while."""
    await _killed(nemesis, nemesis.victim(fault), fault.for_s)


async def kill_two(nemesis: Nemesis, fault: Fault) -> None:
    """Two of five at once."""
    first = nemesis.victim(fault)
    second = Random(fault.facts["draw"]).choice([one for one in nemesis.living() if one is not first])
    await asyncio.gather(_killed(nemesis, first, fault.for_s), _killed(nemesis, second, fault.for_s / 2))


async def kill_twice(nemesis: Nemesis, fault: Fault) -> None:
    """The second process dies somewhere between its start and its being a voter."""
    machine = nemesis.victim(fault)
    await _killed(nemesis, machine, 0.0)
    await asyncio.sleep(fault.for_s)
    await _killed(nemesis, machine, 0.0)


async def _killed(nemesis: Nemesis, machine: Machine, for_s: float) -> None:
    machine.wanted = False
    machine.kill()
    nemesis.changed()
    await asyncio.sleep(for_s)
    if not machine.running:
        machine.start()


async def stop(nemesis: Nemesis, fault: Fault) -> None:
    """SIGTERM: it gives its lead away and asks for leave; started again when it has ended."""
    machine = nemesis.victim(fault)
    machine.wanted = False
    machine.signal(signal.SIGTERM, "stopped")
    nemesis.changed()
    told = machine.pid
    try:
        await until(lambda: not machine.running, "it stops", STOP_S)
    except AssertionError:
        nemesis.note(f"{machine} did not stop within {STOP_S:g} s")
        machine.kill("stopped for too long")
    nemesis.note(f"{machine} {told} has stopped")
    await asyncio.sleep(fault.for_s)
    machine.start()


async def pause(nemesis: Nemesis, fault: Fault) -> None:
    """SIGSTOP and SIGCONT."""
    await _paused(nemesis, [nemesis.victim(fault)], fault.for_s)


async def pause_majority(nemesis: Nemesis, fault: Fault) -> None:
    """Nobody can grant for a while; they wake one after the other."""
    living = nemesis.living()
    rng = Random(fault.facts["draw"])
    await _paused(nemesis, rng.sample(living, len(living) // 2 + 1), fault.for_s)


async def _paused(nemesis: Nemesis, machines: list[Machine], for_s: float) -> None:
    try:
        for machine in machines:
            machine.pause()
        nemesis.changed()
        await asyncio.sleep(for_s)
    finally:
        for machine in machines:
            machine.resume()
        nemesis.changed()


# --- the network


async def _ruled(
    nemesis: Nemesis, paths: Iterable[tuple[str, str]], rule: str, for_s: float, *, bad: bool = True
) -> None:
    """Does something to packets of these directions. `bad`: their ends do not count as connected meanwhile."""
    made = list(paths)
    try:
        nemesis.network.rule(made, rule)
        if bad:
            nemesis.bad_paths.update(made)
        nemesis.changed()
        await asyncio.sleep(for_s)
    finally:
        nemesis.network.mend(made, rule)
        if bad:
            nemesis.bad_paths.subtract(made)
        nemesis.changed()


async def _cut(nemesis: Nemesis, paths: Iterable[tuple[str, str]], for_s: float) -> None:
    await _ruled(nemesis, paths, CUT, for_s)


def _both(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    others = list(others)
    return [path for one in ones for other in others if one != other for path in ((one, other), (other, one))]


async def halves(nemesis: Nemesis, fault: Fault) -> None:
    """The nodes, and the programs with them, fall apart into two sides."""
    rng = Random(fault.facts["draw"])
    names = [machine.name for machine in nemesis.cluster.placed]
    rng.shuffle(names)
    small = names[: len(names) // 2]
    programs = [client.name for client in nemesis.clients if rng.random() < 0.3]
    rest = [name for name in nemesis.everybody() if name not in (*small, *programs)]
    await _cut(nemesis, _both([*small, *programs], rest), fault.for_s)


async def isolated(nemesis: Nemesis, fault: Fault) -> None:
    """One node is alone."""
    machine = nemesis.victim(fault)
    await _cut(nemesis, _both([machine.name], nemesis.everybody()), fault.for_s)


async def leader_without_peers(nemesis: Nemesis, fault: Fault) -> None:
    """The leader is cut from its peers, but not from its clients."""
    leader = nemesis.leader()
    await _cut(
        nemesis, _both([leader.name], [machine.name for machine in nemesis.cluster.placed]), fault.for_s
    )


async def one_way(nemesis: Nemesis, fault: Fault) -> None:
    """One node hears nobody, or nobody hears it."""
    machine = nemesis.victim(fault)
    others = [name for name in nemesis.everybody() if name != machine.name]
    paths = [(name, machine.name) if fault.facts["deaf"] else (machine.name, name) for name in others]
    await _cut(nemesis, paths, fault.for_s)


async def one_link(nemesis: Nemesis, fault: Fault) -> None:
    """Two nodes do not reach each other; everybody else reaches both."""
    one, other = nemesis.pair(fault)
    await _cut(nemesis, _both([one.name], [other.name]), fault.for_s)


async def clients_cut(nemesis: Nemesis, fault: Fault) -> None:
    """Some programs do not reach the leader any more, only the others."""
    leader = nemesis.leader()
    programs = nemesis.some_clients(fault.facts["draw"])
    await _cut(nemesis, _both([leader.name], [client.name for client in programs]), fault.for_s)


def _paths(nemesis: Nemesis, fault: Fault) -> list[tuple[str, str]]:
    """One link, or all of a node's, those to programs included."""
    one, other = nemesis.pair(fault)
    return _both([one.name], nemesis.everybody() if fault.facts.get("wide") else [other.name])


async def _slow(nemesis: Nemesis, fault: Fault, *, bad: bool, **path: float | bool) -> None:
    made = _paths(nemesis, fault)
    try:
        for source, target in made:
            nemesis.slow_path(source, target, **path)
        nemesis.network.slow(made)
        if bad:
            nemesis.bad_paths.update(made)
        nemesis.changed()
        await asyncio.sleep(fault.for_s)
    finally:
        nemesis.network.quick(made)
        if bad:
            nemesis.bad_paths.subtract(made)
        nemesis.changed()


async def delay(nemesis: Nemesis, fault: Fault) -> None:
    """Packets take longer, in their order."""
    facts = fault.facts
    bad = facts["delay_ms"] >= BAD_DELAY_MS
    await _slow(nemesis, fault, bad=bad, delay_ms=facts["delay_ms"], jitter_ms=facts["jitter_ms"])


async def reordering(nemesis: Nemesis, fault: Fault) -> None:
    """Packets overtake each other, and some come twice."""
    milliseconds = fault.facts["delay_ms"]
    await _slow(
        nemesis,
        fault,
        bad=True,
        delay_ms=milliseconds,
        jitter_ms=milliseconds,
        in_order=False,
        twice=fault.facts["twice"],
    )


async def narrow(nemesis: Nemesis, fault: Fault) -> None:
    """So many bytes a second and no more: what does not fit is lost."""
    await _slow(nemesis, fault, bad=True, delay_ms=1, jitter_ms=0, bytes_per_s=fault.facts["bytes_per_s"])


async def loss(nemesis: Nemesis, fault: Fault) -> None:
    """Packets are lost."""
    percent = fault.facts["percent"]
    await _ruled(nemesis, _paths(nemesis, fault), lost(percent), fault.for_s, bad=percent >= BAD_LOSS)


async def resets(nemesis: Nemesis, fault: Fault) -> None:
    """Every connection that a node uses meanwhile is reset."""
    machine = nemesis.victim(fault)
    paths = [(name, machine.name) for name in nemesis.everybody() if name != machine.name]
    await _ruled(nemesis, paths, RESET, fault.for_s)


# --- clocks


async def clock_step(nemesis: Nemesis, fault: Fault) -> None:
    """A wall clock is set, and set right again."""
    await _clocks_set(nemesis, {nemesis.victim(fault): fault.facts["offset_s"]}, fault.for_s)


async def clocks_apart(nemesis: Nemesis, fault: Fault) -> None:
    """No majority of wall clocks agrees: the gate closes."""
    placed = nemesis.cluster.placed
    offset_s = fault.facts["offset_s"]
    ahead = {machine: offset_s * number for number, machine in enumerate(placed)}
    await _clocks_set(nemesis, ahead, fault.for_s)


async def _clocks_set(nemesis: Nemesis, offsets: dict[Machine, float], for_s: float) -> None:
    try:
        for machine, offset_s in offsets.items():
            machine.set_clock(offset_s)
        nemesis.changed()
        await asyncio.sleep(for_s)
    finally:
        for machine in offsets:
            machine.set_clock(0.0)
        nemesis.changed()


async def slow_clock(nemesis: Nemesis, fault: Fault) -> None:
    """A node whose clocks run slow, all of them; where it can it is made to lead."""
    machine = nemesis.victim(fault)
    machine.wanted = False
    machine.kill()
    machine.start(rate=fault.facts["rate"])
    nemesis.changed()
    try:
        cluster = nemesis.cluster
        await cluster.until(lambda seen: seen.leader is not None and cluster.votes(machine), TAKEN_IN_S)
        leader = cluster.leader()
        if leader is not None and leader is not machine:
            await cluster.post(leader, "/v1/transfer", {"to": machine.place, "reason": "chaos"})
        await asyncio.sleep(fault.for_s)
    finally:
        machine.kill()
        if nemesis.going_on:
            machine.start()
        nemesis.changed()


# --- operators


async def transfer(nemesis: Nemesis, fault: Fault) -> None:
    """The lead goes to somebody else, twice."""
    for _ in range(2):
        await nemesis.cluster.post(nemesis.leader(), "/v1/transfer", {"to": None, "reason": "chaos"})
        await asyncio.sleep(min(fault.for_s, 3.0))


async def rolling_restart(nemesis: Nemesis, fault: Fault) -> None:
    """`ticketing node restart --rolling`, while everything is supervised."""
    # A node that is told to stop and ends with 0 is started again by what supervises it.
    words = ("node", "restart", "--rolling", "--supervised", "--reason", "chaos")
    with contextlib.ExitStack() as causes:
        for machine in nemesis.cluster.placed:
            causes.enter_context(machine.may_end("rolling restart"))
        ended = await nemesis.cluster.run(*words, within_s=240)
    nemesis.note(f"rolling restart ended with {ended.status}")


async def replace(nemesis: Nemesis, fault: Fault) -> None:
    """The disk of a host is gone: an operator fills the place anew on the same host."""
    machine = nemesis.victim(fault)
    machine.wanted = False
    machine.kill()
    nemesis.changed()
    await _replaced(nemesis, machine, machine)


async def move(nemesis: Nemesis, fault: Fault) -> None:
    """A place moves to the spare host while its voter lives."""
    spare = nemesis.spare()
    await _replaced(nemesis, nemesis.victim(fault), spare)


async def _replaced(nemesis: Nemesis, old: Machine, new: Machine) -> None:
    """As the runbook has it. It is gone on with until it is done: faults may stop the command meanwhile."""
    cluster = nemesis.cluster
    place = old.place
    assert place is not None
    number = place.removeprefix("node-")
    words = ("node", "replace", "--node", number, "--reason", "chaos", "--yes")
    host = () if old is new else ("--host", new.address)
    for _ in range(20):
        if (await cluster.run(*words, *host, "--no-wait", within_s=60)).status == 0:
            break
        await asyncio.sleep(1)
    else:
        if old is new:
            old.start()  # the folder is whole after all
        raise Withheld(f"{place} could not be announced: {cluster.told[-1]}")
    folder = max(
        (cluster.config / "replacements").glob(f"{place}-*"), key=lambda path: int(path.name.split("-")[-1])
    )
    if old is not new:
        # Its process, which lives, is removed by the swap and must not be started again.
        old.causes.append("replaced")
    new.receive(place, folder)
    new.start()
    nemesis.moving = old if old is not new else None
    try:
        for _ in range(6):
            if (await cluster.run(*words, *host, within_s=60)).status == 0:
                break
        else:
            raise AssertionError(f"{place} was not replaced: {cluster.told[-1]}")
        if old is not new:
            await _taken_over(nemesis, old)
    finally:
        nemesis.moving = None


async def _taken_over(nemesis: Nemesis, old: Machine) -> None:
    """The former process ends for good, and every host gets the files with the new address."""
    await until(lambda: not old.running, f"{old} ends", 60)
    old.give_up()
    for machine in nemesis.cluster.placed:
        source = nemesis.cluster.home / FOLDER / str(machine.place) / "node.toml"
        if source.exists():
            _copy(source, machine.home / "node.toml")


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o600)


# --- limits


async def few_files(nemesis: Nemesis, fault: Fault) -> None:
    """A node that may open (almost) nothing more. Who is no member yet cannot keep its record, and ends saying so."""
    machine = nemesis.victim(fault)
    votes = nemesis.cluster.votes(machine)
    with contextlib.nullcontext() if votes else machine.may_end("cannot keep its record"):
        await _limited(nemesis, machine, fault.for_s, lambda: machine.limit_files(fault.facts["room"]))


async def little_memory(nemesis: Nemesis, fault: Fault) -> None:
    """A node that gets (almost) no more memory."""
    machine = nemesis.victim(fault)
    with machine.may_end("out of memory"):
        await _limited(nemesis, machine, fault.for_s, lambda: machine.limit_memory(fault.facts["room"]))


async def _limited(nemesis: Nemesis, machine: Machine, for_s: float, limit: Callable[[], None]) -> None:
    try:
        limit()
        nemesis.changed()
        await asyncio.sleep(for_s)
    finally:
        machine.lift_limits()
        nemesis.changed()


# --- programs


async def client_killed(nemesis: Nemesis, fault: Fault) -> None:
    """Programs die in the middle of their work; others are started."""
    hit = nemesis.some_clients(fault.facts["draw"])
    for client in hit:
        client.wanted = False
        client.kill()
    try:
        await asyncio.sleep(fault.for_s)
    finally:
        for client in hit:
            if nemesis.going_on and not client.running:
                client.start()


async def client_paused(nemesis: Nemesis, fault: Fault) -> None:
    """Programs stand still, with all they hold."""
    hit = nemesis.some_clients(fault.facts["draw"])
    try:
        for client in hit:
            client.pause()
        nemesis.changed()
        await asyncio.sleep(fault.for_s)
    finally:
        for client in hit:
            client.resume()
        nemesis.changed()


FAULTS: Mapping[str, Callable[[Nemesis, Fault], Awaitable[None]]] = {
    function.__name__: function
    for function in (
        kill,
        kill_two,
        kill_twice,
        stop,
        pause,
        pause_majority,
        halves,
        isolated,
        leader_without_peers,
        one_way,
        one_link,
        clients_cut,
        delay,
        reordering,
        loss,
        narrow,
        resets,
        clock_step,
        clocks_apart,
        slow_clock,
        replace,
        move,
        rolling_restart,
        few_files,
        little_memory,
        transfer,
        client_killed,
        client_paused,
    )
} | {"pause_long": pause}
