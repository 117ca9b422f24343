from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.node_folder import choose_node, place_name
from ticketing.config.problems import ConfigError
from ticketing.server.files import StateLock


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    folder = tmp_path / "ticketing-cluster"
    write_cluster(plan_cluster(nodes=3, now_ms=1), folder)
    return folder


@contextmanager
def running(cluster: Path, *numbers: int) -> Iterator[None]:
    with ExitStack() as stack:
        for number in numbers:
            stack.callback(StateLock(cluster / f"node-{number}" / "state").release)
        yield


def test_both_ways_to_name_a_place_mean_the_same() -> None:
    assert place_name("2") == place_name("node-2") == "node-2"
    assert place_name("db") == "db"


@pytest.mark.parametrize("where", ["..", "."])
def test_of_several_nodes_the_lowest_that_is_not_running_is_meant(cluster: Path, where: str) -> None:
    here = cluster / where
    assert choose_node(here).file.parent.name == "node-1"
    with running(cluster, 1):
        chosen = choose_node(here)
        assert chosen.file.parent.name == "node-2"
        assert chosen.note == "starting node-2 of node-1, node-2, node-3 (node-1 runs already)"
    with running(cluster, 1, 2, 3), pytest.raises(ConfigError, match="every node here is running already"):
        choose_node(here)


def test_a_node_can_be_named_by_number_name_file_or_folder(cluster: Path) -> None:
    wanted = cluster / "node-3" / "node.toml"
    assert choose_node(cluster.parent, None, "3").file == wanted
    assert choose_node(cluster.parent, None, "node-3").file == wanted
    assert choose_node(cluster.parent, cluster, "3").file == wanted
    assert choose_node(cluster.parent, wanted).file == wanted
    assert choose_node(cluster.parent, wanted.parent).file == wanted
    assert choose_node(wanted.parent).file == wanted


def test_a_file_of_another_node_than_named_is_refused(cluster: Path) -> None:
    with pytest.raises(ConfigError, match="is the file of node-3, not of node-2"):
        choose_node(cluster, cluster / "node-3", "2")
    with pytest.raises(ConfigError, match="has no node-4; there are node-1, node-2, node-3"):
        choose_node(cluster, None, "4")


def test_where_no_node_is_it_is_told_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no node is configured here") as error:
        choose_node(tmp_path)
    assert "ticketing init" in error.value.hint


def test_nodes_are_counted_as_numbers(tmp_path: Path) -> None:
    for number in (10, 2):
        folder = tmp_path / f"node-{number}"
        folder.mkdir()
        (folder / "node.toml").write_text("[node]\n")
    assert choose_node(tmp_path).file.parent.name == "node-2"
