"""`node replace` from the prepared folder to the new voter, interrupted, undone, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.planes import Asked, Planes, Reply, error, member
from ticketing.config.certificate_files import node_certificate, read_certificates
from ticketing.config.client_file import read_admin_file, read_client_file
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.load import load_node
from ticketing.config.problems import ConfigError
from ticketing.config.replacement_folder import announce_move, default_folder, prepare, read_command
from ticketing.node.settings import OperatorCommand

COMMAND = OperatorCommand(command_id="c1", who="me@here", why="disk broken")


@pytest.fixture
def cluster(planes: Planes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `init` wrote, with the scripted nodes' admin addresses."""
    folder = Path.cwd().parent / "written"
    write_cluster(plan_cluster(nodes=3, tls=False, now_ms=1), folder)
    (folder / "admin.toml").write_text((Path.cwd() / "admin.toml").read_text())
    (folder / "admin.toml").chmod(0o600)
    monkeypatch.chdir(folder)
    return folder


class Scene:
    """The leader's side: told of a replacement, and stepping through it whenever it is asked."""

    def __init__(self, planes: Planes, stages: list[str]) -> None:
        self._stages = stages
        self.announced: list[Any] = []
        planes.on("POST", "/v1/members/node-2/replace", self._announce)
        planes.on("DELETE", "/v1/members/node-2/replace", {"undone": True})
        planes.on("GET", "/v1/members", self._members)
        self.node_id = 2

    def _announce(self, asked: Asked) -> Reply:
        self.announced.append(asked.body)
        return {"change": {"place": "node-2", "state": "announced"}}

    def _members(self, _asked: Asked) -> Reply:
        changes = []
        if self.announced and self._stages:
            stage = self._stages.pop(0)
            changes = [{"place": "node-2", "state": stage, "why": "as it is", "learner": None}]
        elif self.announced:
            self.node_id = 4
        rows = [member(1), member(2, self.node_id), member(3)]
        return {"members": rows, "changes": changes, "highest_node_id": "4"}


def test_a_replacement_is_prepared_announced_followed_and_settled(
    planes: Planes, cluster: Path, tell: Tell
) -> None:
    scene = Scene(planes, ["announced", "waiting", "catching_up", "swapping"])
    planes.stop("node-2")
    code, out, err = tell("node", "replace", "--node", "2", "--reason", "disk broken")
    assert (code, out) == (0, "node-2 is filled by node 4\n")
    (body,) = scene.announced
    assert body["reason"] == "disk broken"
    assert body["client"] == "127.0.0.1:5226"
    for stage in ("announced", "waiting", "catching_up", "swapping"):
        assert f"node-2: {stage}: as it is" in err
    assert "ticketing node start --config" in err
    assert not (cluster / "node-2/state/permit.json").exists()
    assert (read_command(cluster / "node-2") or COMMAND).command_id == body["id"]
    assert [path.name[:7] for path in (cluster / "former").iterdir()] == ["node-2-"]


def test_progress_as_json_is_an_object_a_line(planes: Planes, cluster: Path, tell: Tell) -> None:
    Scene(planes, ["waiting", "catching_up", "catching_up"])
    code, out, _ = tell("node", "replace", "--node", "2", "--yes", "-o", "json")
    told = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["state"] for line in told][-2:] == ["catching_up", "done"]
    assert told[-1] == {"place": "node-2", "state": "done", "node_id": "4"}


def test_a_second_call_goes_on_with_the_same_command(planes: Planes, cluster: Path, tell: Tell) -> None:
    scene = Scene(planes, ["waiting"] * 3)
    code, out, _ = tell("node", "replace", "--node", "2", "--yes", "--no-wait")
    assert (code, out.startswith("node-2 waits for its new process")) == (0, True)
    code, _, err = tell("node", "replace", "--node", "2")
    assert code == 0
    assert "going on with" in err
    first, second = scene.announced
    assert first["id"] == second["id"]


def test_what_is_over_already_is_only_settled(planes: Planes, cluster: Path, tell: Tell) -> None:
    Scene(planes, [])
    tell("node", "replace", "--node", "2", "--yes", "--no-wait")
    refusal = error(409, "no_replace", "node-2 was replaced by this command already")
    planes.on("POST", "/v1/members/node-2/replace", refusal)
    code, out, _ = tell("node", "replace", "--node", "2")
    assert (code, out) == (0, "node-2 is filled by node 4\n")
    assert read_command(cluster / "node-2") is not None


def test_a_call_that_comes_after_the_swap_sees_that_it_is_over(
    planes: Planes, cluster: Path, tell: Tell
) -> None:
    """The leader gives the first answer again; the voter came by this very command."""
    scene = Scene(planes, [])
    tell("node", "replace", "--node", "2", "--yes", "--no-wait")
    new = {**member(2, 4), "command_id": scene.announced[0]["id"]}
    planes.on(
        "GET",
        "/v1/members",
        {"members": [member(1), new, member(3)], "changes": [], "highest_node_id": "4"},
    )
    code, out, _ = tell("node", "replace", "--node", "2")
    assert (code, out) == (0, "node-2 is filled by node 4\n")


def test_undoing_names_the_command_and_removes_what_was_prepared(
    planes: Planes, cluster: Path, tell: Tell
) -> None:
    scene = Scene(planes, ["waiting"] * 9)
    tell("node", "replace", "--node", "2", "--yes", "--no-wait")
    code, out, _ = tell("node", "replace", "--node", "2", "--undo", "-o", "json")
    assert (code, json.loads(out)) == (0, {"place": "node-2", "state": "undone"})
    assert planes.commands()[-1].body["command_id"] == scene.announced[0]["id"]
    assert list((cluster / "replacements").iterdir()) == []
    planes.on("DELETE", "/v1/members/node-2/replace", error(409, "no_undo", "it can no longer be undone"))
    code, _, err = tell("node", "replace", "--node", "2", "--undo")
    assert code == 1
    assert "it can no longer be undone" in err


def test_a_refused_replacement_leaves_nothing_behind(planes: Planes, cluster: Path, tell: Tell) -> None:
    Scene(planes, [])
    reason = "node-3 is not heard from: only that place may be filled now"
    planes.on("POST", "/v1/members/node-2/replace", error(409, "no_replace", reason))
    code, _, err = tell("node", "replace", "--node", "2", "--yes")
    assert code == 1
    assert reason in err
    assert list((cluster / "replacements").iterdir()) == []


def test_a_living_node_is_replaced_after_a_confirmation_only(
    planes: Planes, cluster: Path, tell: Tell
) -> None:
    Scene(planes, [])
    planes.on("GET", "/livez", {"live": True})
    code, _, err = tell("node", "replace", "--node", "2")
    assert code == 2
    assert "is ended for good" in err
    assert planes.commands() == []


def test_a_place_that_moves_is_written_into_every_file(planes: Planes, cluster: Path, tell: Tell) -> None:
    Scene(planes, ["waiting"])
    code, _, err = tell("node", "replace", "--node", "2", "--host", "127.0.0.2", "--yes")
    assert code == 0
    assert "127.0.0.2:5226" in read_client_file(cluster / "client.toml").addrs
    assert dict(read_admin_file(cluster / "admin.toml").nodes)["node-2"] == "127.0.0.2:7226"
    places = [load_node(cluster / f"node-{n}").settings.node.places for n in (1, 2, 3)]
    assert places[0] == places[1] == places[2]
    assert places[0][1].peer == "127.0.0.2:6226"
    assert "wrote the new address into" in err


def test_a_file_that_the_new_address_does_not_get_into_is_told_with_those_that_have_it(
    planes: Planes, cluster: Path, tell: Tell
) -> None:
    Scene(planes, ["waiting"])
    obstacle = cluster / "node-3/.node.toml.new"
    obstacle.mkdir()
    code, _, err = tell("node", "replace", "--node", "2", "--host", "127.0.0.2", "--yes")
    assert code == 2
    assert "node-3/node.toml: cannot write: " in err
    assert "node-1/node.toml were changed\n" in err
    obstacle.rmdir()
    place = load_node(default_folder(cluster, "node-2")).settings.node.places[1]
    assert announce_move(cluster, place) == [cluster / "node-3/node.toml"]


def test_a_process_that_ends_is_told_with_its_last_words(
    planes: Planes, cluster: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scene(planes, ["waiting"] * 9)
    running = iter([None, None, 7, None])
    monkeypatch.setattr("ticketing.cli.node_replace.running_here", lambda _folder: next(running, None))

    def start(folder: Path) -> int:
        (folder / "node.log").write_text("a reason\n")
        return 7

    monkeypatch.setattr("ticketing.cli.node_replace.start_detached", start)
    code, _, err = tell("node", "replace", "--node", "2", "--yes", "--start")
    assert code == 1
    assert "the new process has ended:\na reason" in err
    assert "run this again with --start" in err


@pytest.mark.parametrize(("host", "code"), [(None, 1), ("127.0.0.2", 0)])
def test_two_processes_of_one_address_are_not_started_on_one_machine(
    planes: Planes,
    cluster: Path,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    host: str | None,
    code: int,
) -> None:
    Scene(planes, ["waiting"] * 9)
    started: list[Path] = []

    def running(folder: Path) -> int | None:
        return 7 if folder.name == "node-2" or folder in started else None

    monkeypatch.setattr("ticketing.cli.node_replace.running_here", running)
    monkeypatch.setattr("ticketing.cli.node_replace.start_detached", started.append)
    to = ["--host", host] if host else []
    tell("node", "replace", "--node", "2", "--yes", "--no-wait", *to)
    found, _, err = tell("node", "replace", "--node", "2", "--no-wait", "--start")
    assert (found, len(started)) == (code, 1 - code)
    assert ("two cannot" in err) is (code == 1)


# --- the folder


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*, tls: bool = True) -> Path:
        folder = tmp_path / "c"
        write_cluster(plan_cluster(nodes=3, tls=tls, now_ms=1), folder)
        return folder

    return write


def test_a_prepared_folder_is_complete_its_owners_alone_and_has_no_permit(
    written: Callable[..., Path],
) -> None:
    folder = written()
    target = default_folder(folder, "node-2")
    prepared = prepare(folder, "node-2", target, COMMAND)
    assert prepared.folder == folder / "replacements/node-2-1"
    assert read_command(target) == COMMAND
    loaded = load_node(target)
    assert loaded.settings.node.place == "node-2"
    assert {path.name for path in (target / "state").iterdir()} == {"replace.json"}
    modes = {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert loaded.settings.node.cluster == load_node(folder / "node-1").settings.node.cluster


def test_a_moved_place_has_a_certificate_for_both_hosts(written: Callable[..., Path]) -> None:
    import datetime

    folder = written()
    target = default_folder(folder, "node-2")
    place = prepare(folder, "node-2", target, COMMAND, host="127.0.0.9").place
    assert (place.client, place.peer, place.admin) == ("127.0.0.9:5226", "127.0.0.9:6226", "127.0.0.9:7226")
    names = read_certificates(target / "tls/node.pem")[0].names
    assert {"127.0.0.9", "127.0.0.1"} <= set(names)
    assert node_certificate(load_node(target), datetime.datetime.now(datetime.UTC)).faults == ()


def test_secrets_in_files_of_their_own_go_along(written: Callable[..., Path]) -> None:
    folder = written(tls=False)
    file = folder / "node-2/node.toml"
    token = load_node(file).settings.node.client_tokens[0]
    (folder / "node-2/tokens").write_text(f"{token}\n")
    (folder / "node-2/tokens").chmod(0o600)
    text = file.read_text().replace(f'client_tokens = ["{token}"]', 'client_tokens_file = "tokens"')
    file.write_text(text)
    target = default_folder(folder, "node-2")
    prepare(folder, "node-2", target, COMMAND)
    assert load_node(target).settings.node.client_tokens == (token,)


def test_a_second_replacement_of_a_place_gets_a_folder_of_its_own(written: Callable[..., Path]) -> None:
    folder = written(tls=False)
    first = default_folder(folder, "node-2")
    prepare(folder, "node-2", first, COMMAND)
    assert default_folder(folder, "node-2") == first
    (folder / "node-2").rename(folder / "away")
    (folder / "node-2").symlink_to("replacements/node-2-1")
    assert default_folder(folder, "node-2").name == "node-2-2"


@pytest.mark.parametrize(
    ("spoil", "host", "message"),
    [
        ("folder", None, "no such file: the new node's is made from it"),
        ("key", None, "ca.key: cannot be read"),
        ("", "0.0.0.0", "every address of a machine"),
        ("", "a:1", "only the host; the ports stay"),
        ("target", None, "was not prepared for a replacement"),
    ],
)
def test_what_cannot_be_prepared_is_told_and_leaves_nothing(
    written: Callable[..., Path], spoil: str, host: str | None, message: str
) -> None:
    folder = written()
    target = default_folder(folder, "node-2")
    if spoil == "folder":
        (folder / "node-2/node.toml").unlink()
    elif spoil == "key":
        (folder / "ca/ca.key").unlink()
    elif spoil == "target":
        target.mkdir(parents=True)
    with pytest.raises(ConfigError, match=message):
        prepare(folder, "node-2", target, COMMAND, host=host)
    left = list((folder / "replacements").iterdir()) if (folder / "replacements").exists() else []
    assert left == ([target] if spoil == "target" else [])
