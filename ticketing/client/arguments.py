"""What callers pass in, checked before anything is sent (spec 2). Nothing is clipped.

Times are numbers of seconds or `timedelta`; they are kept as integer nanoseconds, to which floats are
rounded: 0.1 + 0.2 seconds are 300 ms.
"""

from __future__ import annotations

import math
import operator
from datetime import timedelta

from ticketing.client.clock import SECOND
from ticketing.client.errors import InvalidInputError
from ticketing.protocol.fields import (
    KEY_BYTES_MAX,
    LEASE_MAX,
    LEASE_MIN,
    TOKEN_MAX,
    WAIT_MAX,
    address_problem,
    key_problem,
)

Seconds = float | timedelta
"""A number of seconds (int or float) or a `timedelta`."""

_MICROSECOND = timedelta(microseconds=1)


SECONDS_RANGE = "seconds of 0 or more, as a number or a timedelta"
WAIT_RANGE = f"0 to {WAIT_MAX} s"
LEASE_RANGE = f"{LEASE_MIN} to {LEASE_MAX} s"
KEY_RANGE = f"text of 1 to {KEY_BYTES_MAX} bytes of UTF-8 without space, CR and LF"
ADDRESSES_RANGE = "a list of host:port"


def invalid(field: str, value: object, allowed: str, problem: str) -> InvalidInputError:
    """The error for an argument; its text opens with the argument's name."""
    return InvalidInputError(f"{field}: {problem}", field, value, allowed)


def token_text(token: object) -> str:
    """The client token as it was given; any text is one that has an encoding in UTF-8."""
    if not isinstance(token, str):
        # Its value is a secret, whatever its type.
        raise invalid("token", type(token).__name__, "a str", f"a str is wanted, not {type(token).__name__}")
    try:
        token.encode()
    except UnicodeEncodeError:
        text = "it contains a lone surrogate, which is no text"
        raise invalid("token", "a str", "text with an encoding in UTF-8", text) from None
    return token


def fencing_token(token: object) -> int:
    """A token that may have been granted: 0 to 2^62 - 1."""
    if type(token) is not int or not 0 <= token < TOKEN_MAX:
        raise invalid("token", token, "0 to 2^62 - 1", f"{token!r} is outside the range of 0 to 2^62 - 1")
    return token


def key_bytes(key: object) -> bytes:
    """The key as it travels: UTF-8. `invalid_input` where it is no valid key."""
    if not isinstance(key, str):
        raise invalid("key", key, KEY_RANGE, f"a str is wanted, not {type(key).__name__}")
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise invalid("key", key, KEY_RANGE, f"{key!r} contains a lone surrogate, which is no text") from None
    if 0 < len(raw) <= KEY_BYTES_MAX and b" " not in raw and b"\n" not in raw and b"\r" not in raw:
        return raw
    raise invalid("key", key, KEY_RANGE, f"{key_problem(raw)}: {key[:160]!r}")


def nanoseconds(name: str, value: object) -> int:
    """A time of 0 or more as nanoseconds. `invalid_input` for what is no time: negative, NaN, infinite."""
    if type(value) is int:
        amount: int = value * SECOND
    elif isinstance(value, timedelta):
        amount = value // _MICROSECOND * 1000
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise invalid(name, value, SECONDS_RANGE, f"{value!r} is not a number of seconds")
        amount = round(value * SECOND) if abs(value) < 1e9 else int(value) * SECOND
        if value and not amount:
            amount = 1 if value > 0 else -1  # 0 has a meaning of its own
    elif isinstance(value, bool):
        raise invalid(name, value, SECONDS_RANGE, f"{value!r} is not a number of seconds")
    else:
        try:
            amount = operator.index(value) * SECOND  # type: ignore[arg-type]
        except TypeError:
            wanted = "a number of seconds or a timedelta is wanted"
            raise invalid(name, value, SECONDS_RANGE, f"{wanted}, not {type(value).__name__}") from None
    if amount < 0:
        raise invalid(name, value, SECONDS_RANGE, f"{value!r} is negative")
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
        raise invalid("wait", value, WAIT_RANGE, f"{value!r} is beyond the range of {WAIT_RANGE}")
    return amount


def lease_seconds(value: Seconds) -> int:
    """A lease in whole seconds, rounded up: 1 to 250."""
    if type(value) is int and LEASE_MIN <= value <= LEASE_MAX:
        return value
    seconds = wire_seconds(nanoseconds("lease", value))
    if not LEASE_MIN <= seconds <= LEASE_MAX:
        raise invalid("lease", value, LEASE_RANGE, f"{value!r} is outside the range of {LEASE_RANGE}")
    return seconds


def budget_ns(value: Seconds, lease_s: int) -> int:
    """A least time to work: 0 up to the lease as it was rounded, never above 250 s."""
    if type(value) is int and 0 <= value <= lease_s:
        return value * SECOND
    amount = nanoseconds("min_work_budget", value)
    allowed = f"0 to the lease, {lease_s} s"
    if amount > LEASE_MAX * SECOND:
        raise invalid(
            "min_work_budget", value, allowed, f"{value!r} is beyond the range of 0 to {LEASE_MAX} s"
        )
    if amount > lease_s * SECOND:
        raise invalid("min_work_budget", value, allowed, f"{value!r} is more than the lease of {lease_s} s")
    return amount


def addresses(addrs: object) -> tuple[str, ...]:
    """The addresses of the cluster, each once, in the order given."""
    if isinstance(addrs, str | bytes):
        raise invalid(
            "addrs", addrs, ADDRESSES_RANGE, f"a list of addresses is wanted, such as ['{addrs!s}']"
        )
    try:
        given = list(addrs)  # type: ignore[call-overload]
    except TypeError:
        raise invalid(
            "addrs", addrs, ADDRESSES_RANGE, f"a list of addresses is wanted, not {type(addrs).__name__}"
        ) from None
    if not given:
        raise invalid("addrs", given, ADDRESSES_RANGE, "at least one address is wanted")
    for address in given:
        if not isinstance(address, str):
            raise invalid(
                "addrs", address, ADDRESSES_RANGE, f"each address is a str, not {type(address).__name__}"
            )
        problem = address_problem(address)
        if problem is not None:
            raise invalid("addrs", address, ADDRESSES_RANGE, f"{problem}: {address!r}")
    return tuple(dict.fromkeys(given))
