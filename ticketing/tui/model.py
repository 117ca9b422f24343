"""What the dashboard shows, as plain values made from the admin plane's JSON (docs/admin.md).

A node may be older or newer than this program: every key may be missing, null or of another kind, and is then unknown
(None). A reading is never refused for one odd value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketing.cli.admin_client import AdminError, Answer
from ticketing.cli.cluster_status import cluster_status

ORDERS = ("queue", "age", "lease_left", "key")
"""How locks can be listed; the admin plane keeps these orders, nothing is sorted here."""

DAY_MS = 86_400_000


def text(value: object) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """A finite JSON number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e300 else None


def whole(value: object) -> int | None:
    """A whole number, also one that came as a string because it has 64 bits."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None
    found = number(value)
    return None if found is None else int(found)


def table(value: object) -> Mapping[str, Any]:
    """A JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Mapping[str, Any]]:
    """A JSON list's objects."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The latest that is known of one node, and how old that is."""

    place: str
    address: str
    facts: Mapping[str, Any] | None
    """Its last status; kept when it stops answering."""
    facts_ns: int
    """When that came, by this program's monotonic clock."""
    error: str | None
    """Why the last question has no answer; None where it has one."""
    waiting: bool = False
    """A question is out and late: `error` says so."""
    error_code: str = "unreachable"
    """The admin plane's code for the error, or one of `AdminError`'s own."""

    @property
    def answers(self) -> bool:
        """Whether its last question was answered."""
        return self.facts is not None and self.error is None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One row of the nodes' table."""

    place: str
    address: str
    reachable: bool
    error: str
    facts_ns: int
    """When these facts came, by this program's monotonic clock; 0 where nothing was ever heard."""
    role: str = ""
    serving: bool = False
    node_id: str = ""
    incarnation: str = ""
    domain: str = ""
    term: int | None = None
    commit: int | None = None
    applied: int | None = None
    lag: int | None = None
    clock_ms: float | None = None
    clock_error_ms: float | None = None
    clock_verdict: str = ""
    connections: int | None = None
    busy: float | None = None
    """Share of one core that its loop uses, 0..1."""
    version: str = ""
    certificate_days: float | None = None
    certificate_fault: str = ""
    reload_fault: str = ""
    linked: bool | None = None
    stopping: bool = False
    state: str = ""
    waiting_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as a whole: what must be seen in two seconds."""

    served: bool
    leader: str
    leader_node_id: str
    domain: str
    term: int | None
    redundancy: int | None
    """How many more voters may be lost; below 0: no majority is seen."""
    gate: str
    serves_in_s: float
    held: int | None
    waiting: int | None
    keys_waited_for: int | None
    next_token: str
    answering: int
    transferring: bool
    joint: bool
    faults: tuple[str, ...]
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True)
class LockRow:
    """One key, as a list has it."""

    key: str
    token: str
    """Decimal; empty where nobody holds the key (the clock gate is closed, or a grant is on its way)."""
    owner: str
    name: str
    """Who the holder says it is."""
    remote: str
    """The address that it holds from, where the leader knows."""
    lease_ms: float | None
    left_ms: float | None
    held_ms: float | None
    waiting: int | None
    longest_wait_ms: float | None
    renewal: int | None

    @property
    def left_share(self) -> float | None:
        """How much of the lease is left, 0..1."""
        if self.left_ms is None or not self.lease_ms:
            return None
        return min(1.0, max(0.0, self.left_ms / self.lease_ms))


@dataclass(frozen=True, slots=True)
class LockList:
    """A page of locks in one order."""

    order: str
    prefix: str
    after: str
    locks: tuple[LockRow, ...]
    next: str | None
    taken_ns: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class WaiterRow:
    """One request in a queue."""

    place: int
    """1 is served next."""
    owner: str
    name: str
    remote: str
    waited_ms: float | None
    left_ms: float | None
    lease_ms: float | None


@dataclass(frozen=True, slots=True)
class KeyDetail:
    """One key in full."""

    key: str
    lock: LockRow | None
    waiters: tuple[WaiterRow, ...]
    waiting: int | None
    more: bool
    """There are waiters behind those listed."""
    taken_ns: int
    error: str = ""


def age_ms(then_ns: int, now_ns: int) -> float | None:
    """Between two readings of the monotonic clock; None where the first never was."""
    return None if then_ns == 0 else max(0, now_ns - then_ns) / 1_000_000


def cluster_view(readings: Sequence[NodeReading]) -> ClusterView:
    """The cluster by the same rules as `status -o json`, with what the dashboard shows beside."""
    answers = [_answer(reading) for reading in readings]
    told = cluster_status(answers)
    serving = next(
        (
            facts
            for facts in _facts(readings)
            if facts.get("serving") and facts.get("place") == told["leader"]
        ),
        {},
    )
    nodes = tuple(_node(reading, serving) for reading in readings)
    locks = table(told.get("locks"))
    raft = table(serving.get("raft"))
    faults = list(told["faults"]) + [fault for node in nodes for fault in _alarms(node)]
    return ClusterView(
        served=bool(told["served"]),
        leader=text(told["leader"]),
        leader_node_id=text(serving.get("node_id")),
        domain=text(told["domain"]),
        term=whole(told["term"]),
        redundancy=None if serving.get("standalone") else whole(told["redundancy"]),
        gate=text(table(told.get("clock")).get("gate")) or "unknown",
        serves_in_s=number(told.get("serves_in_s")) or 0,
        held=whole(locks.get("held")),
        waiting=whole(locks.get("waiting")),
        keys_waited_for=whole(locks.get("keys_waited_for")),
        next_token=text(locks.get("next_token")),
        answering=sum(node.reachable for node in nodes),
        transferring=bool(raft.get("transferring")),
        joint=bool(raft.get("joint")),
        faults=tuple(dict.fromkeys(str(fault) for fault in faults)),
        nodes=nodes,
    )


def serving_reading(readings: Sequence[NodeReading], leader: str) -> NodeReading | None:
    """The reading of the leader that counts."""
    for reading in readings:
        if reading.answers and reading.facts is not None and reading.facts.get("place") == leader:
            return reading
    return None


def _facts(readings: Sequence[NodeReading]) -> list[Mapping[str, Any]]:
    return [reading.facts for reading in readings if reading.answers and reading.facts is not None]


_OBJECTS = ("membership", "addresses", "sessions", "links", "loop", "counters", "clock", "process")
_OBJECTS_OR_NULL = ("leader", "raft", "locks")
_TEXTS = ("version", "place", "node_id", "incarnation", "domain", "role")


def well_formed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A status of which each key is of its documented kind or gone."""
    told = dict(facts)
    for name in _OBJECTS:
        told[name] = table(told.get(name))
    for name in _OBJECTS_OR_NULL:
        told[name] = told.get(name) if isinstance(told.get(name), dict) else None
    for name in _TEXTS:
        told[name] = told.get(name) if isinstance(told.get(name), str) else None
    told["serves_in_s"] = number(told.get("serves_in_s")) or 0
    told["clock"] = {**told["clock"], "peers": rows(told["clock"].get("peers"))}
    if told["raft"] is not None:
        told["raft"] = {**told["raft"], "members": rows(told["raft"].get("members"))}
    waiting_for = told["membership"].get("waiting_for")
    told["membership"] = {
        **told["membership"],
        "waiting_for": waiting_for if isinstance(waiting_for, list) else [],
    }
    return told


def _answer(reading: NodeReading) -> Answer:
    if reading.answers:
        return Answer(reading.place, reading.address, well_formed(reading.facts or {}))
    error = AdminError(reading.error_code, reading.error or "no answer yet")
    return Answer(reading.place, reading.address, None, error)


def _node(reading: NodeReading, serving: Mapping[str, Any]) -> NodeView:
    facts = reading.facts
    if facts is None:
        return NodeView(reading.place, reading.address, False, reading.error or "no answer yet", 0)
    raft, process = table(facts.get("raft")), table(facts.get("process"))
    seen = _row_of(table(serving.get("raft")).get("members"), reading.place)
    clock = _row_of(table(serving.get("clock")).get("peers"), reading.place)
    own = bool(serving) and serving.get("place") == reading.place
    ends_ms, wall_ms = number(process.get("certificate_ends_ms")), number(facts.get("wall_ms"))
    connections = whole(process.get("client_connections"))
    if connections is None:
        connections = whole(table(facts.get("sessions")).get("open"))
    membership = table(facts.get("membership"))
    waiting_for = membership.get("waiting_for")
    return NodeView(
        place=reading.place,
        address=reading.address,
        reachable=reading.answers,
        error=reading.error or "",
        facts_ns=reading.facts_ns,
        role=text(facts.get("role")),
        serving=bool(facts.get("serving")),
        node_id=text(facts.get("node_id")),
        incarnation=text(facts.get("incarnation")),
        domain=text(facts.get("domain")),
        term=whole(raft.get("term")),
        commit=whole(raft.get("commit_index")),
        applied=whole(raft.get("applied_index")),
        lag=whole(seen.get("lag")),
        clock_ms=0.0 if own else number(clock.get("difference_ms")),
        clock_error_ms=None if own else number(clock.get("error_ms")),
        clock_verdict="" if own else text(clock.get("verdict")),
        connections=connections,
        busy=number(process.get("loop_busy")),
        version=text(facts.get("version")),
        certificate_days=None if ends_ms is None or wall_ms is None else (ends_ms - wall_ms) / DAY_MS,
        certificate_fault=text(process.get("certificate_fault")),
        reload_fault=text(process.get("reload_fault")),
        linked=seen.get("linked") if isinstance(seen.get("linked"), bool) else None,
        stopping=bool(facts.get("stopping")),
        state=text(membership.get("state")),
        waiting_for=tuple(map(str, waiting_for)) if isinstance(waiting_for, list) else (),
    )


def _row_of(listed: object, place: str) -> Mapping[str, Any]:
    """A place's row; while it is being replaced it has two, and the one that votes comes first."""
    found = [row for row in rows(listed) if row.get("place") == place]
    return next((row for row in found if row.get("role") == "voter"), found[0] if found else {})


CERTIFICATE_DAYS_WARNED = 14.0


def _alarms(node: NodeView) -> list[str]:
    alarms = []
    if node.certificate_fault:
        alarms.append(f"{node.place}: its certificate would not pass: {node.certificate_fault}")
    elif node.certificate_days is not None and node.certificate_days < CERTIFICATE_DAYS_WARNED:
        alarms.append(f"{node.place}: its certificate ends in {node.certificate_days:.0f} days")
    if node.reload_fault:
        alarms.append(f"{node.place}: the last reload changed nothing: {node.reload_fault}")
    if node.clock_verdict == "outside" and node.clock_ms is not None:
        alarms.append(f"{node.place}: its clock is off by {node.clock_ms:+.0f} ms")
    return alarms


def lock_row(value: Mapping[str, Any], wall_ms: float | None) -> LockRow:
    """One LOCK. `wall_ms` is the answering node's wall clock: for how long it is held is for people only."""
    granted = number(value.get("granted_at_ms"))
    held = number(value.get("held_ms"))
    token = text(value.get("token")) if whole(value.get("token")) else ""
    if held is None and granted and wall_ms is not None:
        held = max(0.0, wall_ms - granted)
    lease_s = number(value.get("lease_s"))
    return LockRow(
        key=text(value.get("key")),
        token=token,
        owner=text(value.get("owner")),
        name=text(value.get("name")),
        remote=text(value.get("remote")) or _first(value.get("remotes")),
        lease_ms=lease_s * 1_000 if lease_s and token else None,
        left_ms=number(value.get("lease_left_ms")) if token else None,
        held_ms=held if token else None,
        waiting=whole(value.get("waiting")),
        longest_wait_ms=number(value.get("longest_wait_ms")),
        renewal=whole(value.get("renewal")),
    )


def _first(listed: object) -> str:
    return text(listed[0]) if isinstance(listed, list) and listed else ""


def key_detail(key: str, value: Mapping[str, Any], wall_ms: float | None, now_ns: int) -> KeyDetail:
    """The answer of `GET /v1/locks/{key}`."""
    lock = value.get("lock")
    waiters = tuple(
        WaiterRow(
            place=n,
            owner=text(row.get("owner")),
            name=text(row.get("name")),
            remote=text(row.get("remote")),
            waited_ms=number(row.get("waited_ms")),
            left_ms=number(row.get("wait_left_ms")),
            lease_ms=(number(row.get("lease_s")) or 0) * 1_000 or None,
        )
        for n, row in enumerate(rows(value.get("waiters")), start=1)
    )
    return KeyDetail(
        key=key,
        lock=lock_row(lock, wall_ms) if isinstance(lock, dict) else None,
        waiters=waiters,
        waiting=whole(value.get("waiting")),
        more=value.get("next") is not None,
        taken_ns=now_ns,
    )


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A replacement under way."""

    place: str
    state: str
    why: str
    since_ms: float | None
    lag: int | None
    snapshot_percent: float | None


def change_rows(value: Mapping[str, Any]) -> tuple[ChangeRow, ...]:
    """The `changes` of `GET /v1/members`."""
    found = []
    for row in rows(value.get("changes")):
        learner = table(row.get("learner"))
        found.append(
            ChangeRow(
                place=text(row.get("place")),
                state=text(row.get("state")),
                why=text(row.get("why")),
                since_ms=number(row.get("since_ms")),
                lag=whole(learner.get("lag")),
                snapshot_percent=number(learner.get("snapshot_percent")),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that one refresh found."""

    taken_ns: int
    """By this program's monotonic clock."""
    wall_ms: int
    nodes: tuple[NodeReading, ...]
    view: ClusterView
    locks: LockList | None
    detail: KeyDetail | None
    changes: tuple[ChangeRow, ...]
    leader_address: str
    """Of the admin plane that serves lists and takes commands; empty without a leader."""
    fresh_ns: int
    """When the serving leader last told its status; 0 where none ever did."""
