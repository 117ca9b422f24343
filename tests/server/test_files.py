"""The folder `state/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ticketing.node.settings import NodeSettings, OperatorCommand, Place
from ticketing.node.state_files import REPLACE
from ticketing.server.files import (
    StateError,
    StateFacts,
    StateLock,
    command_content,
    read_facts,
    remove,
    running_pid,
    store,
)


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value))


def test_an_empty_folder_tells_nothing(tmp_path: Path) -> None:
    assert read_facts(tmp_path) == StateFacts()


def test_permit_record_and_floor_reach_the_node(tmp_path: Path) -> None:
    write(tmp_path, "permit.json", {"permit": "abc", "made_ms": 12})
    write(tmp_path, "record.json", {"domain": "00ff", "first_token": 5, "place": "node-1", "members": []})
    write(tmp_path, "floor.json", {"first_token": "4611686018427387000"})
    facts = read_facts(tmp_path)
    assert facts == StateFacts("abc", 12, 4611686018427387000, "00ff")
    place = Place("node-1", "h:1", "h:2", "h:3")
    settings = facts.applied_to(NodeSettings(place="node-1", places=(place,)))
    assert (settings.permit, settings.permit_made_ms) == ("abc", 12)
    assert (settings.earlier_first_token, settings.earlier_domain) == (4611686018427387000, "00ff")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"domain": "x"}', b'{"domain": 1, "first_token": "a"}']
)
def test_a_damaged_record_is_a_fault_and_no_absence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(StateError, match=r"record\.json") as told:
        read_facts(tmp_path)
    assert told.value.configuration


def test_a_file_is_replaced_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    store(tmp_path, "record.json", b"first")
    store(tmp_path, "record.json", b"second")
    path = tmp_path / "record.json"
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]


def test_a_replacement_that_fails_leaves_the_former_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path, "record.json", b"first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store(tmp_path, "record.json", b"second")
    assert (tmp_path / "record.json").read_bytes() == b"first"


def test_removing_what_is_not_there_is_no_fault(tmp_path: Path) -> None:
    store(tmp_path, "permit.json", b"x")
    remove(tmp_path, "permit.json")
    remove(tmp_path, "permit.json")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_process_and_its_pid_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    assert running_pid(folder) is None
    lock = StateLock(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert running_pid(folder) == os.getpid()
    with pytest.raises(StateError, match=f"process {os.getpid()} runs on this folder"):
        StateLock(folder)
    lock.release()
    lock.release()
    assert running_pid(folder) is None
    StateLock(folder).release()


def test_a_killed_process_leaves_its_folder_free(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from ticketing.server.files import StateLock;"
        "lock = StateLock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert running_pid(tmp_path) == other.pid
        with pytest.raises(StateError, match=str(other.pid)):
            StateLock(tmp_path)
        other.kill()
    StateLock(tmp_path).release()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="file") as told:
        StateLock(tmp_path / "file" / "state")
    assert told.value.configuration


def test_an_operators_command_reaches_the_node(tmp_path: Path) -> None:
    command = OperatorCommand(command_id="r1", who="ana", why="new host")
    store(tmp_path, REPLACE, command_content(command))
    place = Place("node-1", "h:1", "h:2", "h:3")
    settings = read_facts(tmp_path).applied_to(NodeSettings(place="node-1", places=(place,)))
    assert settings.operator_command == command


@pytest.mark.parametrize("content", ['{"who": "ana"}', '{"command_id": ""}', "{}", "no json"])
def test_a_command_that_cannot_be_read_is_a_fault_and_never_an_absence(tmp_path: Path, content: str) -> None:
    (tmp_path / REPLACE).write_text(content)
    with pytest.raises(StateError, match=REPLACE):
        read_facts(tmp_path)
