from __future__ import annotations

from pathlib import Path

import pytest

from ticketing.config.check import check_path, node_values
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.problems import ConfigError


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_cluster(plan_cluster(nodes=3, now_ms=1), tmp_path / "c")
    return tmp_path / "c"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_whole_cluster_is_checked_at_once(cluster: Path) -> None:
    found = check_path(cluster)
    assert [checked.kind for checked in found] == ["client", "admin", "node", "node", "node"]
    assert not any(checked.problems or checked.warnings for checked in found)


def test_faults_of_several_files_are_told_together(cluster: Path) -> None:
    change(cluster / "client.toml", "tls = ", "tsl = ")
    change(cluster / "node-2/node.toml", "place = ", "plaec = ")
    bad = [checked for checked in check_path(cluster) if checked.problems]
    assert [checked.file.name for checked in bad] == ["client.toml", "node.toml"]


def test_nodes_that_would_not_form_together_are_told(cluster: Path) -> None:
    change(cluster / "node-3/node.toml", "# delta_ms = 500", "delta_ms = 400")
    bad = [checked for checked in check_path(cluster) if checked.problems]
    assert [checked.file.parent.name for checked in bad] == ["node-3"]
    assert "would not form a domain together" in bad[0].problems[0].message


def test_a_folder_without_any_of_the_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds none of"):
        check_path(tmp_path)


def test_effective_values_say_where_they_came_from_and_show_no_secret(cluster: Path) -> None:
    file = cluster / "node-1/node.toml"
    rows = {value.key: value for value in node_values(file)}
    assert rows["node.place"].source.startswith("line ")
    assert rows["cluster.delta_ms"][1:] == ("500", "default")
    assert rows["cluster.nodes[3].client"].value == "127.0.0.1:5227"
    assert rows["secrets.client_tokens"].value == "(1 not shown)"
    text = file.read_text()
    for value in rows.values():
        assert len(value.value) < 40 or value.value not in text
