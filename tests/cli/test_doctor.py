from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.planes import Asked, Planes, Reply, error, facts
from ticketing.cli import doctor_checks as checks
from ticketing.cli.admin_client import AdminError, Answer
from ticketing.cli.doctor_checks import Finding
from ticketing.cli.door import Knock, knock
from ticketing.config.client_file import Access
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.load import load_node

NOW_MS = 1_796_000_000_000


@pytest.fixture(autouse=True)
def _doors_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: Knock("in"))
    monkeypatch.setattr("ticketing.cli.doctor.time.time_ns", lambda: NOW_MS * 1_000_000)


def bad(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.check, finding.subject, finding.verdict) for finding in found if finding.verdict != "ok"]


def test_a_healthy_cluster_is_one_line(planes: Planes, tell: Tell) -> None:
    code, out, err = tell("doctor")
    assert (code, err) == (0, "")
    assert out.endswith(" well, 0 to look at, 0 wrong\n")
    assert out.count("\n") == 1


def test_everything_is_shown_on_request_and_as_json(planes: Planes, tell: Tell) -> None:
    code, out, _ = tell("doctor", "--all")
    assert code == 0
    assert "all run 0.1.0" in out
    code, out, _ = tell("doctor", "-o", "json")
    told = json.loads(out)
    assert (code, told["ok"], out.count("\n")) == (0, True, 1)
    assert set(told["findings"][0]) == {"check", "subject", "verdict", "detail", "hint"}
    assert {row["check"] for row in told["findings"]} >= {
        "config",
        "ports",
        "nodes",
        "versions",
        "clocks",
        "limits",
    }


def test_what_is_wrong_is_told_with_what_to_do(planes: Planes, tell: Tell) -> None:
    Path("admin.toml").chmod(0o644)
    planes.statuses(facts(1), facts(2), None)
    code, out, err = tell("doctor")
    assert code == 9
    assert "others may open it (mode 0644)" in out
    assert "node-3  does not answer" in " ".join(out.split("nodes")[1].split()).replace(" does", "  does")
    assert out.splitlines()[-1].endswith("1 to look at, 1 wrong")
    assert json.loads(tell("doctor", "-o", "json")[1])["ok"] is False
    assert err == ""


def test_without_admin_toml_the_rest_is_looked_at(planes: Planes, tell: Tell) -> None:
    Path("admin.toml").unlink()
    code, out, err = tell("doctor")
    assert code == 0
    assert "no such file: this command asks the nodes' admin planes" in out
    assert "without it the nodes cannot be asked" in err


def test_without_any_configuration_it_is_a_mistake(
    tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tell("doctor")[0] == 2


def test_on_a_nodes_host_it_goes_by_the_nodes_own_file(
    tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cluster(plan_cluster(nodes=3, tls=False, client_port=61_000, now_ms=1), tmp_path / "c")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "c/node-2")
    code, out, _ = tell("doctor", "-o", "json")
    told = json.loads(out)["findings"]
    assert code == 9
    assert {row["subject"] for row in told if row["check"] == "nodes"} == {"node-1", "node-2", "node-3"}
    assert [row["verdict"] for row in told if row["check"] == "config"] == ["ok"]


ACCESS = Access(("10.0.0.1:5225",), "t", "off", Path("client.toml"))


@pytest.mark.parametrize(
    ("answer", "check", "detail"),
    [
        (Knock("auth_failed"), "tokens", "the client token is refused"),
        (Knock("tls", "certificate has expired"), "certificates", "TLS failed: certificate has expired"),
        (Knock("unreachable", "connection refused"), "ports", "clients' port: connection refused"),
        (Knock("protocol", "not this"), "ports", "not this"),
        (Knock("auth_timeout"), "ports", "answers with auth_timeout"),
    ],
)
def test_every_way_in_which_a_door_stays_shut_has_its_finding(
    monkeypatch: pytest.MonkeyPatch, answer: Knock, check: str, detail: str
) -> None:
    monkeypatch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: answer)
    (found,) = checks.doors(ACCESS)
    assert (found.check, found.verdict, found.detail) == (check, "fail", detail)


@pytest.mark.parametrize("name", ["TICKETING_TOKEN", "/x/client.toml"])
def test_a_refused_token_is_told_with_where_it_came_from(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: Knock("auth_failed"))
    (found,) = checks.doors(ACCESS._replace(sources=(("token", name),)))
    assert found.hint == f"it comes from {name}; `ticketing token list`"
    (found,) = checks.doors(ACCESS._replace(token=""))
    assert found.hint == "none is given; `ticketing token list`"


@pytest.mark.parametrize(("days", "verdict"), [(300, "ok"), (20, "warn"), (-3, "fail")])
def test_a_certificate_near_its_end_is_told_of(
    monkeypatch: pytest.MonkeyPatch, days: int, verdict: str
) -> None:
    ends_ms = NOW_MS + days * 86_400_000 + 1000
    monkeypatch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: Knock("in", ends_ms=ends_ms))
    monkeypatch.setattr("ticketing.cli.doctor_checks.time.time_ns", lambda: NOW_MS * 1_000_000)
    assert [finding.verdict for finding in checks.doors(ACCESS)] == ["ok", verdict]


def answers(*said: dict[str, Any] | None) -> list[Answer]:
    return [
        Answer(f"node-{n}", f"a:{n}", own, None if own else AdminError("unreachable", "refused"))
        for n, own in enumerate(said, start=1)
    ]


def test_alarms_of_a_node_are_findings() -> None:
    process = {
        "certificate_fault": "does not name host-2",
        "reload_fault": "node.toml:3: is wrong",
        "client_connections_max": 800,
    }
    second = facts(2, process=process, links={"missing": ["node-3"]}, version="0.0.9")
    assert bad(checks.statuses(answers(facts(1), second, facts(3)))) == [
        ("certificates", "node-2", "fail"),
        ("config", "node-2", "fail"),
        ("limits", "node-2", "warn"),
        ("ports", "node-2", "fail"),
        ("versions", "nodes", "warn"),
    ]


def test_a_place_that_moved_is_not_missing() -> None:
    raft = {"term": "7", "redundancy": 1, "members": [{"place": "node-3", "linked": True}]}
    moved = facts(2, links={"missing": ["node-3"]}, raft=raft)
    assert bad(checks.statuses(answers(facts(1), moved, facts(3)))) == []


def test_clocks_that_are_off_are_findings_and_so_is_ones_own() -> None:
    leader = facts(1)
    leader["clock"]["peers"][0]["verdict"] = "outside"
    assert bad(checks.clocks(answers(leader, facts(2), facts(3)), NOW_MS)) == [("clocks", "leader", "fail")]
    found = checks.clocks(answers(facts(1), facts(2), facts(3)), NOW_MS + 9000)
    assert bad(found) == [("clocks", "this machine", "warn")]
    assert "+9.0 s" in found[-1].detail


def test_files_that_disagree_about_secrets_are_findings_without_the_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    cluster = plan_cluster(nodes=3, tls=False, now_ms=1)
    write_cluster(cluster, folder)
    access = ACCESS._replace(token=cluster.client_token)
    assert bad(checks.secrets([load_node(folder / f"node-{n}") for n in (1, 2, 3)], access, None)) == []
    file = folder / "node-2/node.toml"
    file.write_text(file.read_text().replace(cluster.client_token, "another-token-altogether"))
    nodes = [load_node(folder / f"node-{n}") for n in (1, 2, 3)]
    found = checks.secrets(nodes, access, None)
    assert bad(found) == [("tokens", "client tokens", "fail"), ("tokens", "client.toml", "fail")]
    assert cluster.client_token not in str(found)
    assert "node-2" in found[-1].detail
    found = checks.secrets(nodes, access._replace(sources=(("token", "TICKETING_TOKEN"),)), None)
    assert found[-1].detail == "TICKETING_TOKEN's token is not in the files of node-2"


def test_a_name_that_cannot_be_looked_up_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: object, **__: object) -> list[Any]:
        if host == "gone.example":
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("10.0.0.7", 0))]

    monkeypatch.setattr("ticketing.cli.doctor_checks.socket.getaddrinfo", look_up)
    found = checks.names(["10.0.0.1:5225", "gone.example:5225", "here.example:5225", "here.example:7225"])
    assert [(finding.subject, finding.verdict) for finding in found] == [
        ("gone.example", "fail"),
        ("here.example", "ok"),
    ]


# --- the door itself


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answering(listener: socket.socket, *parts: bytes) -> str:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for part in parts:
                connection.sendall(part)
                if part.startswith(b"TICKETING"):
                    connection.recv(100)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


BANNER = b"TICKETING/1+x+d=7.00112233445566ff+n=a:1 abcdefghijklmnopqrstuvwxyz\n"


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ([BANNER, b"La:1\n"], "in"),
        ([BANNER, b"Eauth_failed\n"], "auth_failed"),
        ([b"SSH-2.0-x\r\n"], "protocol"),
        ([], "protocol"),
    ],
)
def test_a_door_is_knocked_at_as_a_client_does(
    listener: socket.socket, parts: list[bytes], outcome: str
) -> None:
    done = knock(answering(listener, *parts), "token", None)
    assert done.outcome == outcome
    if outcome == "in":
        assert (done.leader, done.domain) == ("a:1", "7.00112233445566ff")


def test_silence_and_nobody_are_told_apart(listener: socket.socket) -> None:
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert knock(address, "t", None, within_s=0.05) == Knock("unreachable", "no answer in time")
    listener.close()
    assert knock(address, "t", None).detail == "connection refused"


class TestReplicas:
    """All members are asked for their state's checksum at one index (field report F086)."""

    def finding(self, tell: Tell, code: int = 0) -> dict[str, Any]:
        ended, out, _ = tell("doctor", "-o", "json")
        assert ended == code
        (found,) = [row for row in json.loads(out)["findings"] if row["check"] == "state"]
        return found  # type: ignore[no-any-return]

    def test_equal_states_are_well(self, planes: Planes, tell: Tell) -> None:
        found = self.finding(tell)
        assert (found["verdict"], found["subject"]) == ("ok", "replicas")
        assert found["detail"] == "node-1, node-2, node-3 are equal at index 40, 2 locks held"

    def test_one_that_differs_is_a_failure_with_every_nodes_checksum(
        self, planes: Planes, tell: Tell
    ) -> None:
        other = {"index": "40", "checksum": "ffffffffffffffff", "held": 2}
        planes.on("GET", "/v1/checksum", other, "node-3")
        found = self.finding(tell, 9)
        assert found["verdict"] == "fail"
        assert "differ at index 40: node-1 00112233445566ff, " in found["detail"]
        assert "node-3 ffffffffffffffff" in found["detail"]

    def test_while_entries_come_a_later_index_is_asked_for_until_all_meet(
        self, planes: Planes, tell: Tell
    ) -> None:
        asked_for: list[int] = []

        def busy(asked: Asked) -> Reply:
            """Each node is a little further than the one before, unless it can wait for the index."""
            at = int(asked.query["at"])
            asked_for.append(at)
            now = 1000 + 10 * int(asked.place[-1])
            return {"index": str(max(at, now)), "checksum": "00112233445566ff", "held": 2}

        planes.on("GET", "/v1/checksum", busy)
        assert self.finding(tell)["verdict"] == "ok"
        assert asked_for[:3] == [40, 40, 40]
        assert len(set(asked_for[3:])) == 1
        assert asked_for[3] > 1030

    def test_nodes_that_never_meet_and_former_versions_are_worth_a_look(
        self, planes: Planes, tell: Tell
    ) -> None:
        planes.on("GET", "/v1/checksum", {"index": "7", "checksum": "00112233445566ff", "held": 2}, "node-1")
        found = self.finding(tell)
        assert (found["verdict"], found["detail"]) == (
            "warn",
            "were never met at the same index (node-1 at 7, node-2 at 40, node-3 at 40)",
        )
        planes.on("GET", "/v1/checksum", error(404, "not_found", "nothing at /v1/checksum"), "node-1")
        found = self.finding(tell)
        assert found["verdict"] == "warn"
        assert "cannot be compared: node-1" in found["detail"]

    def test_a_member_that_is_alone_is_not_compared(self, planes: Planes, tell: Tell) -> None:
        planes.statuses(facts(1), facts(2, raft=None), facts(3, raft=None))
        out = tell("doctor", "-o", "json")[1]
        assert "state" not in {row["check"] for row in json.loads(out)["findings"]}
