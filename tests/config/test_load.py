from __future__ import annotations

import os
from pathlib import Path

import pytest

from ticketing.config.load import LoadedNode, load_node
from ticketing.config.problems import ConfigError

SECRETS = """
[secrets]
client_tokens = ["a-client-token"]
peer_secrets = ["a-peer-secret-of-some-length"]
admin_token = "an-admin-token-of-some-length"
"""

NODES = """
[[cluster.nodes]]
name = "node-1"
client = "127.0.0.1:5225"
[[cluster.nodes]]
name = "node-2"
client = "127.0.0.1:5226"
[[cluster.nodes]]
name = "node-3"
client = "127.0.0.1:5227"
"""

GOOD = '[node]\nplace = "node-2"\n' + NODES + SECRETS


def write(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def load(folder: Path, text: str) -> LoadedNode:
    return load_node(write(folder, text))


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, text)
    name = str(folder / "node.toml")
    lines = [str(problem) for problem in error.value.problems]
    assert all(line.startswith(name) for line in lines)
    return [line.removeprefix(name) for line in lines]


def test_a_short_file_gets_the_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    settings = loaded.settings
    assert settings.node.place == "node-2"
    assert settings.node.places[2].peer == "127.0.0.1:6227"
    assert settings.node.places[2].admin == "127.0.0.1:7227"
    assert not settings.node.standalone
    assert (settings.listen_client, settings.listen_peer, settings.listen_admin) == (
        "127.0.0.1:5226",
        "127.0.0.1:6226",
        "127.0.0.1:7226",
    )
    assert settings.node.delta_ns == 500_000_000
    assert settings.node.peer_secrets == (b"a-peer-secret-of-some-length",)
    assert settings.state_dir == tmp_path / "state"
    assert loaded.warnings == ()


def test_every_limit_and_time_of_the_file_reaches_the_settings(tmp_path: Path) -> None:
    more = (
        "[limits]\nwaiters = 7\nunauthenticated = 9\n"
        "[raft]\nheartbeat_ms = 20\nelection_timeout_max_ms = 900\nsnapshot_bytes_per_s = 131072\n"
    )
    settings = load(tmp_path, GOOD + more).settings
    assert settings.node.limits.waiters == 7
    assert settings.node.limits.keys == 1_000_000
    assert settings.limits.unauthenticated == 9
    assert settings.node.raft.heartbeat_ns == 20_000_000
    assert settings.node.raft.election_timeout_max_ns == 900_000_000
    assert settings.node.snapshot_bytes_per_s == 131_072


def test_one_node_is_standalone_and_has_no_peer_port(tmp_path: Path) -> None:
    text = '[node]\nplace = "one"\n[[cluster.nodes]]\nname = "one"\nclient = "[::1]:5225"\n'
    settings = load(tmp_path, text).settings
    assert settings.node.standalone
    assert settings.listen_peer == ""
    assert settings.node.places[0].peer == ""
    assert settings.node.client_tokens == ()


def test_every_fault_is_told_at_once_with_line_and_key(tmp_path: Path) -> None:
    text = (
        '[node]\nplace = "node-9"\nrejion = false\n'
        '[[cluster.nodes]]\nname = "node-1"\nclient = "0.0.0.0:5225"\n'
        '[[cluster.nodes]]\nname = "node-1"\nclient = "fd00::1:5225"\n'
        '[[cluster.nodes]]\nname = "node-3"\nclient = "10.0.0.3:0"\n'
        "[log]\nlevel = 3\n[limits]\nkeys = 0\n"
    )
    told = problems(tmp_path, text + SECRETS)
    assert any(line.startswith(":3: node.rejion: unknown key; did you mean `rejoin`?") for line in told)
    assert any(line.startswith(":2: node.place: 'node-9' is not among") for line in told)
    assert any(
        line.startswith(":6: cluster.nodes[1].client: '0.0.0.0:5225' is every address") for line in told
    )
    assert any(line.startswith(":8: cluster.nodes[2].name: 'node-1' is also") for line in told)
    assert any(line.startswith(":9: cluster.nodes[2].client: ") and "brackets" in line for line in told)
    assert any(line.startswith(":12: cluster.nodes[3].client: ") and "from 1 to" in line for line in told)
    assert any(line.startswith(":14: log.level: must be a string, not 3") for line in told)
    assert any(line.startswith(":16: limits.keys: must be from 1 to") for line in told)


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            replaced('client = "127.0.0.1:5226"', 'client = "127.0.0.1:5225"'),
            "is also cluster.nodes[1].client",
        ),
        (
            replaced('client = "127.0.0.1:5226"', 'client = "127.0.0.1:5226"\npeer = "127.0.0.1:5226"'),
            "cluster.nodes[2].peer: 127.0.0.1:5226 is also cluster.nodes[2].client",
        ),
        (replaced("127.0.0.1:5227", "127.0.0.1:64800"), "above 65535; write it out"),
        (replaced("127.0.0.1:5227", "10.0.0.3:5227"), "is on loopback, where the other nodes"),
        (replaced('["a-client-token"]', '["a-client-token", ""]'), "client_tokens[2]: is an empty string"),
        (replaced('["a-peer-secret-of-some-length"]', '["short"]'), "shorter than 16"),
        (replaced('peer_secrets = ["a-peer-secret-of-some-length"]', ""), "peer_secrets: is missing"),
        (replaced('place = "node-2"', 'place = "node-2"\nstate = 5'), "state: must be a string, not 5"),
        (replaced('place = "node-2"', ""), "node.place: is missing"),
        (GOOD + '[tls]\nca = "x"\ncertificate = "y"\nkey = "z"\n', "tls.key: there is no file"),
        (GOOD + '[tls]\nca = "x"\n', "tls.certificate: is missing"),
        (GOOD + "[raft]\nheartbeat_ms = 200\n", "a quarter of leader_lease_ms"),
        (GOOD + "[raft]\nelection_timeout_min_ms = 300\n", "at least leader_lease_ms"),
        (GOOD + "[raft]\nelection_timeout_max_ms = 450\n", "votes would split"),
        (GOOD + "[raft]\nquorum_check_ms = 100\n", "at least election_timeout_min_ms"),
        (GOOD + '[listen]\nclient = "0.0.0.0:5226"\n', "tls: is missing, and this node can be reached"),
        (GOOD + '[listen]\nadmin = "127.0.0.1:6226"\n', "listen.admin: 127.0.0.1:6226 is also listen.peer"),
        (GOOD + '[log]\nformat = "xml"\n', "must be one of auto, text, json"),
        (GOOD + "[extra]\n", "unknown key; known here: node, cluster"),
        (GOOD + 'cluster = "x"\n', "unknown key"),
        ("node = 1\n[cluster]\nnodes = 3\n", "cluster.nodes: must be a list, not 3"),
        ("[node\n", ":1: is not valid TOML"),
        ("", "is empty"),
        ("x = 1\nx = 2\n", ":2: is not valid TOML"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path, text: str, told: str) -> None:
    assert any(told in line for line in problems(tmp_path, text))


@pytest.mark.parametrize("count", [0, 2, 4, 6])
def test_other_counts_than_1_3_5_are_refused_with_the_reason(tmp_path: Path, count: int) -> None:
    nodes = "".join(
        f'[[cluster.nodes]]\nname = "n{i}"\nclient = "127.0.0.1:{5000 + i}"\n' for i in range(count)
    )
    cluster = nodes or "[cluster]\nnodes = []\n"
    told = problems(tmp_path, f'[node]\nplace = "n0"\n{cluster}{SECRETS}')
    assert any(f"{count} nodes: " in line and "3 or 5" in line for line in told)


def test_beyond_loopback_insecure_has_to_be_said_and_is_warned_of(tmp_path: Path) -> None:
    far = GOOD.replace("127.0.0.1:5225", "10.0.0.1:5225").replace("127.0.0.1:5226", "10.0.0.2:5225")
    far = far.replace("127.0.0.1:5227", "10.0.0.3:5225")
    assert any("tls: is missing" in line for line in problems(tmp_path, far))
    loaded = load(tmp_path, far.replace('place = "node-2"', 'place = "node-2"\ninsecure = true'))
    assert loaded.settings.insecure
    assert [warning.key for warning in loaded.warnings] == ["tls"]


def test_secrets_may_stand_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\ntwo\n")
    (tmp_path / "tokens").chmod(0o644)
    text = GOOD.replace('client_tokens = ["a-client-token"]', 'client_tokens_file = "tokens"')
    loaded = load(tmp_path, text)
    assert loaded.settings.node.client_tokens == ("one", "two")
    assert [warning.key for warning in loaded.warnings] == ["secrets.client_tokens_file"]
    assert "chmod 600" in loaded.warnings[0].message


def test_a_secret_in_two_places_or_in_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    both = GOOD.replace("[secrets]", '[secrets]\nclient_tokens_file = "missing"')
    told = problems(tmp_path, both)
    assert any("stands beside secrets.client_tokens" in line for line in told)
    assert any("cannot read" in line and "no such file" in line for line in told)


def test_a_file_with_secrets_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0o644)
    assert ["mode 0644" in warning.message for warning in load_node(path).warnings] == [True]


def test_no_message_shows_a_secret(tmp_path: Path) -> None:
    text = GOOD.replace('["a-client-token"]', '["a-client-token", ""]').replace("node-2", "x", 1)
    text = text.replace("a-peer-secret-of-some-length", "tiny-secret")
    told = "\n".join(problems(tmp_path, text))
    for secret in ("a-client-token", "tiny-secret", "an-admin-token"):
        assert secret not in told


def test_the_digest_is_the_same_on_every_node_and_another_for_another_cluster(tmp_path: Path) -> None:
    one = load(tmp_path, GOOD).settings.node.cluster
    assert load(tmp_path, GOOD.replace('place = "node-2"', 'place = "node-3"')).settings.node.cluster == one
    assert load(tmp_path, GOOD + "[raft]\nheartbeat_ms = 20\n").settings.node.cluster == one
    assert load(tmp_path, GOOD.replace("5227", "5228")).settings.node.cluster != one
    other = GOOD.replace("[[cluster.nodes]]", "[cluster]\ndelta_ms = 400\n[[cluster.nodes]]", 1)
    assert load(tmp_path, other).settings.node.cluster != one


def test_a_folder_means_its_node_file_and_no_rejoin_beats_the_file(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert load_node(tmp_path).settings.node.rejoin
    assert not load_node(tmp_path, rejoin=False).settings.node.rejoin


def test_files_that_cannot_be_read_are_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_node(tmp_path / "nowhere.toml")
    (tmp_path / "node.toml").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        load_node(tmp_path / "node.toml" / "..")
    (tmp_path / "latin.toml").write_bytes(b"[node]\nplace = '\xe9'\n")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: is not UTF-8"):
        load_node(tmp_path / "latin.toml")
    big = tmp_path / "big.toml"
    big.touch()
    os.truncate(big, 2 << 20)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_node(big)


def test_metrics_and_chrony_are_switched_on_by_their_keys(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD).settings
    assert (settings.metrics_open, settings.chronyc) == (False, "")
    more = '\n[admin]\nmetrics_open = true\n[clock]\nchronyc = "/usr/bin/chronyc"\n'
    settings = load(tmp_path, GOOD + more).settings
    assert (settings.metrics_open, settings.chronyc) == (True, "/usr/bin/chronyc")


def test_a_tool_of_chrony_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD + '\n[clock]\nchronyc = "/nowhere/chronyc"\n')
    (warning,) = [str(warning) for warning in loaded.warnings if "chronyc" in str(warning)]
    assert "/nowhere/chronyc" in warning
    there = tmp_path / "chronyc"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    assert not load(tmp_path, GOOD + f'\n[clock]\nchronyc = "{there}"\n').warnings
