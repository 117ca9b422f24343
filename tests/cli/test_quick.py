"""`acquire` and `release` read without the framework mean the same as read with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.cli.app import run
from ticketing.cli.quick import run_quickly

OPTIONS = [
    "--key",
    "--wait",
    "--lease",
    "--budget",
    "--grace",
    "--on-lease-end",
    "--fail-code",
    "--config",
    "--addr",
    "--token-file",
    "--tls",
    "-o",
    "--output",
]
pieces = st.one_of(
    st.sampled_from([[word] for word in ("k", "7", "-k", "", "a=b", "--extend", "--debug", "-x", "--", "-")]),
    st.tuples(st.sampled_from(OPTIONS), st.sampled_from(["1", "json", "x=y", "-1", ""])).map(list),
    st.tuples(st.sampled_from(OPTIONS), st.sampled_from(["1", "json", "", "-1"])).map(
        lambda t: [f"{t[0]}={t[1]}"]
    ),
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def note(words: Any, invocation: Any) -> int:
        found.append((words, invocation))
        return 0

    for target in (
        "ticketing.cli.acquire.run",
        "ticketing.cli.acquiring.acquire",
        "ticketing.cli.release.run",
        "ticketing.cli.releasing.release",
    ):
        monkeypatch.setattr(target, note)
    return found


@pytest.mark.parametrize("command", ["acquire", "release"])
@settings(max_examples=120, deadline=None)
@given(words=st.lists(pieces, max_size=5).map(lambda lists: [word for words in lists for word in words]))
def test_what_is_read_quickly_is_what_the_framework_reads(command: str, words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found: list[Any] = []

        def note(words: Any, invocation: Any) -> int:
            found.append((words, invocation))
            return 0

        patch.setattr("ticketing.cli.acquire.run", note)
        patch.setattr("ticketing.cli.acquiring.acquire", note)
        patch.setattr("ticketing.cli.release.run", note)
        patch.setattr("ticketing.cli.releasing.release", note)
        if run_quickly([command, *words]) is None:
            return
        assert run([command, *words]) == 0
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "words",
    [
        ["acquire", "k", "--wait", "3", "--lease=9", "--addr", "a:1", "--addr", "b:1", "-o", "json"],
        ["acquire", "k", "--extend", "--", "cmd", "--wait", "--", "-x"],
        ["release", "k", "7", "--config", "x"],
    ],
)
def test_the_plain_forms_are_read_quickly(words: list[str], calls: list[Any]) -> None:
    assert run_quickly(words) == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["acquire", "--help"],
        ["acquire", "k", "extra"],
        ["acquire", "k", "--wait"],
        ["release", "-x"],
        ["status"],
    ],
)
def test_help_and_mistakes_are_left_to_the_framework(words: list[str], calls: list[Any]) -> None:
    assert run_quickly(words) is None
    assert calls == []
