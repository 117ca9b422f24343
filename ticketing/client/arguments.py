"""What callers pass in, checked before anything is sent (spec 2). Nothing is clipped.

Times are numbers of seconds or `timedelta`; they are kept as integer nanoseconds, to which floats are
rounded: 0.1 + 0.2 seconds are 300 ms.
"""

from __future__ import annotations

import math
import operator
from datetime import timedelta

from ticketing.client.clock import SECOND
from ticketing.client.errors import TicketError, TicketErrorKind
from ticketing.protocol.fields import (
    KEY_BYTES_MAX,
    LEASE_MAX,
    LEASE_MIN,
    WAIT_MAX,
    address_problem,
    key_problem,
)

Seconds = float | timedelta
"""A number of seconds (int or float) or a `timedelta`."""

_MICROSECOND = timedelta(microseconds=1)


def _invalid(message: str) -> TicketError:
    return TicketError(TicketErrorKind.INVALID_INPUT, message)


def key_bytes(key: object) -> bytes:
    """The key as it travels: UTF-8. `invalid_input` where it is no valid key."""
    if not isinstance(key, str):
        raise _invalid(f"key: a str is wanted, not {type(key).__name__}")
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise _invalid(f"key: {key!r} contains a lone surrogate, which is no text") from None
    if 0 < len(raw) <= KEY_BYTES_MAX and b" " not in raw and b"\n" not in raw and b"\r" not in raw:
        return raw
    raise _invalid(f"key: {key_problem(raw)}: {key[:160]!r}")


def nanoseconds(name: str, value: object) -> int:
    """A time of 0 or more as nanoseconds. `invalid_input` for what is no time: negative, NaN, infinite."""
    if type(value) is int:
        amount: int = value * SECOND
    elif isinstance(value, timedelta):
        amount = value // _MICROSECOND * 1000
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid(f"{name}: {value!r} is not a number of seconds")
        amount = round(value * SECOND) if abs(value) < 1e9 else int(value) * SECOND
        if value and not amount:
            amount = 1 if value > 0 else -1  # 0 has a meaning of its own
    elif isinstance(value, bool):
        raise _invalid(f"{name}: {value!r} is not a number of seconds")
    else:
        try:
            amount = operator.index(value) * SECOND  # type: ignore[arg-type]
        except TypeError:
            wanted = "a number of seconds or a timedelta is wanted"
            raise _invalid(f"{name}: {wanted}, not {type(value).__name__}") from None
    if amount < 0:
        raise _invalid(f"{name}: {value!r} is negative")
    return amount


def wire_seconds(amount_ns: int) -> int:
    """Whole seconds, rounded up."""
    return -(-amount_ns // SECOND)


def wait_ns(value: Seconds) -> int:
    """A wait: 0 to 255 s once rounded up."""
    if type(value) is int and 0 <= value <= WAIT_MAX:
        return value * SECOND
    amount = nanoseconds("wait", value)
    if amount > WAIT_MAX * SECOND:
        raise _invalid(f"wait: {value!r} is beyond the range of 0 to {WAIT_MAX} s")
    return amount


def lease_seconds(value: Seconds) -> int:
    """A lease in whole seconds, rounded up: 1 to 250."""
    if type(value) is int and LEASE_MIN <= value <= LEASE_MAX:
        return value
    seconds = wire_seconds(nanoseconds("lease", value))
    if not LEASE_MIN <= seconds <= LEASE_MAX:
        raise _invalid(f"lease: {value!r} is outside the range of {LEASE_MIN} to {LEASE_MAX} s")
    return seconds


def budget_ns(value: Seconds, lease_s: int) -> int:
    """A least time to work: 0 up to the lease as it was rounded, never above 250 s."""
    if type(value) is int and 0 <= value <= lease_s:
        return value * SECOND
    amount = nanoseconds("min_work_budget", value)
    if amount > LEASE_MAX * SECOND:
        raise _invalid(f"min_work_budget: {value!r} is beyond the range of 0 to {LEASE_MAX} s")
    if amount > lease_s * SECOND:
        raise _invalid(f"min_work_budget: {value!r} is more than the lease of {lease_s} s")
    return amount


def addresses(addrs: object) -> tuple[str, ...]:
    """The addresses of the cluster, each once, in the order given."""
    if isinstance(addrs, str | bytes):
        raise _invalid(f"addrs: a list of addresses is wanted, such as ['{addrs!s}']")
    try:
        given = list(addrs)  # type: ignore[call-overload]
    except TypeError:
        raise _invalid(f"addrs: a list of addresses is wanted, not {type(addrs).__name__}") from None
    if not given:
        raise _invalid("addrs: at least one address is wanted")
    for address in given:
        if not isinstance(address, str):
            raise _invalid(f"addrs: each address is a str, not {type(address).__name__}")
        problem = address_problem(address)
        if problem is not None:
            raise _invalid(f"addrs: {problem}: {address!r}")
    return tuple(dict.fromkeys(given))
