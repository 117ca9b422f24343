"""Seeded disorder: links drop, processes die and start anew at every step, disks are slow, clocks drift
apart.

After every step the cluster checks what must hold (`Cluster.check`, `check_formed`); at the end everything is
mended and a domain with everybody in it is demanded.
"""

from collections.abc import Callable
from random import Random

import pytest

from tests.node.forming_cluster import Cluster
from ticketing.node.settings import S

Event = Callable[[Cluster, Random], object]


def deliver(cluster: Cluster, rng: Random) -> None:
    if pairs := cluster.busy_links():
        cluster.deliver(*rng.choice(pairs))


def store(cluster: Cluster, rng: Random) -> None:
    if storing := cluster.storing():
        rng.choice(storing).finish_store()


def kill(cluster: Cluster, rng: Random) -> None:
    if living := cluster.processes():
        cluster.kill(rng.choice(living).machine.name)


def start(cluster: Cluster, rng: Random) -> None:
    if dead := [name for name, machine in cluster.machines.items() if machine.process is None]:
        cluster.start(rng.choice(dead))


def any_two(cluster: Cluster, rng: Random) -> tuple[str, str]:
    names = list(cluster.machines)
    return rng.choice(names), rng.choice(names)


def drift(cluster: Cluster, rng: Random) -> None:
    rng.choice(list(cluster.machines.values())).wall_offset_ms = rng.choice((0, 0, 100, 700))


def wait_long(cluster: Cluster, rng: Random) -> None:
    for _ in range(66):
        cluster.tick()


def calm_form(cluster: Cluster, rng: Random) -> None:
    mend(cluster)
    form(cluster)
    wait_long(cluster, rng)


EVENTS: dict[Event, int] = {
    deliver: 36,
    store: 12,
    kill: 4,
    start: 8,
    drift: 1,
    wait_long: 1,
    lambda cluster, rng: cluster.tick(rng.randrange(S // 20, S)): 10,
    lambda cluster, rng: cluster.connect(*any_two(cluster, rng)): 4,
    lambda cluster, rng: cluster.connect_all(): 5,
    lambda cluster, rng: cluster.cut(*any_two(cluster, rng)): 5,
    lambda cluster, rng: cluster.raft_message(*any_two(cluster, rng)): 3,
    lambda cluster, rng: cluster.take_in(any_two(cluster, rng)[0]): 4,
}
OPERATOR_EVENTS: dict[Event, int] = {
    **EVENTS,
    wait_long: 4,
    calm_form: 2,
    lambda cluster, rng: form(cluster): 5,
    lambda cluster, rng: cluster.tick(260 * S): 1,
}


def disturb(cluster: Cluster, rng: Random, events: dict[Event, int]) -> None:
    (event,) = rng.choices(list(events), list(events.values()))
    event(cluster, rng)
    cluster.check()


def form(cluster: Cluster) -> None:
    lowest = next(iter(cluster.machines.values())).process
    if lowest is not None:
        lowest.forming.operator_form(first=False, first_token=0, now_ns=cluster.now_ns)
        lowest.act()


def mend(cluster: Cluster) -> None:
    for name, machine in cluster.machines.items():
        machine.wall_offset_ms = 0
        if machine.process is None:
            cluster.start(name)
    cluster.connect_all()
    cluster.settle()
    cluster.run(2)


def recover(cluster: Cluster) -> None:
    """What an operator does, and what rejoining does."""
    for _ in range(4):
        if not cluster.leading_domains():
            form(cluster)
        cluster.run(33)
        for name in cluster.machines:
            cluster.take_in(name)
        for left in cluster.machines:
            for right in cluster.machines:
                cluster.raft_message(left, right)
        cluster.settle()


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("seed", range(50))
def test_permits_form_one_domain_at_most(count: int, seed: int) -> None:
    rng = Random(f"permit {count} {seed}")
    cluster = Cluster(count, rng)
    cluster.start()
    for _ in range(rng.randrange(20, 150)):
        disturb(cluster, rng, EVENTS)
        assert len(cluster.formed) <= 1
    mend(cluster)
    assert len(cluster.formed) <= 1
    if not any(machine.history for machine in cluster.machines.values()):
        raise AssertionError("all is well and nothing was begun")
    recover(cluster)
    (domain,) = {process.joined for process in cluster.processes()}
    assert domain in cluster.formed


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("seed", range(50))
def test_operators_forms_follow_one_another(count: int, seed: int) -> None:
    rng = Random(f"operator {count} {seed}")
    cluster = Cluster(count, rng, permit=rng.choice(("permit", "")), age_s=rng.choice((60, 4000)))
    cluster.start()
    for _ in range(rng.randrange(50, 300)):
        disturb(cluster, rng, OPERATOR_EVENTS)
    mend(cluster)
    recover(cluster)
    (domain,) = {process.joined for process in cluster.processes()}
    assert domain in cluster.formed


def test_the_disorder_reaches_what_it_is_about() -> None:
    """Marks: over the seeds there are half-formed domains, chains of several, and places taken in."""
    half = chains = served = taken_in = 0
    for seed in range(60):
        rng = Random(f"operator 3 {seed}")
        cluster = Cluster(3, rng, permit=rng.choice(("permit", "")), age_s=rng.choice((60, 4000)))
        cluster.start()
        for _ in range(rng.randrange(50, 300)):
            disturb(cluster, rng, OPERATOR_EVENTS)
        histories = [machine.history for machine in cluster.machines.values()]
        recorded = {state.domain_id for history in histories for state in history}
        half += any(domain not in cluster.formed for domain in recorded)
        chains += len(cluster.formed) > 1
        served += len(cluster.served_ns) > 1
        taken_in += len(cluster.taken_in) > 0
    assert half > 5
    assert chains > 5
    assert served > 1
    assert taken_in > 5
