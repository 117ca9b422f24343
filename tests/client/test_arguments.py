"""What is refused before anything is sent (spec 2, 10)."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.client import (
    IndeterminateCancelledError,
    InvalidInputError,
    TicketBroker,
    TicketError,
    arguments,
)
from ticketing.client.clock import SECOND

NAN, INFINITE = math.nan, math.inf


@pytest.mark.parametrize(
    ("key", "wait", "lease", "budget", "field"),
    [
        ("", 5, 30, 2, "key"),
        ("a b", 5, 30, 2, "key"),
        ("a\nb", 5, 30, 2, "key"),
        ("a\rb", 5, 30, 2, "key"),
        ("é" * 65, 5, 30, 2, "key"),
        ("\ud800", 5, 30, 2, "key"),
        (b"key", 5, 30, 2, "key"),
        ("key", 255.1, 30, 2, "wait"),
        ("key", -1, 30, 2, "wait"),
        ("key", NAN, 30, 2, "wait"),
        ("key", INFINITE, 30, 2, "wait"),
        ("key", "5", 30, 2, "wait"),
        ("key", None, 30, 2, "wait"),
        ("key", True, 30, 2, "wait"),
        ("key", 5, 0, 0, "lease"),
        ("key", 5, 251, 2, "lease"),
        ("key", 5, 250.5, 2, "lease"),
        ("key", 5, 30, 30.5, "min_work_budget"),
        ("key", 5, 250, 251, "min_work_budget"),
        ("key", 5, 30, -0.1, "min_work_budget"),
        ("key", 5, 30, NAN, "min_work_budget"),
        ("key", 5, 30, INFINITE, "min_work_budget"),
        ("key", 5, 30, timedelta(seconds=-1), "min_work_budget"),
        ("key", 10**400, 30, 0, "wait"),
        ("key", 1e300, 30, 0, "wait"),
    ],
)
async def test_bad_input_is_refused_with_field_and_value(
    key: Any, wait: Any, lease: Any, budget: Any, field: str
) -> None:
    broker = TicketBroker.connect("127.0.0.1:1")
    with pytest.raises(InvalidInputError) as caught:
        await broker.acquire(key, wait, lease, budget)
    assert caught.value.kind == "invalid_input"
    assert str(caught.value).startswith(field + ":")
    assert caught.value.field == field
    given = {"key": key, "wait": wait, "lease": lease, "min_work_budget": budget}
    assert caught.value.value is given[field]
    assert caught.value.range
    with pytest.raises(InvalidInputError):
        broker.acquire_sync(key, wait, lease, budget)
    assert broker._cluster is None


@given(st.one_of(st.floats(0, 255), st.integers(0, 255), st.timedeltas(timedelta(0), timedelta(seconds=255))))
def test_waits_and_leases_are_rounded_up_and_never_clipped(value: float | timedelta) -> None:
    exact = value.total_seconds() if isinstance(value, timedelta) else value
    amount = arguments.wait_ns(value)
    assert abs(amount - exact * SECOND) <= 1
    seconds = arguments.wire_seconds(amount)
    assert seconds - 1 < exact + 1e-9
    assert exact <= seconds + 1e-9
    assert (seconds == 0) == (exact == 0)


def test_float_noise_is_no_further_second() -> None:
    assert arguments.lease_seconds(0.1 * 3 * 10) == 3
    assert arguments.lease_seconds(1e-12) == 1
    assert arguments.lease_seconds(timedelta(milliseconds=1)) == 1


@pytest.mark.parametrize(
    "addrs",
    [[], "127.0.0.1:5225", ["127.0.0.1"], ["::1:5225"], ["host:0"], ["host:99999"], [5225], 5, ["a b:1"]],
)
def test_addresses_are_checked_when_the_broker_is_made(addrs: Any) -> None:
    with pytest.raises(TicketError) as caught:
        TicketBroker(addrs)
    assert caught.value.kind == "invalid_input"
    assert str(caught.value).startswith("addrs:")


@pytest.mark.parametrize("token", ["caf\udce9", b"secret", 5, None])
def test_a_token_that_is_no_text_is_refused_without_being_shown(token: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TicketBroker(["127.0.0.1:5225"], token=token)
    assert caught.value.field == "token"
    for shown in (str(caught.value), repr(caught.value.value)):
        assert "caf" not in shown
        assert "secret" not in shown


def test_names_and_ipv6_literals_are_addresses_and_each_counts_once() -> None:
    assert arguments.addresses(iter(["[::1]:5225", "node-1.example:5225", "[::1]:5225"])) == (
        "[::1]:5225",
        "node-1.example:5225",
    )


def test_errors_are_told_by_kind_or_text_and_can_be_pickled() -> None:
    error = IndeterminateCancelledError("indeterminate", "the text")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is IndeterminateCancelledError
    assert copy.kind == "indeterminate"
    assert str(copy) == "the text"
    refused = pickle.loads(
        pickle.dumps(InvalidInputError("wait: 256 is too much", "wait", 256, "0 to 255 s"))
    )
    assert type(refused) is InvalidInputError
    assert (refused.kind, str(refused)) == ("invalid_input", "wait: 256 is too much")
    assert (refused.field, refused.value, refused.range) == ("wait", 256, "0 to 255 s")
