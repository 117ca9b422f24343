from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ticketing.cli.app import COMMANDS
from ticketing.cli.dev_cluster import free_ports
from ticketing.cli.errors import CommandFailed
from ticketing.cli.local_nodes import running_here, start_detached
from ticketing.cli.main import main
from ticketing.config.cluster_folder import make_cluster, plan_cluster, write_cluster
from ticketing.config.edit import set_values
from ticketing.node.settings import Place

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _nothing_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TICKETING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in COMMANDS),
        *(
            ["node", name]
            for name in ("start", "list", "stop", "can-stop", "transfer-leader", "restart", "replace")
        ),
        *(["locks", name] for name in ("list", "show", "revoke")),
        *(["token", name] for name in ("list", "add", "use", "remove")),
        *(["cert", name] for name in ("show", "renew", "add-ca", "use-ca", "remove-ca")),
        *(["config", name] for name in ("check", "show")),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], words: list[str], option: str
) -> None:
    code, out, err = told(capsys, *words, option)
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: ticketing {words[0]}")
    assert "Example: ticketing " in " ".join(out.split())


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "--help")
    assert code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in out


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["acquire"], "the key is missing", "--key"),
        (["acquire", "k", "cmd", "--wait", "9"], "unexpected extra argument", "put -- before the command"),
        (["acquire", "k", "--"], "no command stands after --", ""),
        (["acquire", "k", "--", ""], "no command stands after --", ""),
        (["acquire", "--", "k"], "the key is missing", "--key"),
        (["acquire", "-k"], "no such option: -k", "ticketing acquire --help"),
        (["acquire", "k", "--key", "-k"], "given twice", ""),
        (["acquire", "a b"], "contains a space", ""),
        (["acquire", "k" * 129], "129 bytes", ""),
        (["acquire", ""], "empty", ""),
        (["acquire", "k", "--wait", "-1"], "--wait must be from 0 to 255 seconds, not '-1'", ""),
        (["acquire", "k", "--wait", "256"], "--wait must be from 0 to 255", ""),
        (["acquire", "k", "--wait", "255.1"], "--wait must be from 0 to 255", ""),
        (["acquire", "k", "--wait", "abc"], "--wait must be from 0 to 255", ""),
        (["acquire", "k", "--wait", "nan"], "--wait must be from 0 to 255", ""),
        (["acquire", "k", "--lease", "0"], "--lease must be from 1 to 250", ""),
        (["acquire", "k", "--lease", "251"], "--lease must be from 1 to 250", ""),
        (["acquire", "k", "--lease", "inf"], "--lease must be from 1 to 250", ""),
        (["acquire", "k", "--budget", "251"], "--budget must be", ""),
        (["acquire", "k", "--lease", "10", "--budget", "11"], "above the lease", ""),
        (["acquire", "k", "--extend"], "--extend is for a command", "put it after --"),
        (["acquire", "k", "--grace", "1"], "--grace is for a command", ""),
        (["acquire", "k", "--fail-code", "9"], "--fail-code is for a command", ""),
        (
            ["acquire", "k", "--lease", "10", "--grace", "8", "--budget", "2", "--", "x"],
            "must be below lease",
            "",
        ),
        (["acquire", "k", "--on-lease-end", "stop", "--", "x"], "must be kill or warn", ""),
        (["acquire", "k", "--fail-code", "256", "--", "x"], "--fail-code must be a whole number from 0", ""),
        (["acquire", "k", "-o", "xml"], "--output must be one of text, json", ""),
        (["acquire", "k"], "no cluster is configured here", "ticketing init"),
        (["release", "k"], "KEY and TOKEN are wanted", ""),
        (["release", "k", "1", "2"], "KEY and TOKEN are wanted", ""),
        (["release", "k", "0x12"], "TOKEN must be a whole number", ""),
        (["release", "k", "0"], "TOKEN must be a whole number", ""),
        (["release", "k", "9" * 30], "TOKEN must be a whole number", ""),
        (["status"], "no cluster is configured here", "--admin-config"),
        (["status", "--", "x"], "unexpected extra argument", ""),
        (["node", "start"], "no node is configured here", "ticketing init"),
        (["init", "--nodes", "4"], "4 nodes", ""),
        (["init", "--nodes", "many"], "--nodes must be a whole number", ""),
        (["dev", "--nodes", "2"], "2 nodes", ""),
        (["frobnicate"], "no such command 'frobnicate'", "ticketing --help"),
        (["--frobnicate"], "no such option", ""),
    ],
)
def test_mistakes_are_told_in_a_line_with_what_to_do(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str, hint: str
) -> None:
    code, out, err = told(capsys, *words)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert hint in "".join(line for line in lines if line.startswith("hint: "))
    assert "Traceback" not in err


def test_called_without_anything_it_shows_its_help_and_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = told(capsys)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ticketing")


def test_no_message_shows_a_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TICKETING_TOKEN", SECRET)
    (tmp_path / "client.toml").write_text(f'addrs = []\ntoken = "{SECRET}"\n')
    (tmp_path / "client.toml").chmod(0o600)
    for words in (["acquire", "k"], ["--debug", "acquire", "k"], ["config", "show"]):
        code, out, err = told(capsys, *words)
        assert code == 2
        assert SECRET not in out + err


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "acquire", "k", "--debug")
    assert code == 2
    assert err.startswith("Traceback")


def test_an_error_of_ours_is_one_line_and_how_to_see_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("ticketing.cli.init.plan_cluster", broken)
    code, _, err = told(capsys, "init")
    assert code == 1
    assert err == "error: unexpected RuntimeError\nhint: run it again with --debug to see where\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "--version")
    assert code == 0
    assert out.startswith("ticketing ")


def ticketing(*words: str, stdout: int, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ticketing", *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
        check=False,
        env={**os.environ, **more},
    )


@pytest.mark.parametrize(
    "words",
    [["acquire", "--help"], ["config", "show", "--addr", "a:1"], ["completion", "bash"]],
    ids=["help", "table", "text"],
)
def test_a_reader_that_went_away_is_no_error(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = ticketing(*words, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [["config", "show", "--addr", "a:1"], ["acquire", "--help"]], ids=" ".join)
def test_a_full_disk_is_an_error(words: list[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    done = ticketing(*words, stdout=full)
    os.close(full)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the result: no space left")
    assert "Traceback" not in done.stderr


def test_a_locale_without_our_letters_ends_no_command() -> None:
    done = ticketing(
        "config",
        "show",
        "--addr",
        "a:1",
        "--tls",
        "/pfad/für/ä.pem",
        stdout=subprocess.PIPE,
        LC_ALL="C",
        PYTHONUTF8="0",
    )
    assert done.returncode == 2
    assert "there is no CA file" in done.stderr


FORBIDDEN = (
    "textual",
    "aiohttp",
    "cryptography",
    "uvloop",
    "rich",
    "ticketing.server.run",
    "ticketing.node.node",
)


QUICK = ("typer", "pydantic", "msgspec", "http.client", "json", "ticketing.cli.app", "ticketing.node")
"""What takes longer to load than a lock takes to be had."""


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("acquire", FORBIDDEN + QUICK),
        ("release", FORBIDDEN + QUICK),
        ("status", FORBIDDEN),
        ("locks", FORBIDDEN),
    ],
)
def test_quick_commands_load_nothing_heavy(command: str, forbidden: tuple[str, ...]) -> None:
    program = (
        "import sys; from ticketing.cli.main import main; main(sys.argv[1:]);"
        f"print([name for name in {forbidden} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, "k"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.splitlines() == ["[]"], done.stderr


def test_missing_tls_is_told_by_the_node_alone_and_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = plan_cluster(nodes=3, hosts=("10.0.0.1", "10.0.0.2", "10.0.0.3"), tls=False, now_ms=1)
    write_cluster(cluster, tmp_path / "c")
    monkeypatch.setattr("ticketing.server.run.run_node", lambda *_, **__: 0)
    assert told(capsys, "node", "start", "--config", str(tmp_path / "c/node-1")) == (0, "", "")


def test_a_node_that_is_slow_to_start_is_not_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.cli.local_nodes.START_S", 0.0)
    client, admin = free_ports(2)
    place = Place("node-1", f"127.0.0.1:{client}", "", f"127.0.0.1:{admin}")
    write_cluster(make_cluster([place], tls=False, permit=False, now_ms=1), tmp_path / "c")
    with pytest.raises(
        CommandFailed, match=r"does not listen yet after 0 s; its process (\d+) goes on"
    ) as failed:
        start_detached(tmp_path / "c/node-1")
    pid = int(re.findall(r"process (\d+)", str(failed.value))[0])
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[0] == pid


def test_a_node_that_cannot_start_detached_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = plan_cluster(nodes=1, client_port=min(port, 63_000), now_ms=1)
        write_cluster(cluster, tmp_path / "c")
        file = tmp_path / "c/node-1/node.toml"
        set_values(file, {"cluster.nodes[1].client": f"127.0.0.1:{port}"})
        with pytest.raises(CommandFailed, match="did not start") as failed:
            start_detached(tmp_path / "c/node-1")
    assert "in use" in str(failed.value)
    assert running_here(tmp_path / "c/node-1") is None
