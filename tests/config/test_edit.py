from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.config.edit import set_values, with_value
from ticketing.config.problems import ConfigError

FILE = """\
# kept
[node]
place = "node-1"  # this comment goes with its value

[[cluster.nodes]]
name = "node-1"
client = "a:1"

[[cluster.nodes]]
name = "node-2"
client = "b:1"

[listen]

[secrets]
# kept too
client_tokens = [
    "one",  # kept not
    "two",
]
admin_token = "x"
"""


def test_a_list_over_several_lines_is_replaced_and_everything_else_stays() -> None:
    result = with_value(FILE, "secrets.client_tokens", ["new"])
    assert 'client_tokens = ["new"]\nadmin_token = "x"' in result
    assert "# kept\n" in result
    assert "# kept too\n" in result


def test_an_item_of_a_list_of_tables_is_found_by_its_number() -> None:
    result = tomllib.loads(with_value(FILE, "cluster.nodes[2].client", "c:9"))
    assert [node["client"] for node in result["cluster"]["nodes"]] == ["a:1", "c:9"]


def test_a_missing_key_is_added_to_its_table() -> None:
    assert tomllib.loads(with_value(FILE, "listen.client", "0.0.0.0:1"))["listen"] == {"client": "0.0.0.0:1"}
    assert (
        tomllib.loads(with_value(FILE, "cluster.nodes[1].peer", "a:2"))["cluster"]["nodes"][0]["peer"]
        == "a:2"
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[secrets]\na = "x"\n', "tls.ca"),
        ('secrets = { client_tokens = ["x"], a = 1 }\n', "secrets.client_tokens"),
        ('[secrets]\na = """\nclient_tokens = 1\n"""\n[x]\n', "secrets.a.b"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, key: str) -> None:
    with pytest.raises(ValueError):
        with_value(text, key, "y")


@settings(max_examples=60, deadline=None)
@given(value=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=3))
def test_any_text_comes_back_as_it_was(value: list[str]) -> None:
    assert (
        tomllib.loads(with_value(FILE, "secrets.client_tokens", value))["secrets"]["client_tokens"] == value
    )


def test_a_file_that_cannot_be_followed_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('secrets = { client_tokens = ["x"] }\n')
    with pytest.raises(ConfigError, match=r"set secrets\.client_tokens by hand"):
        set_values(path, {"secrets.client_tokens": ["y"]})
    assert "x" in path.read_text()


def test_a_changed_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(FILE)
    path.chmod(0o644)
    set_values(path, {"secrets.admin_token": "y", "secrets.client_tokens": ["z"]})
    assert tomllib.loads(path.read_text())["secrets"] == {"client_tokens": ["z"], "admin_token": "y"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
