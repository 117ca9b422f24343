"""First tokens, permits' age, and the domain of a standalone node."""

import pytest

from ticketing.node.first_state import (
    FirstState,
    first_token,
    new_domain_id,
    permit_is_fresh,
    standalone_first_state,
)
from ticketing.node.settings import NodeSettings, Place

WALL_MS = 1_800_000_000_999
OF_TIME = 1_800_000_000 << 20


@pytest.mark.parametrize(
    ("earlier", "floor", "token"),
    [
        (0, 0, OF_TIME),
        (1, 0, OF_TIME),
        (OF_TIME, 0, OF_TIME + 2**40),
        (OF_TIME - 2**40, 0, OF_TIME),
        (OF_TIME - 2**40 + 1, 0, OF_TIME + 1),
        (0, OF_TIME + 7, OF_TIME + 7),
        (OF_TIME, OF_TIME + 7, OF_TIME + 2**40),
    ],
)
def test_a_first_token_is_the_greatest_of_three(earlier: int, floor: int, token: int) -> None:
    assert first_token(WALL_MS, earlier, floor) == token


def test_a_first_token_is_exact_for_json_readers() -> None:
    assert first_token(WALL_MS, 0, 0) < 2**53


@pytest.mark.parametrize(
    ("made_ms", "fresh"),
    [
        (WALL_MS, True),
        (WALL_MS - 3_600_000, True),
        (WALL_MS - 3_600_001, False),
        (WALL_MS + 3_600_001, False),
        (0, False),
    ],
)
def test_a_permit_is_fresh_for_an_hour(made_ms: int, fresh: bool) -> None:
    assert permit_is_fresh(made_ms, WALL_MS) is fresh


def standalone(wall_ms: int, *, earlier: int = 0, floor: int = 0) -> FirstState:
    settings = NodeSettings(
        place="node-1",
        places=(Place("node-1", "h:5225", "", ""),),
        standalone=True,
        earlier_first_token=earlier,
        first_token_floor=floor,
    )
    return standalone_first_state(settings, 77, lambda count: b"\xab" * count, wall_ms)


def test_standalone_forms_alone_and_serves_at_once() -> None:
    state = standalone(WALL_MS)
    assert state.domain_id == "ab" * 8
    assert [(member.place, member.node_id, member.incarnation) for member in state.members] == [
        ("node-1", 1, 77)
    ]
    assert state.quarantine_s == 0
    assert state.first_token > OF_TIME
    assert state.member("node-1").client == "h:5225"
    with pytest.raises(KeyError):
        state.member("node-2")


@pytest.mark.parametrize("wall_ms", [0, WALL_MS - 86_400_000, WALL_MS])
def test_standalone_tokens_rise_from_start_to_start_whatever_the_clock_does(wall_ms: int) -> None:
    first = standalone(WALL_MS).first_token
    second = standalone(wall_ms, earlier=first).first_token
    assert second > first + 2**20


def test_standalone_takes_the_operators_number() -> None:
    assert standalone(WALL_MS, floor=2**60).first_token == 2**60


def test_a_domain_id_is_random_in_full() -> None:
    assert new_domain_id(lambda count: bytes(range(count))) == "0001020304050607"
