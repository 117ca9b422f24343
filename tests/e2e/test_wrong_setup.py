"""What an operator or user got wrong: a clear line, its exit code, nothing that hangs, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster import (
    Cluster,
    Ended,
    NodeProcess,
    occupied,
    port_is_free,
    run_ticketing,
    told_status,
)
from tests.e2e.conftest import MakeCluster
from tests.e2e.waiting import until, until_told
from ticketing.server.files import running_pid

FAILURE = 1
USAGE = 2
UNREACHABLE = 7
REFUSED = 8


def in_one_line(ended: Ended, *wanted: str) -> None:
    """An error without a traceback, which names what is wanted."""
    assert "Traceback" not in ended.error
    assert ended.out == ""
    for text in wanted:
        assert text in ended.error, ended.error


def ports(node: NodeProcess) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in (node.client, node.peer, node.admin) if address]


def nothing_left(node: NodeProcess) -> None:
    """No listener, and a lock that the next process gets."""
    assert all(map(port_is_free, ports(node)))
    assert running_pid(node.folder / "state") is None


@pytest.mark.parametrize("count", ["0", "2", "4", "6", "7", "-3", "three", "1000000"])
def test_init_refuses_a_wrong_number_of_nodes(tmp_path: Path, count: str) -> None:
    ended = run_ticketing("init", "--nodes", count, "--dir", "cluster", folder=tmp_path)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ")
    assert not any(tmp_path.iterdir())


def test_init_never_overwrites(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(1)
    before = {path: path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()}
    ended = run_ticketing("init", "--nodes", "3", "--dir", cluster.folder, folder=tmp_path)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", str(cluster.folder))
    assert {path: path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()} == before


def test_init_refuses_ports_beyond_the_last(tmp_path: Path) -> None:
    ended = run_ticketing("init", "--client-port", "64800", "--dir", "cluster", folder=tmp_path)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", "--client-port", "63533")
    assert not any(tmp_path.iterdir())


def without_last_node(text: str) -> str:
    return text[: text.rindex("[[cluster.nodes]]")] + text[text.index("# Where to listen") :]


SPOILT: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "two nodes": (without_last_node, "2 nodes"),
    "no TOML": (lambda text: text + "\n[node\n", "node.toml"),
    "no UTF-8": (lambda text: text.encode() + b"\n# \xff\n", "node.toml"),
    "unknown key": (lambda text: text.replace("[log]", "[log]\nlevle = 1"), "levle"),
    "wrong type": (lambda text: text.replace('state = "state"', "state = 7"), "node.state"),
    "unknown place": (lambda text: text.replace('place = "node-1"', 'place = "node-9"'), "node-9"),
    "an address twice": (
        lambda text: text.replace('name = "node-2"\nclient', 'name = "node-2"\npeer', 1),
        "node",
    ),
    "a port too high": (lambda text: text.replace(f":{port_in(text)}", ":70000"), "70000"),
    "an empty token": (
        lambda text: text.replace("client_tokens = [", 'client_tokens = ["", '),
        "client_tokens",
    ),
    "an empty file": (lambda text: "", "node.toml"),
}


def port_in(text: str, node: int = 0) -> str:
    return str(tomllib.loads(text)["cluster"]["nodes"][node]["client"].rpartition(":")[2])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `init` wrote for three nodes, to be copied."""
    return Cluster(tmp_path_factory.mktemp("written") / "cluster").folder


@pytest.fixture
def node(written: Path, tmp_path: Path) -> NodeProcess:
    """The first node of a fresh copy; none of its processes runs."""
    return NodeProcess(Path(shutil.copytree(written, tmp_path / "cluster")) / "node-1")


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_wrong_configuration_starts_nothing(node: NodeProcess, spoilt: str) -> None:
    spoil, named = SPOILT[spoilt]
    content = spoil(node.config.read_text())
    node.config.write_bytes(content if isinstance(content, bytes) else content.encode())
    ended = run_ticketing("node", "start", folder=node.folder)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", str(node.config), named)
    nothing_left(node)


def test_a_configuration_that_is_not_there_or_cannot_be_read_starts_nothing(
    node: NodeProcess, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = run_ticketing("node", "start", folder=empty)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", str(empty / "node.toml"), "ticketing init")
    ended = run_ticketing("node", "start", "--config", empty / "other.toml", folder=empty)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", "other.toml")

    if os.geteuid() == 0:  # who may read everything
        node.config.unlink()
        node.config.mkdir()
        ended = run_ticketing("node", "start", "--config", node.config, folder=node.folder)
    else:
        node.config.chmod(0)
        ended = run_ticketing("node", "start", folder=node.folder)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ", "node.toml")
    nothing_left(node)


@pytest.mark.parametrize("name", ["permit.json", "record.json", "floor.json"])
def test_a_damaged_file_of_its_state_starts_nothing(node: NodeProcess, name: str) -> None:
    damaged = node.folder / "state" / name
    damaged.write_bytes(b'{"first_token": "18832')
    ended = run_ticketing("node", "start", folder=node.folder)
    assert ended.status == USAGE, ended
    in_one_line(ended, str(damaged))
    nothing_left(node)


@pytest.mark.parametrize("which", ["client", "peer", "admin"])
async def test_a_port_in_use_is_named_and_taken_once_it_is_free(
    make_cluster: MakeCluster, which: str
) -> None:
    cluster = make_cluster()
    node = cluster.nodes[0]
    address = getattr(node, which)
    with occupied(address):
        ended = await asyncio.to_thread(run_ticketing, "node", "start", folder=node.folder)
        assert ended.status == FAILURE, ended  # a later start may well succeed
        in_one_line(ended, address, "in use")
        assert [port for port in ports(node) if not port_is_free(port)] == [int(address.rpartition(":")[2])]
    cluster.start()
    await cluster.leader()


async def test_a_node_with_another_secret_is_no_peer_and_everybody_says_so(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    stranger, *others = cluster.nodes
    settings = stranger.config.read_text()
    secret = tomllib.loads(settings)["secrets"]["peer_secrets"][0]
    stranger.config.write_text(settings.replace(secret, secret[::-1]))
    cluster.start()

    async def others_miss_it() -> bool:
        statuses = await asyncio.gather(*(node.status() for node in others))
        return all(
            status is not None and status["links"]["missing"] == [stranger.place] for status in statuses
        )

    await until_told(others_miss_it, "the others have links with each other, not with the stranger")
    status = await told_status(others[0])
    assert status["role"] == "waiting"
    assert any(stranger.place in text for text in status["membership"]["waiting_for"]), status["membership"]
    await until(lambda: "secret" in others[0].log_end(), "the log says why")
    assert "secret" in stranger.log_end()
    assert secret not in others[0].log.read_text() + stranger.log.read_text()


async def test_a_node_with_another_configuration_hinders_forming_and_is_named(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    odd = cluster.nodes[1]
    settings = odd.config.read_text()
    assert "# delta_ms = 500" in settings
    odd.config.write_text(settings.replace("# delta_ms = 500", "delta_ms = 400"))
    cluster.start()

    async def named() -> bool:
        status = await cluster.nodes[0].status()
        return status is not None and any(
            odd.place in text and "configuration" in text for text in status["membership"]["waiting_for"]
        )

    await until_told(named, "the lowest place says which one differs")


@pytest.mark.parametrize(
    "words",
    [
        ["k" * 129],
        ["좌" * 43],
        [""],
        ["a b"],
        ["k", "--wait", "256"],
        ["k", "--wait", "-1"],
        ["k", "--wait", "nan"],
        ["k", "--lease", "0"],
        ["k", "--lease", "251"],
        ["k", "--lease", "5", "--budget", "6"],
    ],
    ids=lambda words: " ".join(words)[:20],
)
def test_acquire_refuses_what_is_out_of_range_before_it_connects(tmp_path: Path, words: list[str]) -> None:
    ended = run_ticketing("acquire", *words, "--addr", "127.0.0.1:1", folder=tmp_path, within_s=10)
    assert ended.status == USAGE, ended
    in_one_line(ended, "error: ")


def test_acquire_tells_that_nobody_is_there(tmp_path: Path) -> None:
    ended = run_ticketing(
        "acquire", "k", "--wait", "1", "--addr", "127.0.0.1:1", folder=tmp_path, within_s=15
    )
    assert ended.status == UNREACHABLE, ended
    in_one_line(ended, "error: ", "127.0.0.1:1")


async def test_acquire_with_a_wrong_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.leader()
    (tmp_path / "token").write_text("wrong\n")
    words = [word for node in cluster.nodes for word in ("--addr", node.client)]
    ended = await asyncio.to_thread(
        run_ticketing, "acquire", "k", *words, "--token-file", tmp_path / "token", folder=tmp_path
    )
    assert ended.status == REFUSED, ended
    in_one_line(ended, "error: ")
