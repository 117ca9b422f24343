"""`acquire` and `release` without the framework, which takes longer to load than a lock takes to be had.

Reads the plain forms of their options alone. Whatever is asked for in another way, and every mistake, is the
framework's: it then reads the same words again, so that there is one help and one set of messages.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

_ACCESS = {"--config": "config", "--token-file": "token_file", "--tls": "tls"}
_REPEATED = {"--addr": "addr"}
_OUTPUT = {"--output": "output", "-o": "output"}

_ACQUIRE = {
    "--key": "key_option",
    "--wait": "wait",
    "--lease": "lease",
    "--budget": "budget",
    "--grace": "grace",
    "--on-lease-end": "on_lease_end",
    "--fail-code": "fail_code",
    **_ACCESS,
    **_OUTPUT,
}
_ACQUIRE_FLAGS = {"--extend": "extend"}
_RELEASE = {"--key": "key", **_ACCESS, **_OUTPUT}


def run_quickly(words: Sequence[str]) -> int | None:
    """The exit code, or None: the framework is to run it."""
    if words[0] not in ("acquire", "release") or "_TICKETING_COMPLETE" in os.environ:
        return None
    command = None
    own = list(words[1:])
    if words[0] == "acquire" and "--" in own:
        cut = own.index("--")
        own, command = own[:cut], own[cut + 1 :]
    debug = "--debug" in own
    own = [word for word in own if word != "--debug"]
    known, flags = (_ACQUIRE, _ACQUIRE_FLAGS) if words[0] == "acquire" else (_RELEASE, {})
    read = parse(own, known, flags)
    if read is None:
        return None
    options, rest = read
    if words[0] == "acquire" and len(rest) > 1:
        return None

    from ticketing.cli.arguments import Invocation
    from ticketing.cli.ending import ended

    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        # A locale that cannot show a key must not end the command that found it.
        stdout.reconfigure(errors="backslashreplace")
    invocation = Invocation(command, debug)

    def run() -> int:
        if words[0] == "acquire":
            from ticketing.cli.acquiring import AcquireWords, acquire

            key = rest[0] if rest else None
            return acquire(AcquireWords(key=key, **options), invocation)  # type: ignore[arg-type]
        from ticketing.cli.releasing import ReleaseWords, release

        return release(ReleaseWords(words=tuple(rest), **options), invocation)  # type: ignore[arg-type]

    return ended(run, debug=debug)


def parse(
    words: Sequence[str], known: dict[str, str], flags: dict[str, str]
) -> tuple[dict[str, str | bool | tuple[str, ...]], list[str]] | None:
    """Options by the names of the parameters, and the arguments; None where it is not plain."""
    options: dict[str, str | bool | tuple[str, ...]] = {}
    repeated: dict[str, list[str]] = {}
    rest = []
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        if name in flags and not equals:
            options[flags[name]] = True
            continue
        if not (name in known or name in _REPEATED) or (equals and not name.startswith("--")):
            return None
        if not equals:
            value = next(left, "-")
            if value.startswith("-"):
                return None
        if name in _REPEATED:
            repeated.setdefault(_REPEATED[name], []).append(value)
        else:
            options[known[name]] = value
    return {**options, **{name: tuple(values) for name, values in repeated.items()}}, rest
