"""The admin plane of a cluster of real processes (docs/admin.md)."""

from __future__ import annotations

import asyncio
import os
import shutil
from functools import partial
from typing import Any

from tests.e2e.cluster import Cluster, NodeProcess
from tests.e2e.conftest import MakeCluster, OpenSession
from tests.e2e.waiting import until_told
from tests.server.asking import EventReader, ask, ask_raw
from ticketing.node.settings import OperatorCommand
from ticketing.node.state_files import REPLACE
from ticketing.server.files import command_content, store


async def get(node: NodeProcess, path: str) -> Any:
    status, answer = await ask(node.admin, "GET", path, token=node.admin_token)
    assert status == 200, answer
    return answer


async def do(node: NodeProcess, method: str, path: str, **body: object) -> tuple[int, Any]:
    return await ask(node.admin, method, path, body, token=node.admin_token)


async def test_locks_are_listed_shown_and_revoked_and_others_name_the_leader(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    follower = cluster.others(leader)[0]
    session = await open_session(leader)
    for number in range(5):
        granted = await session.acquire(b"seat/%d" % number, wait=5, lease=60)
        assert granted.what == "G"
    waiting = session.acquire(b"seat/4", wait=60, lease=60)
    for node in cluster.nodes:
        page = await until_told(partial(_all_listed, node), "every node knows the holders")
        assert [lock["key"] for lock in page["locks"]] == [f"seat/{number}" for number in range(5)]
    shown = await get(leader, "/v1/locks/seat%2F4")
    assert shown["waiting"] == 1
    status, answer = await ask(follower.admin, "GET", "/v1/locks/seat%2F4", token=follower.admin_token)
    assert (status, answer["error"]["code"]) == (421, "not_leader")
    assert answer["error"]["leader"]["admin"] == leader.admin
    token = shown["lock"]["token"]
    path = "/v1/locks/seat%2F4/revoke"
    status, answer = await do(leader, "POST", path, token=token, reason="holder hangs", id="one")
    assert (status, answer["revoked"]) == (200, True)
    assert (await waiting).what == "G"
    for node in cluster.nodes:
        await until_told(partial(_logged, node, "lock revoked"), f"{node.place} has the audit line")


async def _all_listed(node: NodeProcess) -> Any:
    page = await get(node, "/v1/locks?prefix=seat")
    return page if len(page["locks"]) == 5 else None


async def _logged(node: NodeProcess, event: str) -> bool:
    return event in node.log.read_text(errors="replace")


async def test_a_revocation_repeated_at_the_next_leader_acts_once(
    cluster: Cluster, open_session: OpenSession
) -> None:
    leader = await cluster.whole()
    session = await open_session(leader)
    granted = await session.acquire(b"k", wait=5, lease=200)
    body = {"token": str(granted.token), "reason": "x", "id": "same"}
    assert (await do(leader, "POST", "/v1/locks/k/revoke", **body))[1]["revoked"] is True
    status, _ = await do(leader, "POST", "/v1/transfer", to=None)
    assert status == 200
    others = cluster.others(leader)
    second = await cluster.leader()
    await until_told(lambda: _other_leads(cluster, leader), "the lead moves")
    second = await cluster.leader()
    assert second in others
    status, answer = await do(second, "POST", "/v1/locks/k/revoke", **body)
    assert (status, answer) == (200, {"revoked": None, "repeated": True})


async def _other_leads(cluster: Cluster, former: NodeProcess) -> bool:
    return await cluster.leader() is not former


async def test_metrics_and_events_tell_of_a_lost_leader(cluster: Cluster, open_session: OpenSession) -> None:
    leader = await cluster.whole()
    watched = cluster.others(leader)[0]
    reader = await EventReader.follow(watched.admin, "?kinds=leader,member", token=watched.admin_token)
    session = await open_session(leader)
    await session.acquire(b"k", wait=5, lease=60)
    _, _, content = await ask_raw(leader.admin, "GET", "/metrics", token=leader.admin_token)
    metrics = dict(line.rsplit(" ", 1) for line in content.decode().splitlines() if line[:1] != "#")
    assert float(metrics["ticketing_serving"]) == 1
    assert float(metrics["ticketing_redundancy"]) == 1
    assert float(metrics['ticketing_lock_events_total{event="granted"}']) == 1
    assert float(metrics["ticketing_clock_gate_open"]) == 1
    assert sum(name.startswith("ticketing_member_lag_entries") for name in metrics) == 3
    leader.kill()
    seen: list[Any] = []

    def told() -> bool:
        leads = [event["leader"] for event in seen if event["kind"] == "leader" and event["leader"]]
        lost = any(event.get("redundancy") == 0 for event in seen)
        return lost and bool(leads) and leads[-1]["place"] != leader.place

    async with asyncio.timeout(15):
        while not told():
            seen += [line for line in await reader.lines() if line is not None]
    reader.close()


async def test_a_living_node_is_replaced_from_another_folder_at_an_operators_word(cluster: Cluster) -> None:
    leader = await cluster.whole()
    old = cluster.others(leader)[0]
    status, answer = await do(
        leader, "POST", f"/v1/members/{old.place}/replace", reason="disk broken", id="replace-1"
    )
    assert status == 200, answer
    change = answer["change"]
    assert (change["state"], change["command_id"]) == ("announced", "replace-1")
    assert (await get(leader, "/v1/members"))["changes"] == [change]
    fresh = _another_folder(
        cluster, old, OperatorCommand(command_id="replace-1", who="ana", why="disk broken")
    )
    fresh.start()
    try:
        assert await old.ended(30) == 12
        new = await until_told(
            lambda: _voter(leader, old.place, fresh), "the new process fills the place", 30
        )
        assert int(new["node_id"]) == 4
        assert not (fresh.folder / "state" / REPLACE).exists()
        # The former process's folder is of no use any more: its place is filled, and it is told so.
        status, answer = await do(leader, "DELETE", f"/v1/members/{old.place}/replace")
        assert (status, answer["error"]["code"]) == (409, "no_undo")
    finally:
        fresh.end()


def _another_folder(cluster: Cluster, old: NodeProcess, command: OperatorCommand) -> NodeProcess:
    """What a new host gets: the same place at other addresses, no permit, and the operator's command."""
    folder = cluster.folder / "spare"
    shutil.copytree(old.folder, folder, ignore=shutil.ignore_patterns("state", "node.log"))
    (folder / "state").mkdir(mode=0o700)
    store(folder / "state", REPLACE, command_content(command))
    text = (folder / "node.toml").read_text()
    for address in (old.client, old.peer, old.admin):
        host, _, port = address.rpartition(":")
        text = text.replace(f'"{address}"', f'"{host}:{int(port) + 500}"')
    (folder / "node.toml").write_text(text)
    os.chmod(folder / "node.toml", 0o600)  # noqa: PTH101
    return NodeProcess(folder)


async def _voter(leader: NodeProcess, place: str, fresh: NodeProcess) -> Any:
    members = await get(leader, "/v1/members")
    if members["changes"]:
        return None
    for member in members["members"]:
        if member["place"] == place and member["role"] == "voter" and member["admin"] == fresh.admin:
            return member
    return None


async def test_one_may_stop_and_then_no_other(cluster: Cluster) -> None:
    leader = await cluster.whole()
    first, second = cluster.others(leader)

    async def may_stop() -> bool:
        return bool((await get(leader, f"/v1/can-stop?place={first.place}"))["can_stop"])

    await until_told(may_stop, "a new leader gives leave after its first second")
    status, answer = await do(first, "POST", "/v1/leave", place=first.place)
    assert (status, answer) == (200, {"leave": True, "stopping": True})
    assert await first.ended() == 0

    answer = await get(leader, f"/v1/can-stop?place={second.place}")
    assert answer["can_stop"] is False
    assert answer["redundancy_after"] == -1
    status, answer = await do(second, "POST", "/v1/leave")
    assert (status, answer["error"]["code"]) == (409, "no_leave")
    assert "voters would be left living" in answer["error"]["message"]
    assert second.running
    assert await cluster.leader([leader, second]) is leader
    status, answer = await do(leader, "POST", f"/v1/members/{second.place}/replace")
    assert (status, answer["error"]["code"]) == (409, "no_replace")
    status, answer = await do(second, "POST", "/v1/leave", force=True)
    assert (status, answer["stopping"]) == (200, True)
    assert await second.ended() == 0


async def test_a_leader_leaves_after_giving_its_lead_away(cluster: Cluster) -> None:
    leader = await cluster.whole()
    status, answer = await do(leader, "POST", "/v1/leave")
    assert (status, answer["leave"] if status == 200 else answer) == (200, True)
    assert await leader.ended() == 0
    assert await cluster.leader(cluster.others(leader)) is not leader


async def test_a_clock_that_chrony_does_not_vouch_for_does_not_lead(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    tool = cluster.folder / "chronyc"
    good = "A,a,3,0,0.000001,0,0,0,0,0,0.001,0.001,16,Normal"
    tool.write_text(f"#!/bin/sh\ncat {cluster.folder}/$(basename $PWD).says\n")
    tool.chmod(0o755)
    for node in cluster.nodes:
        (cluster.folder / f"{node.place}.says").write_text(good)
        text = node.config.read_text().replace('# chronyc = ""', f'chronyc = "{tool}"')
        assert str(tool) in text
        node.config.write_text(text)
    cluster.start()
    leader = await cluster.whole()
    assert "stratum 3" in (await get(leader, "/v1/clock"))["source"]
    (cluster.folder / f"{leader.place}.says").write_text(good.replace("Normal", "Not synchronised"))
    await until_told(lambda: _other_leads(cluster, leader), "the lead goes to a node whose clock is good", 20)

    async def closed() -> bool:
        clock = await get(leader, "/v1/clock")
        return (clock["gate"], clock["source"]) == ("closed", "chrony: not synchronised")

    await until_told(closed, "the node that is off says so")
