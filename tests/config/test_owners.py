"""Files of a node that runs as a user of its own, changed by root and by others."""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ticketing.cli.local_nodes import LOG, _open_log
from ticketing.cli.main import main
from ticketing.config.authority_files import add_next
from ticketing.config.certificate_files import renew
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.edit import replace_file, set_values
from ticketing.config.load import load_node
from ticketing.config.owners import give_all_to_owner, give_folder_to_owner, give_to_owner
from ticketing.config.problems import ConfigError
from ticketing.config.replacement_folder import prepare, settle
from ticketing.config.secret_files import read_secrets, with_secret, write_changes
from ticketing.node.settings import OperatorCommand

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

NODE_USER, NODE_GROUP, OTHER_USER = 64_001, 64_002, 64_003


def as_user(user: int, action: Callable[[], object]) -> str:
    """What comes of it in a process of that user and the nodes' group: `done`, or the error."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(NODE_GROUP)
            os.setuid(user)
            action()
            os.write(write, b"done")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error} {getattr(error, 'hint', '')}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(pid, 0)
    return told


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every user can reach, as those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="ticketing-owners-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def cluster(home: Path) -> Path:
    """A cluster's folder that has been given to the nodes' user, as the shipped unit wants it."""
    folder = home / "cluster"
    write_cluster(plan_cluster(nodes=3, tls=True, now_ms=1), folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NODE_USER, NODE_GROUP)
    return folder


def foreign(folder: Path) -> list[Path]:
    """What does not belong to the nodes' user."""
    found = (path for path in (folder, *folder.rglob("*")))
    return [path for path in found if (path.lstat().st_uid, path.lstat().st_gid) != (NODE_USER, NODE_GROUP)]


def test_what_root_has_changed_is_still_read_by_the_nodes_user(cluster: Path) -> None:
    nodes = [load_node(cluster / f"node-{n}") for n in (1, 2, 3)]
    write_changes(with_secret(read_secrets(nodes, "client"), "a-second-client-token"))
    now = datetime.datetime.now(datetime.UTC)
    renew(nodes[0], cluster, now)
    add_next(cluster, nodes, now)
    assert foreign(cluster) == []
    assert as_user(NODE_USER, lambda: load_node(cluster / "node-1")) == "done"
    assert as_user(NODE_USER, (cluster / "node-1/tls/node.key").read_bytes) == "done"


def test_a_replacement_that_root_prepares_is_the_nodes_users(cluster: Path) -> None:
    command = OperatorCommand(command_id="c", who="root", why="a test")
    made = prepare(cluster, "node-2", cluster / "replacements/node-2-1", command)
    assert foreign(cluster) == []
    assert as_user(NODE_USER, lambda: load_node(made.folder)) == "done"
    settle(cluster, "node-2", made.folder, running=False)
    assert foreign(cluster) == []


def test_root_gives_nothing_away_that_a_link_of_the_nodes_user_leads_to(cluster: Path, home: Path) -> None:
    secret = home / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    log, node = cluster / "node-1" / LOG, cluster / "node-1"
    log.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        _open_log(node)
    log.unlink()
    os.link(secret, log)
    descriptor = os.open(log, os.O_RDONLY)
    with pytest.raises(OSError, match="another name"):
        give_to_owner(descriptor, node)
    os.close(descriptor)
    (cluster / "link").symlink_to(home)
    for give in (give_folder_to_owner, give_all_to_owner):
        with pytest.raises(OSError, match=r".+"):
            give(cluster / "link", node)
    with pytest.raises(OSError, match="put in its place"):
        give_all_to_owner(cluster / "node-2", node)  # it is not what root has made
    assert secret.stat().st_uid == home.stat().st_uid == 0
    log.unlink()
    os.close(_open_log(node))
    assert log.stat().st_uid == NODE_USER


def test_root_that_runs_a_node_of_another_user_is_warned(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ticketing.server.run.run_node", lambda *_, **__: 0)
    assert main(["node", "start", "--config", str(cluster / "node-1")]) == 0
    assert f"state belongs to user {NODE_USER}, and the node runs as root" in capsys.readouterr().err
    os.chown(cluster / "node-1/state", 0, 0)
    assert main(["node", "start", "--config", str(cluster / "node-1")]) == 0
    assert capsys.readouterr().err == ""


def test_what_belongs_to_root_stays_roots(home: Path) -> None:
    file = home / "client.toml"
    file.write_text('token = "x"\n')
    os.chown(file, 0, NODE_GROUP)
    set_values(file, {"token": "y"})
    assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (0, NODE_GROUP, 0o600)


def test_a_group_that_was_let_in_still_reads(home: Path) -> None:
    file = home / "node.toml"
    file.write_text('token = "x"\n')
    os.chown(file, 0, NODE_GROUP)
    file.chmod(0o640)
    set_values(file, {"token": "y"})
    assert file.stat().st_mode & 0o777 == 0o640
    assert as_user(NODE_USER, file.read_text) == "done"


def test_who_cannot_keep_the_owner_changes_nothing_and_is_told(home: Path) -> None:
    folder = home / "theirs"
    folder.mkdir()
    file = folder / "node.toml"
    file.write_text('token = "x"\n')
    os.chown(folder, OTHER_USER, NODE_GROUP)
    told = as_user(OTHER_USER, lambda: replace_file(file, b"y"))
    assert told == (
        f"{ConfigError.__name__}: {file}: cannot write: it belongs to root, and would not any more"
        " (operation not permitted) run this as root"
    )
    assert file.read_text() == 'token = "x"\n'
    assert list(folder.iterdir()) == [file]
