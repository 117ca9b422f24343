"""Every script in scripts/ is played, and the core still answers as its transcript says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.raft.script import COMMANDS, play

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("REWRITE_SCRIPTS") == "1"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_core_answers_as_written(path: Path) -> None:
    text = path.read_text()
    played = play(text)
    if REWRITE:
        path.write_text(played)
    else:
        assert played == text, "read the difference; REWRITE_SCRIPTS=1 takes it over"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 20


def test_another_answer_is_noticed() -> None:
    text = "form 1\n    n1 is leader term=1 vote=- leader=- commit=1 last=1/1\n"
    assert play(text) != text
    assert play(play(text)) == play(text)


def test_a_script_that_means_nothing_is_refused() -> None:
    for line in ("dance n1", "deliver n1", "wait 5", "settings speed=1", "form 3 colour=red"):
        with pytest.raises(ValueError, match="line 1"):
            play(line)


def test_the_language_is_described() -> None:
    readme = (FOLDER / "README.md").read_text()
    for command in COMMANDS:
        assert f"`{command}" in readme, command
