from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import typer

from tests.cli.conftest import Tell
from tests.cli.planes import Planes, error, lock
from ticketing.cli.app import COMMANDS, app
from ticketing.cli.complete import complete
from ticketing.cli.completion import SCRIPTS
from ticketing.config.client_file import Typed


class Cluster:
    """Knows some keys, and how it was found."""

    found: Typed

    def __init__(self, typed: Typed) -> None:
        type(self).found = typed

    def places(self) -> list[str]:
        return ["node-1", "node-2"]

    def keys(self, prefix: str) -> list[str]:
        return [key for key in ("stock/1", "stock/2", "a b", "$(rm x)", "-k") if key.startswith(prefix)]

    def token(self, key: str) -> list[str]:
        return ["77"] if key == "stock/1" else []


@pytest.fixture
def candidates() -> Callable[..., list[str]]:
    root: Any = typer.main.get_command(app)
    return lambda *words: complete(words, root, Cluster)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rel"], ["release"]),
        (["node", "can"], ["can-stop"]),
        (["node", "restart", "--ro"], ["--rolling"]),
        (["node", "stop", "--node", ""], ["node-1", "node-2"]),
        (["node", "transfer-leader", "--to", "node-2"], ["node-2"]),
        (["status", "-o", "j"], ["json"]),
        (["acquire", "stock/"], ["stock/1", "stock/2"]),
        (["acquire", "--wait", "3", "stock/2"], ["stock/2"]),
        (["locks", "revoke", "stock/1", ""], ["77"]),
        (["release", "nothing", ""], []),
        (["acquire", "stock/1", ""], []),
        (["acquire", "k", "--", "st"], []),
        (["nonsense", ""], []),
        (["completion", "z"], ["zsh"]),
        (["token", "add", "--kind", ""], ["client", "peer", "admin"]),
        (["locks", "list", "--sort", "a"], ["age"]),
    ],
)
def test_what_could_stand_at_the_cursor(
    candidates: Callable[..., list[str]], words: list[str], expected: list[str]
) -> None:
    assert candidates(*words) == expected


def test_a_key_that_a_shell_would_act_upon_is_not_offered(candidates: Callable[..., list[str]]) -> None:
    assert candidates("locks", "show", "") == ["stock/1", "stock/2"]


def test_the_typed_configuration_is_the_one_that_is_asked(candidates: Callable[..., list[str]]) -> None:
    candidates("locks", "show", "--config", "x", "--admin-config=y", "s")
    assert (Cluster.found.config, Cluster.found.admin_config) == ("x", "y")


def test_every_command_and_option_is_offered(candidates: Callable[..., list[str]]) -> None:
    assert candidates("") == list(COMMANDS)
    assert {"--wait", "--lease", "--extend", "--addr", "--help"} <= set(candidates("acquire", "--"))


def test_keys_and_places_come_from_the_cluster(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", {"locks": [lock("stock/1")], "next": None})
    planes.on("GET", "/v1/locks/stock%2F1", {"lock": lock("stock/1", 99)})
    assert tell("__complete", "acquire", "st") == (0, "stock/1\n", "")
    assert tell("__complete", "release", "stock/1", "") == (0, "99\n", "")
    assert tell("__complete", "node", "stop", "--node", "") == (0, "node-1\nnode-2\nnode-3\n", "")


def test_a_cluster_that_does_not_answer_or_is_not_there_is_no_word(planes: Planes, tell: Tell) -> None:
    planes.on("GET", "/v1/locks", error(500, "internal", "oops"))
    assert tell("__complete", "acquire", "st") == (0, "", "")
    planes.statuses(None, None, None)
    assert tell("__complete", "acquire", "st") == (0, "", "")
    assert tell("__complete", "acquire", "--config", "/nowhere", "st") == (0, "", "")


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_the_script_is_one_that_the_shell_reads(tell: Tell, shell: str) -> None:
    code, out, err = tell("completion", shell)
    assert (code, err) == (0, "")
    assert "ticketing __complete" in out
    if shutil.which(shell):
        assert (
            subprocess.run([shell, "-n"], input=out, text=True, capture_output=True, check=False).stderr == ""
        )


def test_bash_completes(tell: Tell, tmp_path: Any) -> None:
    """The script with a `ticketing` that says what it was asked."""
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    script = tell("completion", "bash")[1]
    program = (
        f'ticketing() {{ printf "%s\\n" "asked:$#:$4" "event:7"; }}\n{script}\n'
        "COMP_WORDS=(ticketing locks show ev); COMP_CWORD=3; _ticketing\n"
        'printf "%s|" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=10)
    assert done.stdout == "asked:4:ev|event:7|"


def test_an_unknown_shell_is_a_mistake(tell: Tell) -> None:
    code, _, err = tell("completion", "csh")
    assert code == 2
    assert "SHELL must be one of bash, zsh, fish, not 'csh'" in err
