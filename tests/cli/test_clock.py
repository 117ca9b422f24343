from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Tell
from tests.cli.planes import Planes, facts

SHOWN = """\
gate open  Δ 500 ms (within 250 ms of the leader)  leader node-1
NODE    OTHER   DIFFERENCE      AGE    ROUND TRIP  RATE         VERDICT  STEPS  SOURCE
node-1  node-2  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
node-1  node-3  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
node-2  node-1  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
node-2  node-3  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
node-3  node-1  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
node-3  node-2  +1.5 ms ± 0.2   0.5 s  0.40 ms     +3 ppm ± 40  inside   0      -
"""


def off() -> dict[str, Any]:
    leader = facts(1)
    leader["clock"]["gate"] = "closed"
    leader["clock"]["steps"] = 2
    leader["clock"]["last_step_ms"] = -700.0
    leader["clock"]["peers"][1] |= {"verdict": "outside", "difference_ms": 812.0}
    return leader


def test_every_view_of_every_clock_is_shown(planes: Planes, tell: Tell) -> None:
    code, out, err = tell("clock")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [line.split() for line in SHOWN.splitlines()]
    code, out, _ = tell("clock", "-o", "json")
    told = json.loads(out)
    assert (code, told["gate"], told["delta_ms"], told["faults"]) == (0, "open", 500, [])
    assert told["nodes"][0]["peers"][0]["difference_ms"] == 1.5


def test_a_closed_gate_names_the_clock_that_is_off(planes: Planes, tell: Tell) -> None:
    planes.statuses(off(), facts(2), facts(3))
    code, out, err = tell("clock")
    assert code == 0
    assert "node-1: its own wall clock was stepped 2 times, the last by -700.0 ms" in out
    assert "warning: the gate is closed" in err
    assert "warning: node-3 is outside for the leader (+812.0 ms ± 0.2)" in err
    assert tell("clock", "--check")[0] == 9
    assert tell("clock", "--check", "-o", "json")[0] == 9


def test_a_node_that_does_not_answer_is_a_row(planes: Planes, tell: Tell) -> None:
    planes.statuses(facts(1), facts(2), None)
    code, out, err = tell("clock")
    assert code == 0
    assert any(line.startswith("node-3") and "unreachable" in line for line in out.splitlines())
    assert "node-3 does not answer" in err


def test_without_a_leader_or_any_node_the_code_says_so(planes: Planes, tell: Tell) -> None:
    planes.statuses(facts(1, leads=0), facts(2, leads=0), facts(3, leads=0))
    assert tell("clock")[0] == 7
    planes.statuses(None, None, None)
    assert tell("clock")[0] == 7
