"""Certificates that do not do: one clear line wherever they are met, warnings before the end, a way back (F110)."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, Ended, NodeProcess, run_ticketing, told_status
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.waiting import until, until_told
from ticketing.config.certificates import NODE_DAYS, Pem, make_authority, make_node_certificate

pytestmark = [pytest.mark.process, pytest.mark.slow]

HOSTS = ("127.0.0.1", "localhost", "::1")
UNREACHABLE, UNHEALTHY = 7, 9
Issue = Callable[[Pem], Pem]


def ago(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)


def expired(authority: Pem) -> Pem:
    return make_node_certificate(authority, "node", HOSTS, ago(NODE_DAYS + 3))


def not_yet_valid(authority: Pem) -> Pem:
    return make_node_certificate(authority, "node", HOSTS, ago(-10))


def for_another_host(authority: Pem) -> Pem:
    return make_node_certificate(authority, "node", ("elsewhere.example",), ago(0))


def of_another_authority(_authority: Pem) -> Pem:
    return make_node_certificate(make_authority("somebody else", ago(0)), "node", HOSTS, ago(0))


FAULTS: dict[str, tuple[Issue, str]] = {
    "expired": (expired, "certificate has expired"),
    "not yet valid": (not_yet_valid, "certificate is not yet valid"),
    "wrong name": (for_another_host, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    "wrong authority": (of_another_authority, "unable to get local issuer certificate"),
}


def authority_of(cluster: Cluster) -> Pem:
    folder = cluster.folder / "ca"
    return Pem((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())


def put(node: NodeProcess, pair: Pem) -> None:
    (node.folder / "tls" / "node.key").write_bytes(pair.key)
    (node.folder / "tls" / "node.pem").write_bytes(pair.certificate)


async def command(cluster: Cluster, *words: str | Path) -> Ended:
    ended = await asyncio.to_thread(
        run_ticketing, *words, "--config", cluster.folder / "client.toml", folder=cluster.folder
    )
    assert "Traceback" not in ended.error
    return ended


def findings(ended: Ended, check: str) -> list[dict[str, Any]]:
    return [found for found in json.loads(ended.out)["findings"] if found["check"] == check]


@pytest.fixture
async def cluster(make_cluster: MakeCluster) -> Cluster:
    made = make_cluster(options=["--tls"])
    made.start()
    await made.whole()
    return made


async def test_whoever_meets_a_bad_certificate_says_in_one_line_what_is_wrong_with_it(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader()
    bad = cluster.others(leader)[0]
    good = cluster.others(bad)
    for name, (issue, said) in FAULTS.items():
        put(bad, issue(authority_of(cluster)))
        bad.kill()
        marks = {node.place: node.log.stat().st_size for node in cluster.nodes}
        bad.start()

        def lines(node: NodeProcess, event: str, marks: dict[str, int] = marks) -> list[str]:
            with node.log.open("rb") as log:
                log.seek(marks[node.place])
                return [row for row in log.read().decode().splitlines() if event in row]

        for node in good:  # peers that dial it
            await until(lambda: lines(node, "TLS with a peer failed"), f"{name}: {node.place} says so")  # noqa: B023
            assert said in lines(node, "TLS with a peer failed")[0], name
        await until(lambda: lines(bad, "certificate unfit"), f"{name}: it says so itself")
        assert said in lines(bad, "certificate unfit")[0], name

        refused = await command(cluster, "acquire", "k", "--addr", bad.client, "--wait", "1")  # a client
        assert refused.status == UNREACHABLE, (name, refused)
        (line,) = [row for row in refused.error.splitlines() if row.startswith("error: ")]
        assert said in line, (name, line)
        assert bad.client in line, (name, line)

        checked = await command(cluster, "status", "--check", "-o", "json")  # an operator
        assert checked.status == UNHEALTHY, (name, checked)
        (fault,) = [row for row in json.loads(checked.out)["faults"] if row.startswith(bad.place)]
        assert said in fault, (name, fault)

        seen = findings(await command(cluster, "doctor", "-o", "json"), "certificates")
        wrong = {found["subject"] for found in seen if found["verdict"] == "fail"}
        assert {bad.client, str(bad.folder / "tls" / "node.pem")} <= wrong, (name, seen)
    put(bad, make_node_certificate(authority_of(cluster), "node", HOSTS, ago(0)))
    await cluster.whole()  # it reads the files as soon as they change


async def test_the_end_of_a_certificate_is_told_before_it_comes(cluster: Cluster) -> None:
    leader = await cluster.leader()
    assert json.loads((await command(cluster, "status", "--check", "-o", "json")).out)["warnings"] == []
    put(leader, make_node_certificate(authority_of(cluster), "node", HOSTS, ago(NODE_DAYS - 5)))
    leader.signal(1)
    await until(lambda: "certificate ends soon" in leader.log.read_text(), "the log tells")
    ended = await command(cluster, "status", "--check", "-o", "json")
    assert ended.status == UNHEALTHY, ended
    assert json.loads(ended.out)["faults"] == []
    (fault,) = json.loads(ended.out)["warnings"]
    assert fault.startswith(f"{leader.place}'s certificate ends in 4 days"), fault
    doctor = await command(cluster, "doctor", "-o", "json")
    assert doctor.status == 0, "a warning, no fault"
    warned = [found for found in findings(doctor, "certificates") if found["verdict"] == "warn"]
    assert {found["subject"] for found in warned} >= {leader.place, leader.client}
    assert all("ends in 4 days" in found["detail"] for found in warned)
    shown = await asyncio.to_thread(
        run_ticketing, "cert", "show", "--check", "--dir", cluster.folder, folder=cluster.folder
    )
    assert shown.status == UNHEALTHY, shown


async def test_certificates_that_ended_while_all_is_running_are_renewed_without_losing_a_lock(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.leader()
    session = await open_session(leader)
    held = await session.acquire(b"held", 0, 250)
    term = (await told_status(leader))["raft"]["term"]
    for node in cluster.nodes:
        put(node, expired(authority_of(cluster)))
        node.signal(1)
    await until(
        lambda: all("certificate unfit" in node.log.read_text() for node in cluster.nodes), "all say so"
    )
    assert (await session.extend(held.token, 250, b"held")).what == "X", (
        "connections keep what they began with"
    )
    refused = await command(cluster, "acquire", "k", "--wait", "1")
    assert "certificate has expired" in refused.error, refused

    renewed = await asyncio.to_thread(
        run_ticketing, "cert", "renew", "--dir", cluster.folder, folder=cluster.folder
    )
    assert renewed.status == 0, renewed

    async def fresh() -> bool:
        return (await command(cluster, "acquire", "k", "--wait", "5", "--", "true")).status == 0

    await until_told(fresh, "new connections are let in", within_s=20)
    status = await until_told(leader.status, "it answers", within_s=20)
    assert status["raft"]["term"] == term
    assert (await session.release(held.token, b"held")).what == "R"
