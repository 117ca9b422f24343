"""A node as a process: refusals at the start, the ready line, signals."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.server.scripted import settings_for
from ticketing.cli.dev_cluster import free_ports
from ticketing.config.cluster_folder import make_cluster, write_cluster
from ticketing.node.node import Node
from ticketing.node.operations import Operations
from ticketing.node.reports import Reports
from ticketing.node.settings import Place
from ticketing.server.faults import Faults, from_our_code
from ticketing.server.files import running_pid
from ticketing.server.listening import split_address
from ticketing.server.log import Log
from ticketing.server.run import StartError, check_exposure, raise_descriptor_limit, run_node
from ticketing.server.settings import TlsFiles

PROGRAM = """
import os, pathlib, sys
import msgspec
from tests.server.scripted import ScriptedNode, settings_for
from ticketing.server.run import run_node

class Node(ScriptedNode):
    def begin_stop(self, *, force=False):
        if force:
            self.shell.stop(0, "forced")

    def session_data(self, session, data):
        assert data != b"break\\n", "a broken invariant"

settings = settings_for(pathlib.Path(sys.argv[1]), log_format="json")
sys.exit(run_node(settings, make_node=Node, ready_fd=1))
"""


class Process:
    def __init__(self, folder: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self.child.stdout is not None
        self.ready = json.loads(self.child.stdout.readline())

    def wait_for(self, event: str) -> dict[str, Any]:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            facts: dict[str, Any] = json.loads(line)
            if facts["event"] == event:
                return facts
        raise AssertionError(f"{event!r} was never logged")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.child.kill()
    process.child.communicate(timeout=10)


def test_the_ready_line_names_what_was_bound_and_accepts(process: Process, tmp_path: Path) -> None:
    ready = process.ready
    assert ready["place"] == "node-1"
    assert ready["pid"] == process.child.pid == running_pid(tmp_path)
    assert ready["admin"] is None
    for what in ("client", "peer"):
        socket.create_connection(split_address(ready[what]), timeout=5).close()


def test_the_first_signal_asks_and_the_second_forces(process: Process) -> None:
    process.wait_for("ready")
    process.child.send_signal(signal.SIGTERM)
    process.wait_for("stopping")
    assert process.child.poll() is None
    process.child.send_signal(signal.SIGINT)
    process.wait_for("stopping at once")
    assert process.wait_for("stopped")["reason"] == "forced"
    assert process.child.wait(timeout=5) == 0


def test_a_hang_up_signal_reloads(process: Process) -> None:
    process.wait_for("ready")
    process.child.send_signal(signal.SIGHUP)
    assert process.wait_for("reloaded")["level"] == "audit"
    assert process.child.poll() is None


GATE = """
import sys
from ticketing.cli.main import main

class Gate:
    def find_spec(self, name, *_):
        if name == "{module}" and self in sys.meta_path:
            sys.meta_path.remove(self)
            print("here", flush=True)
            sys.stdin.readline()

sys.meta_path.insert(0, Gate())
sys.exit(main())
"""
"""The command, which stands still where it is about to load a module."""


@pytest.mark.parametrize("module", ["ticketing.cli.app", "ticketing.server.run"], ids=["first", "files read"])
@pytest.mark.parametrize("words", [["node", "start"], ["--debug", "node", "start"]], ids=" ".join)
def test_a_hang_up_signal_in_the_midst_of_the_start_is_a_reload_after_it(
    tmp_path: Path, module: str, words: list[str]
) -> None:
    client, admin = free_ports(2)
    place = Place("node-1", f"127.0.0.1:{client}", "", f"127.0.0.1:{admin}")
    write_cluster(make_cluster([place], tls=False, permit=False, now_ms=1), tmp_path / "c")
    child = subprocess.Popen(
        [sys.executable, "-c", GATE.format(module=module), *words, "--config", str(tmp_path / "c/node-1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        assert child.stdout.readline() == "here\n"
        child.send_signal(signal.SIGHUP)
        child.stdin.write("\n")
        child.stdin.flush()
        events = []
        while "reloaded" not in events:
            line = child.stderr.readline()
            assert line, f"it ended: {child.wait()}"
            events.append(json.loads(line)["event"])
        assert "ready" in events
    finally:
        child.kill()
        child.communicate(timeout=10)


def test_a_broken_invariant_stops_the_process_and_says_where(process: Process) -> None:
    with socket.create_connection(split_address(process.ready["client"]), timeout=5) as client:
        client.sendall(b"break\n")
        fault = process.wait_for("internal fault")
        assert "a broken invariant" in fault["traceback"]
        assert process.child.wait(timeout=5) == 1


def test_a_second_process_on_the_folder_is_refused_and_harms_nothing(
    process: Process, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_node(settings_for(tmp_path)) == 1
    told = capfd.readouterr().err
    assert f"process {process.child.pid} runs on this folder" in told
    assert told.count("\n") == 1
    assert running_pid(tmp_path) == process.child.pid


def test_a_taken_port_ends_the_start_with_one_line_and_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = msgspec.structs.replace(settings_for(tmp_path), listen_peer=address)
        assert run_node(settings) == 1
    told = capfd.readouterr().err
    assert f"peer address {address}: in use" in told
    assert told.count("\n") == 1
    assert running_pid(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"listen_client": "192.0.2.1:5225"}, "not an address of this machine"),
        ({"listen_client": "0.0.0.0:0", "node": {"client_tokens": ()}}, "configure client tokens"),
        ({"listen_peer": "0.0.0.0:0", "node": {"peer_secrets": ()}}, "configure a peer secret"),
        ({"listen_admin": "[::]:0"}, "configure an admin token"),
        ({"listen_client": "localhost"}, "no host:port"),
        (
            {"tls": TlsFiles(ca=Path("/none/ca"), certificate=Path("/none/c"), key=Path("/none/k"))},
            "/none/c",
        ),
    ],
)
def test_what_cannot_be_right_is_a_configuration_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], change: dict[str, Any], told: str
) -> None:
    settings = settings_for(tmp_path)
    node = msgspec.structs.replace(settings.node, **change.pop("node", {}))
    assert run_node(msgspec.structs.replace(settings, node=node, **change)) == 2
    line = capfd.readouterr().err
    assert told in line
    assert line.count('"error"') == 1
    assert "Traceback" not in line


def test_a_damaged_record_is_a_configuration_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "record.json").write_text("{")
    assert run_node(settings_for(tmp_path)) == 2
    assert "record.json" in capfd.readouterr().err


def test_without_tls_beyond_loopback_there_is_a_warning_and_no_refusal(tmp_path: Path) -> None:
    output = io.StringIO()
    log = Log(output, form="text")
    settings = msgspec.structs.replace(settings_for(tmp_path), listen_client="0.0.0.0:0")
    check_exposure(settings, log)
    open_settings = msgspec.structs.replace(
        settings, node=msgspec.structs.replace(settings.node, client_tokens=()), insecure=True
    )
    check_exposure(open_settings, log)
    with pytest.raises(StartError):
        check_exposure(msgspec.structs.replace(open_settings, insecure=False), log)
    log.close()
    assert output.getvalue().count("no TLS beyond loopback") == 2


def test_the_descriptor_limit_is_told_as_it_is_then() -> None:
    import resource

    limit = raise_descriptor_limit()
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < limit <= soft or soft == resource.RLIM_INFINITY


def test_only_faults_of_our_own_code_end_the_process() -> None:
    output = io.StringIO()
    ended: list[int] = []
    faults = Faults(Log(output, form="text"), ended.append)
    with pytest.raises(ValueError) as foreign:
        json.loads("{")
    faults(None, {"message": "elsewhere", "exception": foreign.value})
    faults(None, {"message": "no exception at all"})
    assert ended == []
    with pytest.raises(ValueError) as ours:
        split_address("nonsense")
    assert from_our_code(ours.value)
    faults(None, {"message": "here", "exception": ours.value})
    assert ended == [1]
    assert "nonsense" in output.getvalue()


def test_a_fault_of_a_report_spoils_an_answer_and_not_the_node() -> None:
    with pytest.raises(AttributeError) as reading:
        Reports(cast("Node", None)).members()
    assert not from_our_code(reading.value)
    with pytest.raises(AttributeError) as acting:
        Operations(cast("Node", None)).transfer(None)
    assert from_our_code(acting.value)


def test_the_admin_planes_weight_is_not_carried_by_the_start() -> None:
    code = (
        "import sys, ticketing.server.run;"
        "sys.exit(', '.join({'aiohttp', 'cryptography', 'typer'} & set(sys.modules)) or 0)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


FAULTY = """
import pathlib, sys
from tests.server.scripted import ScriptedNode, settings_for
from ticketing.server.run import run_node

class Node(ScriptedNode):
    def start(self):
        self.shell.request_flush()
        raise ValueError("broken at the start")

    def flush(self):
        self.shell.request_flush()

sys.exit(run_node(settings_for(pathlib.Path(sys.argv[1])), make_node=Node))
"""


def test_a_node_that_breaks_at_its_start_ends(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAULTY, str(tmp_path)],
        capture_output=True,
        cwd=Path(__file__).parents[2],
        timeout=20,
        check=False,
    )
    assert ended.returncode == 1
    assert b"broken at the start" in ended.stderr
