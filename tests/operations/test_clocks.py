"""Clocks that are set, or run at a wrong rate, on real processes (spec 7, 8; field reports F046, F086)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, NodeProcess, run_ticketing, told_status
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.waiting import until_told
from tests.operations.machines import faked_wall_clock, forget_faked_clock
from tests.operations.needs import libfaketime

pytestmark = [pytest.mark.process, pytest.mark.slow]

LATE_S = 10.0
"""What an end may be late where the machine has much else to do. By the wall clocks it would be off by an hour."""
WITHIN_S = 60.0
UNHEALTHY, BUSY = 9, 4
OFFSETS = ("+3600s", "-3600s")
SETTINGS = {
    # Processes that stand still for a second are not dead here, and clocks that are off are so by an hour: what these
    # tests are about does not hang on how busy the machine is.
    "delta_ms": 2000,
    "leader_lease_ms": 2000,
    "election_timeout_min_ms": 2000,
    "election_timeout_max_ms": 4000,
    "quorum_check_ms": 4000,
}


class Clocked:
    """A cluster whose nodes' clocks are in the test's hand."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pids: list[int] = []
        for node in cluster.nodes:
            text = node.config.read_text()
            for key, value in SETTINGS.items():
                text, count = re.subn(rf"^# {key} = \d+$", f"{key} = {value}", text, flags=re.MULTILINE)
                assert count == 1, key
            node.config.write_text(text)
            self.step(node, "+0")
            node.environment = faked_wall_clock(node.folder / "clock")

    def step(self, node: NodeProcess, offset: str) -> None:
        """Sets a wall clock off by so much, within the second or two that the library keeps what it read."""
        (node.folder / "clock").write_text(offset + "\n")

    def run_at(self, node: NodeProcess, rate: str) -> None:
        """All clocks of the next process of this node run at a rate, e.g. `x1.01`."""
        node.environment = {"LD_PRELOAD": libfaketime(), "FAKETIME": f"+0 {rate}"}

    def start(self) -> None:
        for node in self.cluster.nodes:
            self.start_one(node)

    def start_one(self, node: NodeProcess) -> None:
        node.start()
        self.pids.append(node.pid)

    async def seen(
        self, leader: NodeProcess, of: NodeProcess, *verdicts: str, within_s: float = WITHIN_S
    ) -> None:
        """Waits until the leader has come to a verdict on a node's clock."""

        async def judged() -> bool:
            status = await leader.status()
            peers = status["clock"]["peers"] if status is not None else []
            return any(peer["place"] == of.place and peer["verdict"] in verdicts for peer in peers)

        await until_told(judged, f"{leader.place} finds {of.place} {' or '.join(verdicts)}", within_s)

    async def gate(self, leader: NodeProcess, wanted: str, within_s: float = WITHIN_S) -> None:
        async def is_so() -> bool:
            status = await leader.status()
            return status is not None and status["clock"]["gate"] == wanted

        await until_told(is_so, f"the gate of {leader.place} is {wanted}", within_s)

    async def ask(self, *words: str, status: int = 0, shows: Callable[[Any], object] = bool) -> Any:
        """A command of the operator's, `-o json`, once it ends with this status and shows what is looked for.

        Asked anew until then: a sample of a clock that came late makes its verdict `unknown` for a moment.
        """
        config = self.cluster.folder / "client.toml"

        async def asked() -> Any:
            ended = await asyncio.to_thread(
                run_ticketing, *words, "--config", config, "-o", "json", folder=self.cluster.folder
            )
            assert "Traceback" not in ended.error
            found = json.loads(ended.out) if ended.out else None
            return found if ended.status == status and found is not None and shows(found) else None

        return await until_told(asked, f"{' '.join(words)} shows it", WITHIN_S)


@pytest.fixture
def clocked(make_cluster: MakeCluster) -> Iterator[Clocked]:
    libfaketime()
    made = Clocked(make_cluster())
    yield made
    made.cluster.end()
    for pid in made.pids:
        forget_faked_clock(pid)


def replicas_are_equal(doctor: Any) -> bool:
    """Whatever the clocks do: the nodes' states at one index are the same (F086)."""
    return any(
        found["check"] == "state" and found["verdict"] == "ok" and "are equal at index" in found["detail"]
        for found in doctor["findings"]
    )


async def term_of(node: NodeProcess) -> int:
    return int((await told_status(node))["raft"]["term"])


async def test_a_followers_wall_clock_that_is_set_stops_nothing_and_is_named(
    clocked: Clocked, open_session: OpenSession
) -> None:
    clocked.start()
    leader = await clocked.cluster.whole(within_s=90)
    follower = clocked.cluster.others(leader)[0]
    session = await open_session(leader)
    term = await term_of(leader)
    for offset in OFFSETS:
        key = offset.encode()
        asked_at = time.monotonic()
        held = await session.acquire(b"lease" + key, 0, 4)
        after_it = session.acquire(b"lease" + key, 60, 5)
        forever = await session.acquire(b"wait" + key, 0, 250)
        waits = session.acquire(b"wait" + key, 3, 5)
        clocked.step(follower, offset)
        await clocked.seen(leader, follower, "outside")
        granted = await after_it
        assert asked_at + 4 <= granted.at <= held.at + 4 + LATE_S, "the lease ended at its real duration"
        ran_out = await waits
        assert ran_out.what == "T"
        assert forever.at + 3 <= ran_out.at + 0.001 <= forever.at + 3 + LATE_S, "so did the wait"
        assert (await session.acquire(b"free" + key, 20, 5)).what == "G"
        await clocked.ask("clock", "--check", status=UNHEALTHY, shows=partial(open_without, follower))
        await clocked.ask("status", shows=partial(measured_off_by, offset, follower))

        clocked.step(follower, "+0")
        await clocked.seen(leader, follower, "inside")
        await clocked.ask("clock", "--check", shows=lambda view: view["faults"] == [])
    await clocked.ask("doctor", shows=replicas_are_equal)
    assert await term_of(leader) == term, "no election"


def open_without(odd: NodeProcess, view: Any) -> bool:
    """`clock` says that grants go on, and names the clock that is off."""
    named = any(odd.place in fault and "outside" in fault for fault in view["faults"])
    return view["gate"] == "open" and named


def measured_off_by(offset: str, odd: NodeProcess, status: Any) -> bool:
    found = next(n for n in status["nodes"] if n["place"] == odd.place)["clock_difference_ms"]
    return found is not None and abs(found - float(offset[:-1]) * 1000) < 1000


async def test_a_leader_whose_wall_clock_is_set_hands_the_lead_on_with_every_lease_as_it_was(
    clocked: Clocked, open_session: OpenSession
) -> None:
    clocked.start()
    leader = await clocked.cluster.whole(within_s=90)
    for offset in OFFSETS:
        key = b"lease" + offset.encode()
        session = await open_session(leader)
        asked_at = time.monotonic()
        held = await session.acquire(key, 20, 6)
        asked_at += held.waited_ms / 1000
        clocked.step(leader, offset)
        others = clocked.cluster.others(leader)
        new = await clocked.cluster.leader(others, within_s=WITHIN_S)
        assert new is not leader
        session = await open_session(new)
        granted = await session.acquire(key, 60, 5)
        assert granted.what == "G"
        assert granted.token > held.token
        assert asked_at + 6 <= granted.at <= held.at + 6 + LATE_S
        await clocked.seen(new, leader, "outside")
        named = f"{leader.place} is outside"
        await clocked.ask("clock", shows=partial(says, named))
        await clocked.ask("doctor", status=UNHEALTHY, shows=replicas_are_equal)
        assert "own clock outside: giving the lead away" in leader.log.read_text()
        clocked.step(leader, "+0")
        await clocked.seen(new, leader, "inside")
        leader = await clocked.cluster.leader(within_s=WITHIN_S)


def says(text: str, view: Any) -> bool:
    return text in " ".join(view["faults"])


async def test_while_too_few_clocks_agree_nothing_is_granted_and_everything_else_goes_on(
    clocked: Clocked, open_session: OpenSession
) -> None:
    clocked.start()
    leader = await clocked.cluster.whole(within_s=90)
    ahead, behind = clocked.cluster.others(leader)
    session = await open_session(leader)
    term = await term_of(leader)
    given_back = await session.acquire(b"released", 0, 250)
    extended = await session.acquire(b"extended", 0, 60)
    expiring = await session.acquire(b"expiring", 0, 6)
    queued = session.acquire(b"released", 60, 5)
    second = session.acquire(b"expiring", 60, 5)
    clocked.step(ahead, "+3600s")
    clocked.step(behind, "-3600s")
    await clocked.gate(leader, "closed")

    assert (await session.acquire(b"free", 0, 5)).what == "B", "no try is made"
    asked_at = time.monotonic()
    short = session.acquire(b"free", 2, 5)
    assert (await session.release(given_back.token, b"released")).what == "R"
    assert (await session.extend(extended.token, 100, b"extended")).what == "X"
    ran_out = await short
    assert ran_out.what == "T"
    assert asked_at + 2 <= ran_out.at + 0.001 <= asked_at + 2 + LATE_S
    assert not queued.done(), "whoever waited goes on waiting"
    await asyncio.sleep(max(0.0, expiring.at + 6 + 0.5 - time.monotonic()))  # its lease is over now
    assert (await session.release(expiring.token, b"expiring")).what == "N"
    assert not second.done()

    def both_named(view: Any) -> bool:
        faults = " ".join(view["faults"])
        return view["gate"] == "closed" and all(
            f"{node.place} is outside" in faults for node in (ahead, behind)
        )

    await clocked.ask("clock", "--check", status=UNHEALTHY, shows=both_named)
    await clocked.ask(
        "status", "--check", status=UNHEALTHY, shows=lambda status: "clocks" in " ".join(status["faults"])
    )
    config = clocked.cluster.folder / "client.toml"
    words = ("acquire", "free", "--wait", "0", "--config", config)
    busy = await asyncio.to_thread(run_ticketing, *words, folder=clocked.cluster.folder)
    assert busy.status == BUSY, busy

    clocked.step(ahead, "+0")
    first, then = await asyncio.wait_for(queued, WITHIN_S), await asyncio.wait_for(second, WITHIN_S)
    assert first.what == then.what == "G"
    assert first.token > expiring.token
    assert await term_of(leader) == term, "no election"


async def not_led_by(cluster: Cluster, odd: NodeProcess) -> NodeProcess | None:
    leader = await cluster.leader()
    return None if leader is odd else leader


async def test_an_elapsed_clock_at_a_wrong_rate_closes_the_gate_where_it_is_needed(
    clocked: Clocked, open_session: OpenSession
) -> None:
    true, fast, spare = clocked.cluster.nodes
    clocked.run_at(fast, "x1.01")
    clocked.start()
    await clocked.cluster.whole(within_s=90)
    # Where the odd one leads it gives the lead away as soon as its rate is proved.
    leader = await until_told(lambda: not_led_by(clocked.cluster, fast), f"{fast.place} does not lead")
    await clocked.seen(leader, fast, "rate")
    other = spare if leader is true else true
    session = await open_session(leader)
    asked_at = time.monotonic()
    held = await session.acquire(b"lease", 0, 4)
    granted = await session.acquire(b"lease", 60, 5)
    assert asked_at + 4 <= granted.at <= held.at + 4 + LATE_S
    kept = await session.acquire(b"kept", 0, 250)

    other.kill()
    await clocked.gate(leader, "closed")
    assert (await session.acquire(b"free", 0, 5)).what == "B"
    queued = session.acquire(b"queued", 60, 5)
    assert (await session.release(kept.token, b"kept")).what == "R"
    await clocked.ask("clock", shows=lambda view: f"{fast.place} is " in " ".join(view["faults"]))
    assert not queued.done()
    clocked.start_one(other)
    assert (await asyncio.wait_for(queued, WITHIN_S)).what == "G"
    await clocked.ask("doctor", status=UNHEALTHY, shows=replicas_are_equal)
