"""`ticketing demo`: the main job end to end on a throw-away cluster, told step by step and checked."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ticketing.cli.dev_cluster import DevCluster, DevNode
from ticketing.cli.errors import CommandFailed, ExitCode, say
from ticketing.cli.obtain import Ask, obtain, open_broker
from ticketing.cli.options import new_app
from ticketing.cli.output import write_line
from ticketing.client import Ticket, TicketBroker
from ticketing.config.client_file import Access, read_client_file
from ticketing.fencing import StaleTokenError, advance_mark, create_marks

KEY = "event/7/seat/A-12"
LEASE_S = 30
SHORT_LEASE_S = 3
WAIT_S = 30
ELECTION_S = 10

app = new_app()


@app.command(epilog="Example: ticketing demo")
def demo() -> int:
    """Acquire, queue, hand over, lose the leader, and refuse a stale write. Exit code 0 only if all was seen."""
    signal.signal(signal.SIGTERM, _terminated)
    started_s = time.monotonic()
    with DevCluster(3) as cluster:
        say(f"starting three node processes in {cluster.folder}")
        view = cluster.wait_for(cluster.view, "the election of a leader")
        write_line(f"1. Three nodes formed domain {view['domain']} and elected a leader.")
        asyncio.run(_play(cluster))
    write_line(f"All of it was seen, in {time.monotonic() - started_s:.1f} s. The cluster is gone again.")
    return ExitCode.DONE


def _terminated(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


async def _play(cluster: DevCluster) -> None:
    access = read_client_file(cluster.config)
    names = ("anna", "ben", "carla")
    anna, ben, carla = (open_broker(access, name=name) for name in names)
    try:
        shop = Shop(cluster.folder / "shop.db")
        first = await _acquire_and_sell(anna, access, shop)
        second = await _queue_and_hand_over(ben, access, first)
        third = await _lose_the_leader(cluster, carla, access, second)
        await _refuse_the_stale_write(shop, second, third)
        del first, second
    finally:
        for broker in (anna, ben, carla):
            await broker.aclose()


async def _acquire_and_sell(anna: TicketBroker, access: Access, shop: Shop) -> Ticket:
    ticket = await obtain(anna, access, _ask(LEASE_S))
    write_line(f"2. Anna acquired {KEY}; her fencing token is {ticket.token}.")
    shop.write("anna", ticket)
    _check(shop.read() == ("anna", ticket.token), "Anna's write is in the database")
    write_line("   She wrote to the database; in the same transaction its mark rose to her token.")
    return ticket


async def _queue_and_hand_over(ben: TicketBroker, access: Access, first: Ticket) -> Ticket:
    waiting = asyncio.create_task(obtain(ben, access, _ask(SHORT_LEASE_S)))
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    _check(not done, "Ben waits while Anna holds the key")
    write_line("3. Ben asked for the same key and queues behind her.")
    released_s = time.monotonic()
    _check(await first.release(), "Anna's release is confirmed")
    ticket = await waiting
    _check(ticket.token > first.token, "Ben's token is larger than Anna's")
    took_ms = (time.monotonic() - released_s) * 1000
    write_line(
        f"4. Anna released; the key went straight to Ben ({took_ms:.0f} ms). His token is {ticket.token}."
    )
    return ticket


async def _lose_the_leader(
    cluster: DevCluster, carla: TicketBroker, access: Access, second: Ticket
) -> Ticket:
    leader = await asyncio.to_thread(_leader, cluster)
    _check(leader is not None, "a leader serves")
    assert leader is not None, "checked"
    leader.send(signal.SIGKILL)
    write_line(f"5. Ben stalls, with {second.conservative_remaining():.1f} s of his lease left.")
    write_line(f"   Then the leader, {leader.place.name} (pid {leader.pid}), is killed.")
    killed_s = time.monotonic()
    after = await asyncio.to_thread(_next_leader, cluster, leader)
    write_line(f"   {after.place.name} leads {(time.monotonic() - killed_s) * 1000:.0f} ms later.")
    ticket = await obtain(carla, access, _ask(LEASE_S))
    _check(second.conservative_remaining() == 0, "nobody held the key before Ben's lease was over")
    _check(ticket.token > second.token, "Carla's token is larger than Ben's")
    write_line(f"6. Ben's lease ended, and only then Carla got the key. Her token is {ticket.token}.")
    return ticket


async def _refuse_the_stale_write(shop: Shop, second: Ticket, third: Ticket) -> None:
    shop.write("carla", third)
    write_line("7. Carla wrote to the database.")
    refused = False
    try:
        shop.write("ben", second)
    except StaleTokenError as error:
        refused = True
        write_line(f"8. Ben woke up and tried to write: refused ({error}).")
    _check(refused, "the database refuses Ben's stale write")
    _check(shop.read() == ("carla", third.token), "Carla's write stands")
    _check(await third.release(), "Carla's release is confirmed")
    write_line("9. Carla's seat is hers; she released the key.")


class Shop:
    """A table with one seat, guarded by fencing tokens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._transact(_create)

    def write(self, name: str, ticket: Ticket) -> None:
        """Gives the seat to `name`, or raises `StaleTokenError` and changes nothing."""

        def work(connection: sqlite3.Connection) -> None:
            advance_mark(connection, ticket.key, ticket.token)
            connection.execute("UPDATE seat SET owner = ?, token = ?", (name, ticket.token))

        self._transact(work)

    def read(self) -> tuple[str, int]:
        """Whose the seat is, and by which token."""
        connection = sqlite3.connect(self._path)
        try:
            owner, token = connection.execute("SELECT owner, token FROM seat").fetchone()
            return owner, token
        finally:
            connection.close()

    def _transact(self, work: Callable[[sqlite3.Connection], None]) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            work(connection)
            connection.commit()
        finally:
            connection.close()


def _create(connection: sqlite3.Connection) -> None:
    create_marks(connection)
    connection.execute("CREATE TABLE seat (owner TEXT NOT NULL, token INTEGER NOT NULL)")
    connection.execute("INSERT INTO seat VALUES ('nobody', 0)")


def _ask(lease_s: int) -> Ask:
    return Ask(key=KEY, wait_s=WAIT_S, lease_s=lease_s, budget_s=0)


def _leader(cluster: DevCluster) -> DevNode | None:
    for place, facts in cluster.statuses().items():
        if facts.get("serving"):
            return next(node for node in cluster.nodes if node.place.name == place)
    return None


def _next_leader(cluster: DevCluster, former: DevNode) -> DevNode:
    deadline_s = time.monotonic() + ELECTION_S
    while time.monotonic() < deadline_s:
        found = _leader(cluster)
        if found is not None and found is not former:
            return found
        time.sleep(0.01)
    raise CommandFailed(f"no other node led within {ELECTION_S} s")


def _check(seen: bool, what: str) -> None:
    if not seen:
        raise CommandFailed(f"this was not seen: {what}")
