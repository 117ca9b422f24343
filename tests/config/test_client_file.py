from __future__ import annotations

from pathlib import Path

import pytest

from ticketing.config.client_file import (
    Typed,
    find_access,
    find_admin,
    read_admin_file,
    read_client_file,
)
from ticketing.config.problems import ConfigError

CLIENT = 'addrs = ["10.0.0.1:5225"]\ntoken = "from-the-file"\n'
ADMIN = 'token = "an-admin"\n[[nodes]]\nname = "node-1"\nadmin = "10.0.0.1:7225"\n'


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def addr(number: int) -> str:
    return f'addrs = ["10.0.0.{number}:5225"]\n'


def test_the_first_file_that_is_there_is_taken(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path / "home")}
    own = put(tmp_path / "home/.config/ticketing/client.toml", addr(3))
    assert find_access(Typed(), environment, tmp_path).file == own
    beside = put(tmp_path / "ticketing-cluster/client.toml", addr(2))
    assert find_access(Typed(), environment, tmp_path).file == beside
    here = put(tmp_path / "client.toml", addr(1))
    assert find_access(Typed(), environment, tmp_path).file == here
    named = put(tmp_path / "other/client.toml", addr(4))
    environment["TICKETING_CONFIG"] = str(tmp_path / "other")
    assert find_access(Typed(), environment, tmp_path).addrs == ("10.0.0.4:5225",)
    typed = put(tmp_path / "typed.toml", addr(5))
    assert find_access(Typed(config=str(typed)), environment, tmp_path).addrs == ("10.0.0.5:5225",)
    assert find_access(Typed(config=str(typed)), environment, tmp_path).file != named


def test_the_users_folder_follows_xdg(tmp_path: Path) -> None:
    own = put(tmp_path / "xdg/ticketing/client.toml", addr(1))
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert find_access(Typed(), environment, tmp_path / "nowhere").file == own


def test_flags_beat_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    put(tmp_path / "client.toml", CLIENT)
    put(tmp_path / "token", "from-a-file-of-its-own\n")
    put(tmp_path / "ca.pem", "x")
    environment = {
        "TICKETING_ADDRS": "10.0.0.2:5225, 10.0.0.3",
        "TICKETING_TOKEN": "from-the-environment",
        "TICKETING_TLS": "system-roots",
    }
    typed = Typed(addrs=["[::1]:1,[::2]:2"], token_file="token", tls="ca.pem")
    flags = find_access(typed, environment, tmp_path)
    assert flags.addrs == ("[::1]:1", "[::2]:2")
    assert flags.token == "from-a-file-of-its-own"
    assert flags.tls == str(tmp_path / "ca.pem")
    assert dict(flags.sources) == {"addrs": "--addr", "token": "--token-file", "tls": "--tls"}
    variables = find_access(Typed(), environment, tmp_path)
    assert variables.addrs == ("10.0.0.2:5225", "10.0.0.3:5225")
    assert (variables.token, variables.tls) == ("from-the-environment", "system-roots")
    file = find_access(Typed(), {}, tmp_path)
    assert (file.addrs, file.token, file.tls) == (("10.0.0.1:5225",), "from-the-file", "off")
    assert {source for _, source in file.sources} == {str(tmp_path / "client.toml")}


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    put(tmp_path / "client.toml", CLIENT)
    names = ("TICKETING_ADDRS", "TICKETING_TOKEN", "TICKETING_TLS", "TICKETING_CONFIG")
    access = find_access(Typed(), dict.fromkeys(names, ""), tmp_path)
    assert access == find_access(Typed(), {}, tmp_path)
    assert access.token_from == str(tmp_path / "client.toml")


def test_each_value_is_found_on_its_own(tmp_path: Path) -> None:
    put(tmp_path / "client.toml", CLIENT)
    access = find_access(Typed(addrs=["10.0.0.9"]), {}, tmp_path)
    assert (access.addrs, access.token) == (("10.0.0.9:5225",), "from-the-file")


def test_without_any_file_addresses_are_enough(tmp_path: Path) -> None:
    access = find_access(Typed(), {"TICKETING_ADDRS": "127.0.0.1:5225"}, tmp_path)
    assert (access.addrs, access.token, access.tls, access.file) == (("127.0.0.1:5225",), "", "off", None)


def test_where_nothing_is_found_it_is_told_where_was_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        find_access(Typed(), {"HOME": "/home/me"}, tmp_path)
    for place in ("client.toml", "ticketing-cluster/client.toml", "/home/me/.config/ticketing/client.toml"):
        assert place in str(error.value)
    assert "ticketing init" in error.value.hint
    with pytest.raises(ConfigError, match="no such file"):
        find_access(Typed(config="nowhere.toml"), {}, tmp_path)


def test_a_file_that_is_not_there_is_told_with_who_names_it(tmp_path: Path) -> None:
    gone = tmp_path / "gone.toml"
    for typed, environment, name in (
        (Typed(config="gone.toml"), {"TICKETING_CONFIG": "other.toml"}, "--config"),
        (Typed(), {"TICKETING_CONFIG": str(gone)}, "TICKETING_CONFIG"),
    ):
        with pytest.raises(ConfigError) as error:
            find_access(typed, environment, tmp_path)
        assert str(error.value) == f"{gone}: {name}: no such file"
        with pytest.raises(ConfigError) as error:
            find_admin(typed, environment, tmp_path)
        assert str(error.value).startswith(f"{tmp_path / 'admin.toml'}: {name}: no such file")
        everything = {"TICKETING_TOKEN": "t", "TICKETING_TLS": "off", "TICKETING_ADDRS": "10.0.0.9:1"}
        assert find_access(typed, environment | everything, tmp_path).addrs == ("10.0.0.9:1",)


def test_every_wrong_flag_is_told_at_once(tmp_path: Path) -> None:
    typed = Typed(addrs=["0.0.0.0:1", "a:x"], token_file="none", tls="of")
    with pytest.raises(ConfigError) as error:
        find_access(typed, {}, tmp_path)
    told = [problem.key for problem in error.value.problems]
    assert told == ["--addr", "--addr", "--token-file", "--tls"]


def test_every_fault_of_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = put(tmp_path / "client.toml", 'addrs = ["10.0.0.1"]\ntokn = "x"\ntls = "/no/such/ca.pem"\n')
    with pytest.raises(ConfigError) as error:
        read_client_file(path)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"{path}:1: addrs[1]: ")
    assert lines[1].startswith(f"{path}:2: tokn: unknown key; did you mean `token`?")
    assert lines[2].startswith(f"{path}:3: tls: ")


def test_a_token_may_have_a_file_of_its_own_but_not_both(tmp_path: Path) -> None:
    put(tmp_path / "token", "secret\n")
    path = put(tmp_path / "client.toml", 'addrs = ["a:1"]\ntoken_file = "token"\n')
    assert read_client_file(path).token == "secret"
    put(path, 'addrs = ["a:1"]\ntoken = "x"\ntoken_file = "token"\n')
    with pytest.raises(ConfigError, match="beside token"):
        read_client_file(path)


def test_a_file_with_a_token_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    path = put(tmp_path / "client.toml", CLIENT, 0o644)
    assert "chmod 600" in read_client_file(path).warnings[0].message


def test_the_admin_file_is_looked_for_beside_the_clients(tmp_path: Path) -> None:
    put(tmp_path / "ticketing-cluster/client.toml", CLIENT)
    with pytest.raises(ConfigError, match="no such file"):
        find_admin(Typed(), {}, tmp_path)
    put(tmp_path / "ticketing-cluster/admin.toml", ADMIN)
    facts = find_admin(Typed(), {}, tmp_path)
    assert (facts.nodes, facts.token, facts.tls) == ((("node-1", "10.0.0.1:7225"),), "an-admin", "off")
    other = put(tmp_path / "other.toml", ADMIN.replace("node-1", "node-9"))
    assert find_admin(Typed(admin_config=str(other)), {}, tmp_path).nodes[0][0] == "node-9"


def test_an_admin_file_without_nodes_or_with_a_bad_address_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "admin.toml", ADMIN.replace(":7225", ""))
    with pytest.raises(ConfigError, match=r"nodes\[1\]\.admin: .* has no port"):
        read_admin_file(path)
    put(path, "nodes = []\n")
    with pytest.raises(ConfigError, match="nodes: is empty"):
        read_admin_file(path)
