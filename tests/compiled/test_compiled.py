"""The list of what is compiled is true, and what was compiled runs as the sources do."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiled.runs import COMPILED, PROJECT, differences, is_current, modules
from ticketing.native import is_compiled

PACKAGES = ("protocol", "raft", "locks")
"""Compiled but for the modules that define records."""


def defines_records(source: Path) -> bool:
    """Whether there is a class in it that msgspec makes; see pyproject.toml."""
    bases = [
        ast.unparse(base)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    ]
    return any(base.rpartition(".")[2] == "Struct" for base in bases)


def test_every_module_of_the_list_exists_and_is_named_once() -> None:
    named = modules()
    assert len(set(named)) == len(named)
    assert [name for name in named if not (PROJECT / name).is_file()] == []


def test_no_module_that_defines_records_is_compiled() -> None:
    assert [name for name in modules() if defines_records(PROJECT / name)] == []


def test_of_the_logic_everything_else_is_compiled() -> None:
    sources = [source for package in PACKAGES for source in (PROJECT / "ticketing" / package).glob("*.py")]
    wanted = {
        str(source.relative_to(PROJECT))
        for source in sources
        if source.name != "__init__.py" and not defines_records(source)
    }
    assert wanted - set(modules()) == set()


def test_nothing_but_the_variable_compiles_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation is pure Python."""
    monkeypatch.delenv("TICKETING_COMPILE", raising=False)
    code = (
        "import runpy, setuptools; setuptools.setup = lambda **what: print(what); runpy.run_path('setup.py')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "{'ext_modules': []}"


def test_the_sources_say_that_they_are_not_compiled() -> None:
    assert is_compiled() == (PROJECT.name == COMPILED.name)


@pytest.mark.skipif(not is_current(COMPILED), reason="no compiled build of these sources: make compiled")
def test_a_seed_is_the_same_run_compiled_and_not() -> None:
    assert differences(list(range(20))) == []
