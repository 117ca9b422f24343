"""The commands against real node processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticketing.cli.dev_cluster import DevCluster, free_ports
from ticketing.cli.local_nodes import start_detached
from ticketing.server.files import running_pid

pytestmark = pytest.mark.process
WITHIN_S = 30.0


def environment(config: Path | str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TICKETING_")}
    return {**clean, "TICKETING_CONFIG": str(config)}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ticketing", *words]


def until(ready: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := ready()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with DevCluster(3) as running:
        running.wait_for(running.view, "the election of a leader", within_s=WITHIN_S)
        yield running


class Ticketing:
    """Runs commands against one cluster."""

    def __init__(self, config: Path | str) -> None:
        self.environment = environment(config)

    def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        done = subprocess.run(
            command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env={**self.environment, **more},
        )
        return done.returncode, done.stdout, done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


@pytest.fixture
def ticketing(cluster: DevCluster) -> Ticketing:
    return Ticketing(cluster.config)


def test_a_lock_outlives_the_command_that_took_it_and_is_released_by_its_token(ticketing: Ticketing) -> None:
    code, out, err = ticketing.run("acquire", "plain", "--wait", "0")
    assert (code, err) == (0, "")
    token = out.strip()
    assert int(token) > 0
    code, out, err = ticketing.run("acquire", "plain", "--wait", "0")
    assert (code, out) == (3, "")
    assert re.fullmatch(rf"error: plain is held by ticketing \S+ \d+ \(token {token}, .* left\)\n", err)
    code, out, err = ticketing.run("acquire", "plain", "--wait", "1")
    assert (code, out) == (3, "")
    assert err.startswith("error: plain was not free within 1 s: it is held by ticketing ")
    assert ticketing.run("release", "plain", token) == (0, "released\n", "")
    code, out, _ = ticketing.run("release", "plain", token, "-o", "json")
    assert code == 10
    assert json.loads(out) == {"key": "plain", "token": token, "released": False}


def test_json_spells_tokens_as_the_text_does(ticketing: Ticketing) -> None:
    code, out, _ = ticketing.run("acquire", "--key", "-json", "--lease", "7", "-o", "json")
    told = json.loads(out)
    assert (code, told["key"]) == (0, "-json")
    assert told["token"].isdigit()
    assert 6 < told["lease_seconds"] <= 7
    assert told["domain"].split(".")[0].isdigit()
    assert ticketing.run("release", told["token"], "--key", "-json")[0] == 0


def test_a_command_runs_under_the_lock_and_it_is_free_afterwards(ticketing: Ticketing) -> None:
    show = "echo $TICKETING_KEY $TICKETING_FENCING_TOKEN; exit 5"
    code, out, err = ticketing.run("acquire", "job", "--", "sh", "-c", show)
    key, token = out.split()
    assert (code, key, err) == (5, "job", "")
    code, out, _ = ticketing.run("acquire", "job", "--wait", "0", "--", "sh", "-c", show)
    assert code == 5
    assert int(out.split()[1]) > int(token)


def test_a_key_that_is_held_fails_with_the_code_that_was_asked_for(ticketing: Ticketing) -> None:
    assert ticketing.run("acquire", "taken", "--wait", "0")[0] == 0
    code, out, err = ticketing.run(
        "acquire", "taken", "--wait", "0", "--fail-code", "44", "--", "echo", "ran"
    )
    assert (code, out) == (44, "")
    assert "taken is held by ticketing " in err


def test_ctrl_c_in_the_queue_leaves_it_at_once(ticketing: Ticketing, cluster: DevCluster) -> None:
    key = "queue"
    token = ticketing.run("acquire", key, "--wait", "0")[1].strip()
    waiting = ticketing.start("acquire", key, "--wait", "60", "--", "echo", "ran")
    until(lambda: any((s.get("locks") or {}).get("waiting") for s in cluster.statuses().values()))
    started = time.monotonic()
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=WITHIN_S)
    assert (waiting.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert time.monotonic() - started < 4
    assert ticketing.run("release", key, token)[0] == 0
    assert ticketing.run("acquire", key, "--wait", "0")[0] == 0


def test_a_token_that_cannot_be_printed_is_released(ticketing: Ticketing) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("acquire", "full"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env=ticketing.environment,
        )
    assert done.returncode == 1
    assert ticketing.run("acquire", "full", "--wait", "0")[0] == 0


def test_a_wrong_token_is_refused_and_not_shown(ticketing: Ticketing) -> None:
    code, _, err = ticketing.run("acquire", "x", TICKETING_TOKEN="wrong-but-secret")
    assert code == 8
    assert "wrong-but-secret" not in err


def test_status_tells_of_every_node(ticketing: Ticketing, cluster: DevCluster) -> None:
    code, out, _ = ticketing.run("status", "-o", "json")
    told = json.loads(out)
    assert (code, told["served"], told["redundancy"]) == (0, True, 1)
    assert [node["place"] for node in told["nodes"]] == ["node-1", "node-2", "node-3"]
    assert all(isinstance(node["node_id"], str) for node in told["nodes"])
    code, out, _ = ticketing.run("status")
    assert code == 0
    assert out.startswith(f"domain {told['domain']}  leader node-")


def test_no_secret_stands_on_a_command_line(cluster: DevCluster) -> None:
    drawn = cluster.cluster
    for node in cluster.nodes:
        line = Path(f"/proc/{node.pid}/cmdline").read_text()
        for secret in (drawn.client_token, drawn.peer_secret, drawn.admin_token):
            assert secret not in line


def test_a_waiting_command_survives_the_leader(ticketing: Ticketing, cluster: DevCluster) -> None:
    """Last of this cluster's tests: it costs a node."""
    token = ticketing.run("acquire", "survivor", "--wait", "0")[1].strip()
    waiting = ticketing.start(
        "acquire", "survivor", "--wait", "60", "--", "sh", "-c", "echo $TICKETING_FENCING_TOKEN"
    )
    until(lambda: any((s.get("locks") or {}).get("waiting") for s in cluster.statuses().values()))
    place = next(place for place, facts in cluster.statuses().items() if facts["serving"])
    next(node for node in cluster.nodes if node.place.name == place).send(signal.SIGKILL)
    until(lambda: any(facts["serving"] for other, facts in cluster.statuses().items() if other != place))
    assert ticketing.run("release", "survivor", token)[0] == 0
    out, err = waiting.communicate(timeout=WITHIN_S)
    assert waiting.returncode == 0, err
    assert int(out) > int(token)
    code, out, _ = ticketing.run("status", "--check", "-o", "json")
    assert code == 9
    assert [node["reachable"] for node in json.loads(out)["nodes"]].count(False) == 1


def test_dev_tells_how_to_reach_it_and_leaves_nothing_behind() -> None:
    dev = subprocess.Popen(
        command("dev", "--nodes", "1", "-o", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert dev.stdout is not None
    try:
        told = json.loads(dev.stdout.readline())
        assert set(told) == {"domain", "config", "admin_config", "token", "tls", "nodes"}
        (node,) = told["nodes"]
        assert (told["tls"], node["place"], node["peer"]) == ("off", "node-1", None)
        assert isinstance(node["node_id"], str)
        assert Ticketing(told["config"]).run("acquire", "k", "--", "true")[0] == 0
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(WITHIN_S) == 0
    finally:
        dev.kill()
        dev.wait()
        dev.stdout.close()
    assert not Path(told["config"]).parent.parent.exists()
    assert not Path(f"/proc/{node['pid']}").exists()


def test_the_nodes_of_dev_end_with_it_however_it_ends() -> None:
    dev = subprocess.Popen(
        command("dev", "--nodes", "1", "-o", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert dev.stdout is not None
    told = json.loads(dev.stdout.readline())
    dev.kill()
    dev.wait()
    dev.stdout.close()
    pid = told["nodes"][0]["pid"]

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    until(gone)
    shutil.rmtree(Path(told["config"]).parent.parent)


@pytest.mark.slow
def test_a_cluster_is_operated_without_losing_a_lock(tmp_path: Path) -> None:
    """Set up with TLS, tokens and certificates rotated, all nodes rolled, one moved, everything stopped."""
    base = next(free_ports(1))
    folder = tmp_path / "c"
    ticketing = Ticketing(folder / "client.toml")
    made = ticketing.run("init", "--tls", "--client-port", str(base), "--dir", str(folder), "-o", "json")
    assert json.loads(made[1])["tls"] == str(folder / "ca" / "ca.pem")
    try:
        for n in (1, 2, 3):
            start_detached(folder / f"node-{n}")
        code, token, err = ticketing.run("acquire", "kept", "--wait", "20", "--lease", "250")
        assert code == 0, err
        for words in (
            ("token", "add"),
            ("token", "remove", "--old", "--yes"),
            ("token", "add", "--kind", "peer"),
            ("token", "remove", "--kind", "peer", "--old", "--yes"),
            ("token", "add", "--kind", "admin"),
            ("token", "remove", "--kind", "admin", "--old", "--yes"),
            ("cert", "renew"),
            ("cert", "add-ca"),
            ("cert", "use-ca", "--yes"),
            ("cert", "remove-ca", "--yes"),
            ("node", "restart", "--rolling"),
            ("node", "replace", "--node", "2", "--host", "127.0.0.2", "--start", "--yes"),
            ("status", "--check"),
            ("doctor",),
        ):
            code, out, err = ticketing.run(*words)
            assert code == 0, f"{words}: {out}{err}"
        shown = json.loads(ticketing.run("locks", "show", "kept", "-o", "json")[1])
        assert shown["lock"]["token"] == token.strip()
        nodes = json.loads(ticketing.run("node", "list", "-o", "json")[1])["nodes"]
        assert sorted(node["node_id"] for node in nodes) == ["5", "6", "7"]
        code, _, err = ticketing.run("locks", "revoke", "kept", token.strip(), "--reason", "test", "--yes")
        assert code == 0, err
        assert ticketing.run("release", "kept", token.strip())[0] == 10
        assert ticketing.run("node", "stop", "--all", "--yes") == (
            0,
            "node-1 has stopped\nnode-2 has stopped\nnode-3 has stopped\n",
            "",
        )
        assert ticketing.run("status")[0] == 7
    finally:
        for state in folder.rglob("state"):
            if pid := running_pid(state):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_demo_sees_all_of_it() -> None:
    done = subprocess.run(command("demo"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "is stale" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("All of it was seen")
