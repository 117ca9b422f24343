"""`ticketing top` as a command, without a cluster."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from ticketing.cli.main import main
from ticketing.tui.render.text import ASCII, UNICODE, Glyphs
from ticketing.tui.terminal import can_draw, glyphs_for, no_colour

ADMIN = """
token = "x"
tls = "off"

[[nodes]]
name = "node-1"
admin = "127.0.0.1:1"
"""


@pytest.fixture
def admin_file(tmp_path: Path) -> str:
    file = tmp_path / "admin.toml"
    file.write_text(ADMIN)
    file.chmod(0o600)
    return str(file)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--interval", "0"], "--interval must be a number of seconds above 0"),
        (["--interval", "nan"], "--interval must be a number of seconds above 0"),
        (["--interval", "soon"], "--interval must be a number of seconds above 0"),
        (["--sort", "name"], "--sort must be one of queue, age, lease, key"),
        (["--rows", "0"], "--rows must be a whole number from 1 to 1000"),
        (["-o", "xml"], "--output must be one of text, json"),
        ([], "needs a terminal"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    words: list[str], told: str, admin_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", *words, "--admin-config", admin_file]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""


def test_without_a_cluster_there_is_a_frame_all_the_same(
    admin_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--once", "--admin-config", admin_file]) == 7
    said = capsys.readouterr()
    assert "NO LEADER" in said.out
    assert "connection refused" in said.out
    assert main(["top", "-o", "json", "--admin-config", admin_file]) == 7
    assert '"served": false' in capsys.readouterr().out


def test_dev_top_draws_on_a_terminal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "--top"]) == 2
    assert "needs a terminal" in capsys.readouterr().err
    assert main(["dev", "--top", "-o", "json"]) == 2


@pytest.mark.parametrize(
    ("encoding", "term", "asked", "glyphs"),
    [
        ("utf-8", "xterm", False, UNICODE),
        ("UTF8", "tmux-256color", False, UNICODE),
        ("utf-8", "xterm", True, ASCII),
        ("utf-8", "linux", False, ASCII),
        ("ascii", "xterm", False, ASCII),
        ("iso8859-1", "xterm", False, ASCII),
        (None, "xterm", False, ASCII),
    ],
)
def test_ascii_where_nothing_more_can_be_shown(
    encoding: str | None, term: str, asked: bool, glyphs: Glyphs
) -> None:
    assert glyphs_for(encoding, {"TERM": term}, ascii_only=asked) is glyphs


def test_no_color_counts_where_it_is_not_empty() -> None:
    assert no_colour({"NO_COLOR": "1"})
    assert not no_colour({"NO_COLOR": ""})
    assert not no_colour({})


def test_nothing_is_drawn_on_what_is_no_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    assert can_draw((terminal, terminal), {"TERM": "xterm"})
    assert not can_draw((terminal, io.StringIO()), {"TERM": "xterm"})
    assert not can_draw((terminal, None), {"TERM": "xterm"})
    assert not can_draw((terminal,), {"TERM": "dumb"})
    assert not can_draw((terminal,), {})


@pytest.mark.parametrize(
    "code",
    [
        "import ticketing.cli.app, ticketing.cli.status, ticketing.cli.dev, ticketing.cli.top",
        "import ticketing.tui.once, ticketing.tui.record, ticketing.tui.render.frame",
    ],
)
def test_textual_is_loaded_for_the_live_dashboard_alone(code: str) -> None:
    check = f"{code}; import sys; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=30).returncode == 0
