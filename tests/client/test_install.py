"""Installed alone, the client needs nothing; what the command needs is an extra; the published package is refused."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = SETTINGS["optional-dependencies"]
OWN = {"ticketing", "saro_ticketing"}
LIGHT = ("client", "protocol")
"""Rooms that need the standard library alone."""
DRIVERS = {"asyncpg", "psycopg", "sqlalchemy"}
"""Only ever passed in by those who have them."""
WITH_AIOHTTP = {"yarl"}

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def modules(requirements: list[str]) -> set[str]:
    """The import names of requirements; they are the distributions' but for the hyphens."""
    names: set[str] = set()
    for requirement in requirements:
        name = "".join(char if char.isalnum() or char in "-_" else " " for char in requirement).split()[0]
        names.add(name.replace("-", "_"))
    return names - {"ticketing_server"}


def imported(path: Path) -> set[str]:
    """The top names of what a file imports anywhere in it when it runs."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, path
            names.add((node.module or "").partition(".")[0])
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return names - set(sys.stdlib_module_names) - OWN


def run(script: str, *, path: Path | None = None, blocked: bool = True) -> subprocess.CompletedProcess[str]:
    head = BLOCK.format(blocked=sorted(modules(EXTRAS["server"]) | DRIVERS)) if blocked else ""
    environment = {"PYTHONPATH": f"{path}:{PROJECT}" if path is not None else str(PROJECT)}
    return subprocess.run(
        [sys.executable, "-c", head + script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd="/",
        timeout=30,
    )


def test_the_client_is_the_standard_library_alone() -> None:
    assert SETTINGS["dependencies"] == []
    for room in LIGHT:
        for path in (PROJECT / "ticketing" / room).rglob("*.py"):
            assert not imported(path), path
    for path in (PROJECT / "ticketing" / "fencing").rglob("*.py"):
        assert imported(path) <= DRIVERS, path


def test_the_extra_brings_all_that_the_rest_imports() -> None:
    needed: set[str] = set()
    for path in (PROJECT / "ticketing").rglob("*.py"):
        needed |= imported(path)
    assert needed - DRIVERS - WITH_AIOHTTP <= modules(EXTRAS["server"])
    assert "ticketing-server[server]" in EXTRAS["test"]
    assert "ticketing-server[test]" in EXTRAS["dev"]
    assert modules(EXTRAS["test"]) >= DRIVERS


def test_client_alias_and_fencing_load_without_the_extra() -> None:
    done = run("""
import sqlite3, ticketing, ticketing.client, saro_ticketing
from ticketing.fencing import advance_mark, create_marks
saro_ticketing.TicketBroker.connect("127.0.0.1:5225").close()
connection = sqlite3.connect(":memory:")
create_marks(connection)
advance_mark(connection, "key", 7)
print(ticketing.TicketBroker is saro_ticketing.TicketBroker)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("words", [["status"], ["acquire", "--help"], ["node", "start"], ["--help"], []])
def test_the_command_without_the_extra_says_what_to_install(words: list[str]) -> None:
    done = run(f"import sys; from ticketing.cli.main import main; sys.exit(main({words!r}))")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'ticketing-server[server]'" in done.stderr


def test_acquire_from_a_command_line_needs_no_more_than_the_client() -> None:
    words = ["acquire", "key"]
    done = run(f"import sys; from ticketing.cli.main import main; sys.exit(main({words!r}))")
    # It gets as far as looking for its cluster.
    assert "no cluster is configured" in done.stderr
    assert "not installed" not in done.stderr


def test_every_package_of_the_extra_that_is_missing_is_told_so() -> None:
    from ticketing.cli.main import _EXTRA

    assert set(_EXTRA) == modules(EXTRAS["server"])


@pytest.mark.parametrize("mixed", [True, False], ids=["among our files", "in its own folder"])
def test_the_published_package_beside_ours_is_a_clear_error(tmp_path: Path, mixed: bool) -> None:
    package = tmp_path / "saro_ticketing"
    package.mkdir()
    own = (PROJECT / "saro_ticketing" / "__init__.py").read_text(encoding="utf-8")
    (package / "__init__.py").write_text(own if mixed else "from .broker import TicketBroker\n")
    (package / "broker.py").write_text("class TicketBroker: pass\n")
    scripts = ["import ticketing.client", "from ticketing import TicketBroker"]
    if mixed:
        scripts.append("import saro_ticketing")
    for script in scripts:
        done = run(script, path=tmp_path, blocked=False)
        assert done.returncode == 1, script
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: the published package 'ticketing' is installed as well")
        assert "pip uninstall ticketing" in last


def test_both_packages_say_that_they_are_typed() -> None:
    for package in OWN:
        assert (PROJECT / package / "py.typed").exists()
