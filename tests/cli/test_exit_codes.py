"""Every command, in both forms, ends with each exit code that docs/cli.md gives it, and with its output as promised.

The document's table is what is tested: a command or a code in it without a scene fails here, and so does a command
that the table has not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Tell
from tests.cli.exit_code_scenes import ELSEWHERE, JSON_KEYS, SCENES, Scene
from tests.cli.planes import Planes
from ticketing.cli.app import app

PROJECT = Path(__file__).parents[2]
EVERY_COMMAND = ("0", "2")
"""Codes that the table leaves out, since every command ends with them."""


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}".strip())


COMMANDS = dict(leaves(typer.main.get_command(app)))
REPORTING = {
    name for name, command in COMMANDS.items() if any("--output" in option.opts for option in command.params)
}


def documented() -> dict[str, tuple[str, ...]]:
    """The table "Which command ends with which" of docs/cli.md."""
    text = (PROJECT / "docs" / "cli.md").read_text()
    table = text.split("### Which command ends with which")[1].split("\n\n")[1]
    found: dict[str, tuple[str, ...]] = {}
    for row in table.splitlines()[2:]:
        names, codes = (cell.strip() for cell in row.strip("|").split("|"))
        for name in re.findall(r"`([^`]+)`", names):
            found[name] = EVERY_COMMAND + tuple(re.findall(r"\w+", codes))
    return found


def test_the_table_has_exactly_the_commands_that_there_are() -> None:
    assert set(documented()) == set(COMMANDS)


def test_every_code_of_the_table_has_its_scene_and_no_other_has() -> None:
    wanted = {(name, code) for name, codes in documented().items() for code in codes}
    shown = {(name, str(code)) for name, code in SCENES} | set(ELSEWHERE)
    assert shown == wanted


def test_every_command_that_reports_has_its_keys_written_down() -> None:
    told_elsewhere = {"dev"}
    assert set(JSON_KEYS) | told_elsewhere == REPORTING


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_what_is_shown_elsewhere_is_there(where: str) -> None:
    file, _, name = where.partition("::")
    tree = ast.parse((PROJECT / file).read_text())
    assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


FORMS = [
    (name, code, form)
    for name, code in SCENES
    for form in (("text", "json") if name in REPORTING else ("text",))
]


@pytest.mark.parametrize(("name", "code", "form"), FORMS, ids=lambda part: str(part))
def test_a_command_ends_as_the_table_says(
    planes: Planes,
    tell: Tell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    form: str,
) -> None:
    words = SCENES[name, code](Scene(planes, tmp_path, monkeypatch))
    output = ["-o", "json"] if form == "json" else []
    ended, out, err = tell(*name.split(), *words, *output)
    assert ended == code, (out, err)
    assert "Traceback" not in err
    if code == 0:
        assert out, "a result"
    elif not out:
        assert err.startswith(("error: ", "warning: ")) or "\nerror: " in err, "why, where there is no result"
    if form == "json":
        told = [json.loads(line) for line in out.splitlines()]
        assert all(isinstance(line, dict) for line in told)
        assert all(JSON_KEYS[name] <= set(line) for line in told), told
    else:
        assert not out.startswith("{"), "for people"


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"acquire", "release"}))
def test_ctrl_c_ends_every_command_quietly(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, planes: Planes, name: str
) -> None:
    """`acquire` leaves its queue by it: test_real_cluster."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(COMMANDS[name]), "make_context", interrupted)
    assert tell(*name.split()) == (130, "", "")
