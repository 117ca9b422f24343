"""Whatever answers on an admin port, what comes behind the shapes can go by them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Tell
from tests.cli.planes import Planes, facts, lock, member
from ticketing.cli.admin_client import Answer
from ticketing.cli.admin_shapes import sound
from ticketing.cli.clock import clock_view
from ticketing.cli.cluster_status import cluster_status
from ticketing.cli.doctor_checks import clocks, statuses

KEYS = [
    *facts(1),
    *facts(1)["clock"],
    *facts(1)["clock"]["peers"][0],
    *facts(1)["raft"],
    "members",
    "learner",
]
nonsense = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("value", [facts(1), {"locks": [lock("k")], "next": None}, {"members": [member(1)]}])
def test_what_is_as_documented_stays_as_it_is(value: dict[str, Any]) -> None:
    assert sound(value) == value


@settings(max_examples=150, deadline=None)
@given(
    first=st.dictionaries(st.sampled_from(KEYS), nonsense),
    second=st.dictionaries(st.sampled_from(KEYS), nonsense),
)
def test_any_answer_at_all_gives_a_status(first: dict[str, Any], second: dict[str, Any]) -> None:
    answers = [
        Answer(f"node-{n}", "a:1", sound(own))
        for n, own in enumerate((facts(1) | first, facts(2) | second, facts(3)), start=1)
    ]
    assert len(cluster_status(answers)["nodes"]) == 3
    assert len(clock_view(answers)["nodes"]) == 3
    assert statuses(answers)
    assert clocks(answers, 0)


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["clock"],
        ["doctor"],
        ["node", "list"],
        ["node", "can-stop"],
        ["locks", "list"],
        ["locks", "show", "k"],
        ["__complete", "acquire", "k"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("value", [5, "x", [None, [1]], {"a": 1}], ids=json.dumps)
def test_nonsense_ends_no_command_in_a_way_that_nobody_expected(
    planes: Planes, tell: Tell, command: list[str], value: object
) -> None:
    named = ("locks", "lock", "waiters", "waiting", "members", "changes", "can_stop", "reason")
    reply: dict[str, Any] = {"next": None, **dict.fromkeys(named, value)}
    for path in ("/v1/locks", "/v1/locks/k", "/v1/members", "/v1/can-stop"):
        planes.on("GET", path, reply)
    spoilt = {key: value for key in facts(2) if key not in ("place", "serving")}
    planes.statuses(facts(1), facts(2) | spoilt, facts(3))
    _, _, err = tell(*command)
    assert "unexpected" not in err
