"""A newcomer follows docs/operations.md on three hosts with TLS, and one more, while programs use the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.operations.load import Load
from tests.operations.machines import OPERATOR, Machines
from tests.operations.namespaces import network
from tests.operations.needs import libfaketime, need_namespaces
from tests.operations.runbook import Line, read_runbook, sections

pytestmark = [pytest.mark.process, pytest.mark.slow]

HOSTS = ("a.example", "b.example", "c.example", "d.example")
UNHEALTHY, UNREACHABLE, BUSY = 9, 7, 4
CLUSTER = "ticketing-cluster"
BOOK = read_runbook()


def test_commands_are_found_where_they_stand() -> None:
    text = (
        "## One\n```console\nops$ do this\nand its output\na.example# that\n```\nops$ not this\n"
        "## Two\n```sh\nops$ nor this\n```\n"
    )
    assert sections(text) == {"One": [Line("ops", "do this"), Line("a.example", "that")], "Two": []}
    assert {line.host for lines in BOOK.values() for line in lines} == {OPERATOR, *HOSTS}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    need_namespaces()
    libfaketime()
    with network(OPERATOR, HOSTS) as wires:
        made = Machines(tmp_path, wires, HOSTS)
        try:
            yield made
        finally:
            print(made.logs())  # shown where the test failed
            made.end()


class Operator:
    """The newcomer: types what the runbook says and looks at what comes of it."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines

    def follow(
        self, section: str, words: dict[str, str] | None = None, *, skip: int = 0, upto: int | None = None
    ) -> str:
        return self.machines.type_all(BOOK[section][skip:upto], words)

    def ask(self, *words: str, status: int = 0) -> Any:
        """A command with `-o json`."""
        ended = self.machines.run("ticketing", *words, "-o", "json")
        self.machines.told.append(f"{' '.join(words)} -> {ended}")
        assert ended.status == status, ended
        return json.loads(ended.out)

    def status(self) -> Any:
        """What `status` tells once a leader serves: on a busy machine there may be an election at any time."""

        def served() -> Any:
            ended = self.machines.run("ticketing", "status", "-o", "json")
            self.machines.told.append(f"status -> {ended}")
            return json.loads(ended.out) if ended.status == 0 else None

        return self.until(served, "a leader serves", within_s=30)

    def until(self, ready: Callable[[], Any], what: str, within_s: float = 20.0) -> Any:
        deadline = time.monotonic() + within_s
        while not (found := ready()):
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}\n{self.machines.logs()}"
            time.sleep(0.2)
        return found


def test_the_runbook_from_the_first_day_to_the_worst(machines: Machines, tmp_path: Path) -> None:
    operator = Operator(machines)
    operator.follow("Setting up")
    first = operator.status()
    assert first["served"]
    assert first["redundancy"] == 1

    load = Load(machines, machines.home / CLUSTER / "client.toml", tmp_path / "load.jsonl")
    try:
        load.await_event("held", count=10)
        load.goes_on()
        story_of_one_domain(operator, load, first)
        load.judge(
            longest_pause_s=30
        )  # elections, and the silence of a host that is cut off, on a busy machine
        clocks_stop_grants(operator, load)
        load.finish()
        load.judge(longest_pause_s=60)
        load.judge_held()
        assert not load.events("release failed"), load.events("release failed")
    finally:
        load.end()
    majority_is_lost(operator, load, first)


def story_of_one_domain(operator: Operator, load: Load, first: Any) -> None:
    """Everything that must cost no grant."""
    watching(operator)
    losing_a_node(operator, load)
    replacing_a_node(operator, load)
    rotating_tokens(operator, load)
    renewing_certificates(operator, load)
    restarting(operator, load)
    assert operator.status()["domain"] == first["domain"]


def watching(operator: Operator) -> None:
    said = operator.follow("Watching")
    assert "held/0" in said, said
    assert "gate open" in said
    operator.until(lambda: operator.machines.run("ticketing", "doctor").status == 0, "nothing is wrong")
    findings = operator.ask("doctor")["findings"]
    (replicas,) = [found for found in findings if found["check"] == "state"]
    assert replicas["verdict"] == "ok", replicas  # compared while locks are taken and given back
    assert "are equal at index" in replicas["detail"]


def losing_a_node(operator: Operator, load: Load) -> None:
    machines = operator.machines
    machines.hosts["b.example"].switch_off("node-2")
    load.goes_on()
    checked = machines.type(BOOK["Watching"][0], may_fail=True)
    assert checked.status == UNHEALTHY, checked
    assert "node-2 does not answer" in checked.out + checked.error
    operator.follow("Losing a node")
    load.goes_on()


def replacing_a_node(operator: Operator, load: Load) -> None:
    machines = operator.machines
    machines.network.cut("b.example")  # this time for good, and nobody told its process
    before = operator.until(
        lambda: next(
            (n for n in operator.status()["nodes"] if n["place"] == "node-2" and not n["reachable"]), None
        ),
        "node-2 is missed",
    )
    assert before["admin"] == "b.example:7225"
    operator.follow("Replacing a node")
    load.goes_on()
    status = operator.status()
    assert status["redundancy"] == 1
    moved = next(node for node in status["nodes"] if node["place"] == "node-2")
    assert moved["admin"] == "d.example:7225"
    assert "d.example:5225" in (machines.home / CLUSTER / "client.toml").read_text()
    # The former process was alive all the time: it ends for good as soon as it hears of its removal.
    machines.network.mend("b.example")
    assert machines.hosts["b.example"].ended("node-2", within_s=20) == 12
    load.goes_on()


def rotating_tokens(operator: Operator, load: Load) -> None:
    lines = BOOK["Rotating tokens"]
    use = next(number for number, line in enumerate(lines) if "FINGERPRINT" in line.command)
    before = operator.ask("token", "list", "--dir", CLUSTER)["tokens"]
    operator.follow("Rotating tokens", upto=use)
    after = operator.ask("token", "list", "--dir", CLUSTER)["tokens"]
    fresh = {row["fingerprint"] for row in after} - {row["fingerprint"] for row in before}
    assert len(fresh) == 1, after
    words = {"FINGERPRINT": fresh.pop()}
    operator.until(
        lambda: operator.machines.type(lines[use], words, may_fail=True).status == 0, "every node accepts it"
    )
    load.reopen()
    admin = next(number for number, line in enumerate(lines) if "add --kind admin" in line.command)
    operator.follow("Rotating tokens", skip=use + 1, upto=admin)
    load.goes_on()
    (left,) = {row["fingerprint"] for row in operator.ask("token", "list", "--dir", CLUSTER)["tokens"]}
    assert left == words["FINGERPRINT"]
    rotating_the_admin_token(operator, lines[admin:])
    operator.until(lambda: operator.machines.run("ticketing", "doctor").status == 0, "nothing is wrong")


def rotating_the_admin_token(operator: Operator, lines: list[Line]) -> None:
    machines = operator.machines

    def tokens() -> list[str]:
        rows = operator.ask("token", "list", "--kind", "admin", "--dir", CLUSTER)["tokens"]
        return list(dict.fromkeys(row["fingerprint"] for row in rows))

    use = next(number for number, line in enumerate(lines) if "ADMIN-FINGERPRINT" in line.command)
    (former,) = tokens()
    added = machines.type(lines[0])
    assert "has loaded other admin tokens than in the files here" in added.error
    machines.type_all(lines[1:use])
    assert len(tokens()) == 2
    words = {"ADMIN-FINGERPRINT": tokens()[1]}
    operator.until(lambda: machines.type(lines[use], words, may_fail=True).status == 0, "all accept it")
    machines.type_all(lines[use + 1 :])
    assert tokens() == [words["ADMIN-FINGERPRINT"]] != [former]


def renewing_certificates(operator: Operator, load: Load) -> None:
    before = operator.status()
    ends = {
        row["place"]: row["ends_ms"] for row in operator.ask("cert", "show", "--dir", CLUSTER)["certificates"]
    }
    lines = BOOK["Renewing certificates"]
    another = next(number for number, line in enumerate(lines) if "add-ca" in line.command)
    operator.follow("Renewing certificates", upto=another)
    load.goes_on()
    shown = {
        row["place"]: row["ends_ms"] for row in operator.ask("cert", "show", "--dir", CLUSTER)["certificates"]
    }
    assert all(shown[place] > ends[place] for place in ("node-1", "node-2", "node-3"))
    after = operator.status()
    assert (after["leader"], after["term"]) == (before["leader"], before["term"]), "links were kept"
    operator.follow("Renewing certificates", skip=another)
    load.reopen()  # with the new authority alone
    load.goes_on()


def restarting(operator: Operator, load: Load) -> None:
    before = {node["place"]: int(node["node_id"]) for node in operator.status()["nodes"]}
    operator.follow("Restarting and upgrading")
    load.goes_on()
    status = operator.status()
    assert status["redundancy"] == 1
    assert all(int(node["node_id"]) > before[node["place"]] for node in status["nodes"])


def clocks_stop_grants(operator: Operator, load: Load) -> None:
    """Two of three clocks are off, each its own way: the runbook's two commands say so."""
    hosts = {"node-1": "a.example", "node-2": "d.example", "node-3": "c.example"}
    leader = operator.status()["leader"]
    odd = [place for place in hosts if place != leader]
    for place, offset in zip(odd, ("+3600s", "-3600s"), strict=True):
        operator.machines.hosts[hosts[place]].set_clock(offset)
    operator.until(lambda: operator.status()["clock"]["gate"] == "closed", "the gate closes")
    said = operator.follow("When grants stop: clocks")
    view = operator.ask("clock")
    assert view["gate"] == "closed"
    for place in odd:
        assert any(place in fault and "outside" in fault for fault in view["faults"]), view["faults"]
    assert "clocks are too far apart" in said + "".join(operator.machines.told[-4:])
    busy = operator.machines.run("ticketing", "acquire", "now", "--wait", "0")
    assert busy.status == BUSY, busy
    for place in odd:
        operator.machines.hosts[hosts[place]].set_clock("+0")
    operator.until(lambda: operator.status()["clock"]["gate"] == "open", "the gate opens by itself")
    load.goes_on()


def majority_is_lost(operator: Operator, load: Load, first: Any) -> None:
    machines = operator.machines
    granted = machines.run("ticketing", "acquire", "old", "--lease", "2")
    machines.hosts["a.example"].switch_off("node-1")
    machines.hosts["d.example"].switch_off("node-2")
    operator.until(
        lambda: machines.type(BOOK["Watching"][0], may_fail=True).status == UNREACHABLE, "nobody serves"
    )
    lines = BOOK["Losing the majority"]
    machines.type_all(lines[:-1])
    # Every lease that the load asked for is over by now, so it need not wait for another 250 s.
    form = lines[-1]._replace(command=lines[-1].command + " --first")
    operator.until(
        lambda: machines.type(form, may_fail=True).status == 0, "a new domain is formed", within_s=60
    )
    status = operator.until(lambda: (s := operator.status())["served"] and s, "the new domain serves")
    assert status["domain"] != first["domain"]
    tokens = [int(event["token"]) for event in load.events("turn")] + [int(granted.out)]
    assert int(status["domain"].partition(".")[0]) > max(tokens)
    again = machines.run("ticketing", "acquire", "old", "--wait", "5")
    assert again.status == 0, again
    assert int(again.out) > max(tokens)
