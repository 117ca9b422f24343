"""For each command and exit code of docs/cli.md: how it comes to that. `test_exit_codes` runs them, in both forms."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from tests.cli.hosts import Hosts
from tests.cli.planes import Asked, Planes, Reply, error, facts, lock, member
from tests.cli.test_form import forms, waiting
from tests.cli.test_nodes import CHANGE, Rolling, lead_moves
from tests.cli.test_replace import Scene as Replacing
from ticketing.cli import admin_client
from ticketing.cli.bench_load import Result
from ticketing.cli.door import Knock
from ticketing.cli.errors import CommandFailed, ExitCode
from ticketing.client import TicketError
from ticketing.config.cluster_folder import plan_cluster, write_cluster

TOKEN = "1883295816089600"
Words = list[str]


class Scene(NamedTuple):
    """What there is: scripted admin planes of three healthy nodes, and a folder from which commands find them."""

    planes: Planes
    folder: Path
    patch: pytest.MonkeyPatch

    def cluster(self, **options: bool) -> Hosts:
        """A cluster's folder as `init` writes it, whose nodes run here."""
        hosts = Hosts(self.planes, self.folder / "ticketing-cluster", shared=True, **options)
        self.patch.chdir(self.folder)
        self.patch.setattr("ticketing.cli.tokens.knock", lambda *_: Knock("in"))
        self.patch.setattr("ticketing.cli.reloading.call", _without_tls)
        return hosts


def _without_tls(access: admin_client.AdminAccess, *words: Any, **options: Any) -> dict[str, Any]:
    return admin_client.call(access._replace(tls="off"), *words, **options)


Arrange = Callable[[Scene], Words]
SCENES: dict[tuple[str, int], Arrange] = {}
"""By command and exit code. What is returned stands behind the command's name."""

ELSEWHERE: dict[tuple[str, str], str] = {
    (
        "node start",
        "0",
    ): "tests/e2e/test_stopping.py::test_all_nodes_restarted_one_by_one_lose_no_answered_grant",
    ("node start", "12"): "tests/operations/test_runbook.py::replacing_a_node",
    (
        "node start",
        "13",
    ): "tests/e2e/test_stopping.py::test_a_node_that_is_to_be_started_again_says_so_by_its_status",
    ("dev", "0"): "tests/cli/test_real_cluster.py::test_dev_tells_how_to_reach_it_and_leaves_nothing_behind",
    ("demo", "0"): "tests/cli/test_real_cluster.py::test_the_demo_sees_all_of_it",
    (
        "acquire",
        "CMD",
    ): "tests/cli/test_run_under_lock.py::test_the_commands_own_code_is_ours_and_128_and_its_number_for_a_signal",
    (
        "acquire",
        "11",
    ): "tests/cli/test_run_under_lock.py::test_at_the_leases_end_a_child_that_listens_ends_with_term",
    (
        "acquire",
        "126",
    ): "tests/cli/test_run_under_lock.py::test_a_command_that_is_not_there_or_not_executable_is_told_as_shells_do",
    (
        "acquire",
        "127",
    ): "tests/cli/test_run_under_lock.py::test_a_command_that_is_not_there_or_not_executable_is_told_as_shells_do",
}
"""What needs real processes: the test that shows it."""

JSON_KEYS: dict[str, set[str]] = {
    "init": {"folder", "config", "admin_config", "tls", "permit", "nodes"},
    "form": {"domain", "first_token", "serves_in_s"},
    "config check": {"ok", "files"},
    "config show": {"values"},
    "acquire": {"key", "token", "domain", "lease_seconds"},
    "release": {"key", "token", "released"},
    "locks list": {"locks", "more"},
    "locks show": {"key", "lock", "waiters", "waiting"},
    "locks revoke": {"key", "token", "revoked"},
    "status": {"served", "domain", "leader", "redundancy", "nodes", "faults", "warnings"},
    "top": {"format"},
    "node list": {"served", "domain", "leader", "redundancy", "highest_node_id", "nodes", "changes"},
    "node stop": {"stopped"},
    "node can-stop": {"nodes"},
    "node transfer-leader": {"leader", "before"},
    "node restart": {"restarted"},
    "node replace": {"place", "state"},
    "clock": {"leader", "gate", "delta_ms", "nodes", "faults"},
    "doctor": {"ok", "findings"},
    "token list": {"kind", "tokens"},
    "token add": {"kind", "fingerprint", "changed", "nodes", "client_config"},
    "token use": {"fingerprint", "client_config"},
    "token remove": {"kind", "fingerprints", "changed", "nodes"},
    "cert show": {"certificates"},
    "cert renew": {"renewed"},
    "cert add-ca": {"authority", "changed", "nodes"},
    "cert use-ca": {"authority", "renewed"},
    "cert remove-ca": {"authorities", "changed", "nodes"},
    "bench": {"clients", "keys", "pairs", "pairs_per_s", "acquire_ms", "histogram", "failures"},
}
"""The keys of `-o json` that docs/cli.md promises."""


def scene(command: str, *codes: int) -> Callable[[Arrange], Arrange]:
    def note(arrange: Arrange) -> Arrange:
        for code in codes:
            assert (command, code) not in SCENES, (command, code)
            SCENES[command, code] = arrange
        return arrange

    return note


# --- what is the same for all that ask the admin planes


def _nobody_answers(s: Scene) -> None:
    s.planes.statuses(None, None, None)


def _wrong_token(s: Scene) -> None:
    s.planes.tokens = {"another"}


_ASKING: dict[str, Words] = {
    "form": ["--yes"],
    "locks list": [],
    "locks show": ["k"],
    "locks revoke": ["k", TOKEN, "--reason", "r", "--yes"],
    "status": [],
    "top": ["--once"],
    "node list": [],
    "node can-stop": [],
    "node stop": ["--node", "2"],
    "node transfer-leader": [],
    "node restart": ["--rolling"],
    "clock": [],
}


def _for_all() -> None:
    for command, words in _ASKING.items():
        for code, fault in ((7, _nobody_answers), (8, _wrong_token)):

            def arrange(s: Scene, words: Words = words, fault: Callable[[Scene], None] = fault) -> Words:
                fault(s)
                return words

            scene(command, code)(arrange)


_for_all()


# --- setting up


@scene("init", 0)
def _(s: Scene) -> Words:
    return ["--dir", str(s.folder / f"fresh-{time.monotonic_ns()}")]


@scene("init", 2)
def _(s: Scene) -> Words:
    return ["--nodes", "4"]


@scene("node start", 1)
def _(s: Scene) -> Words:
    def refuses(*_: object, **__: object) -> NoReturn:
        raise CommandFailed("127.0.0.1:5225 is in use")

    write_cluster(plan_cluster(nodes=1, now_ms=1), s.folder / "one")
    s.patch.setattr("ticketing.server.run.run_node", refuses)
    return ["--config", str(s.folder / "one")]


@scene("node start", 2)
def _(s: Scene) -> Words:
    return ["--config", str(s.folder / "nowhere")]


@scene("form", 0)
def _(s: Scene) -> Words:
    forms(s.planes, serves_in_s=0)
    return ["--yes"]


@scene("form", 1)
def _(s: Scene) -> Words:
    return ["--yes"]  # a domain lives


@scene("form", 2)
def _(s: Scene) -> Words:
    s.planes.statuses(waiting(1), waiting(2), waiting(3))
    return ["--first-token", "x"]


@scene("dev", 2)
def _(s: Scene) -> Words:
    return ["--nodes", "2"]


class _NoElection:
    """A throw-away cluster that never elects a leader."""

    def __init__(self, *_: object, **__: object) -> None:
        self.folder = Path()

    def __enter__(self) -> _NoElection:
        return self

    def __exit__(self, *_: object) -> None: ...

    def view(self) -> None: ...

    def wait_for(self, _ready: object, what: str, **_: object) -> NoReturn:
        raise CommandFailed(f"{what} did not happen within 30 s", ExitCode.UNREACHABLE)


@scene("dev", 7)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.dev.DevCluster", _NoElection)
    return []


@scene("demo", 7)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.demo.DevCluster", _NoElection)
    return []


class _Elected(_NoElection):
    def wait_for(self, *_: object, **__: object) -> Any:
        return {"domain": "1.00112233445566ff"}


@scene("demo", 1)
def _(s: Scene) -> Words:
    async def fails(_cluster: object) -> None:
        raise CommandFailed("Ben waits while Anna holds the key: that is not so")

    s.patch.setattr("ticketing.cli.demo.DevCluster", _Elected)
    s.patch.setattr("ticketing.cli.demo._play", fails)
    return []


@scene("demo", 2)
@scene("completion", 2)
def _(s: Scene) -> Words:
    return ["--nonsense"]


@scene("completion", 0)
def _(s: Scene) -> Words:
    return ["bash"]


@scene("config check", 0)
def _(s: Scene) -> Words:
    return [str(s.cluster().folder)]


@scene("config check", 2)
def _(s: Scene) -> Words:
    (s.folder / "client.toml").write_text("adrs = []\n")
    return [str(s.folder / "client.toml")]


@scene("config show", 0)
def _(s: Scene) -> Words:
    return []


@scene("config show", 2)
def _(s: Scene) -> Words:
    return [str(s.folder / "nowhere")]


# --- locks


class _Ticket:
    token = int(TOKEN)
    domain = "1.00112233445566ff"

    def conservative_remaining(self) -> float:
        return 29.9

    async def release(self) -> bool:
        return True


class _Broker:
    """A cluster that answers as it is told."""

    def __init__(self, answer: object = None, *, ready: bool = True) -> None:
        self._answer = answer
        self._ready = ready

    async def wait_ready(self, _within_s: float) -> bool:
        if isinstance(self._answer, TicketError) and self._answer.kind == "auth":
            raise self._answer
        return self._ready

    async def acquire(self, *_: object) -> object:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    async def release(self, *_: object) -> object:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    async def settled(self, _within_s: float) -> bool:
        return False

    async def aclose(self) -> None: ...


def _answers(s: Scene, where: str, answer: object = None, *, ready: bool = True) -> None:
    s.patch.setattr(f"ticketing.cli.{where}.open_broker", lambda *_, **__: _Broker(answer, ready=ready))


@scene("acquire", 0)
def _(s: Scene) -> Words:
    _answers(s, "acquiring", _Ticket())
    return ["k"]


@scene("acquire", 2)
def _(s: Scene) -> Words:
    return ["k", "--wait", "256"]


_KINDS = {1: "closed", 3: "timeout", 4: "busy", 5: "indeterminate", 6: "insufficient_lease", 8: "auth"}


def _acquire_kinds() -> None:
    for code, kind in _KINDS.items():

        def arrange(s: Scene, kind: str = kind) -> Words:
            _answers(s, "acquiring", TicketError(kind, "so it is"))
            s.planes.on("GET", "/v1/locks/k", {"lock": lock("k"), "waiters": [], "waiting": 0})
            return ["k"]

        scene("acquire", code)(arrange)


_acquire_kinds()


@scene("acquire", 7)
def _(s: Scene) -> Words:
    _answers(s, "acquiring", ready=False)
    return ["k"]


@scene("release", 0)
def _(s: Scene) -> Words:
    _answers(s, "releasing", True)
    return ["k", TOKEN]


@scene("release", 1)
def _(s: Scene) -> Words:
    _answers(s, "releasing", TicketError("closed", "so it is"))
    return ["k", TOKEN]


@scene("release", 2)
def _(s: Scene) -> Words:
    return ["k", "0x12"]


@scene("release", 7)
def _(s: Scene) -> Words:
    _answers(s, "releasing", ready=False)
    return ["k", TOKEN]


@scene("release", 8)
def _(s: Scene) -> Words:
    _answers(s, "releasing", TicketError("auth", "the token is refused"))
    return ["k", TOKEN]


@scene("release", 10)
def _(s: Scene) -> Words:
    _answers(s, "releasing", False)
    return ["k", TOKEN]


@scene("locks list", 0)
def _(s: Scene) -> Words:
    s.planes.on("GET", "/v1/locks", {"locks": [lock("k")], "next": None})
    return []


@scene("locks list", 1)
def _(s: Scene) -> Words:
    s.planes.on("GET", "/v1/locks", error(403, "no_admin_token", "this node has no admin token"))
    return []


@scene("locks list", 2)
def _(s: Scene) -> Words:
    return ["--sort", "colour"]


def _held(s: Scene, reply: Reply) -> Words:
    held = {"lock": lock("k", int(TOKEN), remotes=["10.0.0.9"]), "waiters": [], "waiting": 0, "next": None}
    s.planes.on("GET", "/v1/locks/k", held)
    s.planes.on("POST", "/v1/locks/k/revoke", reply)
    return ["k", TOKEN, "--reason", "r", "--yes"]


@scene("locks show", 0)
def _(s: Scene) -> Words:
    return _held(s, {})[:1]


@scene("locks show", 1)
def _(s: Scene) -> Words:
    s.planes.on("GET", "/v1/locks/k", error(500, "internal", "the node could not answer"))
    return ["k"]


@scene("locks show", 2)
@scene("locks revoke", 2)
def _(s: Scene) -> Words:
    return ["a b"]


@scene("locks show", 10)
def _(s: Scene) -> Words:
    s.planes.on("GET", "/v1/locks/k", {"lock": None, "waiters": [], "waiting": 0, "next": None})
    return ["k"]


@scene("locks revoke", 0)
def _(s: Scene) -> Words:
    return _held(s, {"revoked": True})


@scene("locks revoke", 1)
def _(s: Scene) -> Words:
    return _held(s, error(409, "id_used", "another command had that id"))


@scene("locks revoke", 5)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.admin_leader.COMMAND_S", 0.05)
    return _held(s, error(503, "indeterminate", "the leader changed"))


@scene("locks revoke", 10)
def _(s: Scene) -> Words:
    return _held(s, {"revoked": False})


# --- the cluster


@scene("status", 0)
@scene("node list", 0)
@scene("clock", 0)
def _(s: Scene) -> Words:
    members = {"members": [member(n) for n in (1, 2, 3)], "changes": [CHANGE], "highest_node_id": "4"}
    s.planes.on("GET", "/v1/members", members)
    return []


@scene("top", 0)
def _(s: Scene) -> Words:
    s.planes.on("GET", "/v1/locks", {"locks": [lock("k")], "next": None})
    return ["--once"]


@scene("status", 2)
@scene("node list", 2)
@scene("node can-stop", 2)
@scene("node stop", 2)
@scene("node transfer-leader", 2)
@scene("node restart", 2)
@scene("node replace", 2)
@scene("clock", 2)
@scene("doctor", 2)
@scene("top", 2)
def _(s: Scene) -> Words:
    return ["--admin-config", str(s.folder / "nowhere.toml"), "--config", str(s.folder / "nowhere.toml")]


@scene("status", 9)
@scene("clock", 9)
def _(s: Scene) -> Words:
    leader = facts(1)
    leader["clock"]["gate"] = "closed"
    s.planes.statuses(leader, facts(2), facts(3))
    return ["--check"]


def _may(s: Scene, *, can_stop: bool) -> Words:
    s.planes.on("GET", "/v1/can-stop", {"can_stop": can_stop, "reason": "why", "redundancy_after": 0})
    return ["--node", "2"]


SCENES["node can-stop", 0] = lambda s: _may(s, can_stop=True)
SCENES["node can-stop", 9] = lambda s: _may(s, can_stop=False)


@scene("node stop", 0)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.node_stop.wait_until_gone", lambda *_: None)
    s.planes.on("POST", "/v1/leave", {"leave": True, "stopping": True})
    return ["--node", "2"]


@scene("node stop", 1)
def _(s: Scene) -> Words:
    s.planes.on("POST", "/v1/leave", error(409, "no_leave", "1 of 3 voters would be left living"))
    return ["--node", "2"]


@scene("node transfer-leader", 0)
def _(s: Scene) -> Words:
    s.planes.on("POST", "/v1/transfer", lead_moves(s.planes, 3))
    return ["--to", "3"]


@scene("node transfer-leader", 1)
def _(s: Scene) -> Words:
    s.planes.on("POST", "/v1/transfer", error(409, "no_transfer", "no other voter is fit"))
    return []


@scene("node restart", 0)
def _(s: Scene) -> Words:
    Rolling(s.planes, s.patch)
    return ["--rolling", "--supervised"]


@scene("node restart", 1)
def _(s: Scene) -> Words:
    s.planes.on("POST", "/v1/leave", error(409, "no_leave", "another leave is under way"))
    s.planes.on("GET", "/v1/can-stop", {"can_stop": True, "reason": None})
    return ["--node", "2", "--wait", "1"]


@scene("node restart", 9)
def _(s: Scene) -> Words:
    s.planes.stop("node-3")
    return ["--rolling"]


def _replacing(s: Scene, *stages: str) -> Words:
    folder = s.cluster().folder
    s.planes.on("GET", "/livez", {"live": True})
    s.patch.chdir(folder)
    Replacing(s.planes, list(stages))
    return ["--node", "2", "--yes"]


@scene("node replace", 0)
def _(s: Scene) -> Words:
    return _replacing(s, "waiting", "catching_up")


@scene("node replace", 1)
def _(s: Scene) -> Words:
    words = _replacing(s)
    s.planes.on("POST", "/v1/members/node-2/replace", error(409, "no_replace", "node-3 is not heard from"))
    return words


@scene("node replace", 7)
def _(s: Scene) -> Words:
    words = _replacing(s)
    _nobody_answers(s)
    return words


@scene("node replace", 8)
def _(s: Scene) -> Words:
    words = _replacing(s)
    _wrong_token(s)
    return words


@scene("doctor", 0)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: Knock("in"))
    s.patch.setattr("ticketing.cli.doctor.time.time_ns", lambda: 1_796_000_000_000 * 1_000_000)
    return []


@scene("doctor", 9)
def _(s: Scene) -> Words:
    s.patch.setattr("ticketing.cli.doctor_checks.knock", lambda *_: Knock("auth_failed"))
    return []


# --- secrets and certificates


@scene("token list", 0)
@scene("token add", 0)
def _(s: Scene) -> Words:
    s.cluster()
    return []


@scene("token add", 1)
def _(s: Scene) -> Words:
    s.cluster().refused.add("node-2")
    return []


@scene("token list", 2)
@scene("token add", 2)
@scene("token remove", 2)
@scene("cert show", 2)
@scene("cert renew", 2)
@scene("cert add-ca", 2)
@scene("cert use-ca", 2)
@scene("cert remove-ca", 2)
def _(s: Scene) -> Words:
    return ["--dir", str(s.folder / "nowhere")]


@scene("token use", 2)
def _(s: Scene) -> Words:
    s.cluster()
    return ["zz"]


def _second_token(s: Scene) -> tuple[Hosts, str]:
    from ticketing.config.load import load_node
    from ticketing.config.secret_files import fingerprint, read_secrets, with_secret, write_changes

    hosts = s.cluster()
    nodes = [load_node(hosts.folder / place) for place in ("node-1", "node-2", "node-3")]
    write_changes(with_secret(read_secrets(nodes, "client"), "a-second-client-token"))
    return hosts, fingerprint("a-second-client-token")


@scene("token use", 0)
def _(s: Scene) -> Words:
    return [_second_token(s)[1]]


@scene("token use", 9)
def _(s: Scene) -> Words:
    _, name = _second_token(s)
    s.patch.setattr("ticketing.cli.tokens.knock", lambda *_: Knock("auth_failed"))
    return [name]


@scene("token remove", 0)
def _(s: Scene) -> Words:
    _second_token(s)
    return ["--old", "--yes"]


@scene("token remove", 1)
def _(s: Scene) -> Words:
    hosts, _name = _second_token(s)
    hosts.refused.add("node-2")
    return ["--old", "--yes"]


@scene("token remove", 10)
def _(s: Scene) -> Words:
    s.cluster()
    return ["--old", "--yes"]


@scene("cert show", 0)
@scene("cert renew", 0)
@scene("cert add-ca", 0)
def _(s: Scene) -> Words:
    s.cluster(tls=True)
    return []


@scene("cert show", 9)
def _(s: Scene) -> Words:
    s.cluster(tls=True)
    return ["--check", "--days", "9999"]


@scene("cert renew", 1)
@scene("cert add-ca", 1)
def _(s: Scene) -> Words:
    s.cluster(tls=True).refused.add("node-2")
    return []


def _next_authority(s: Scene) -> Hosts:
    import datetime

    from ticketing.config.authority_files import add_next
    from ticketing.config.load import load_node

    hosts = s.cluster(tls=True)
    places = ("node-1", "node-2", "node-3")
    nodes = [load_node(hosts.folder / place) for place in places]
    add_next(hosts.folder, nodes, datetime.datetime.now(datetime.UTC))
    for place in places:
        hosts.reload(place)
    return hosts


@scene("cert use-ca", 0)
def _(s: Scene) -> Words:
    _next_authority(s)
    return ["--yes"]


@scene("cert use-ca", 1)
def _(s: Scene) -> Words:
    _next_authority(s).refused.add("node-2")
    return ["--yes"]


@scene("cert use-ca", 9)
def _(s: Scene) -> Words:
    _next_authority(s).silent.add("node-2")
    return ["--yes"]


def _both_authorities(s: Scene) -> Hosts:
    import datetime

    from ticketing.config.authority_files import promote_next
    from ticketing.config.certificate_files import renew
    from ticketing.config.load import load_node

    hosts = _next_authority(s)
    promote_next(hosts.folder, [])
    for place in ("node-1", "node-2", "node-3"):
        renew(load_node(hosts.folder / place), hosts.folder, datetime.datetime.now(datetime.UTC))
        hosts.reload(place)
    return hosts


@scene("cert remove-ca", 0)
def _(s: Scene) -> Words:
    _both_authorities(s)
    return ["--yes"]


@scene("cert remove-ca", 1)
def _(s: Scene) -> Words:
    _both_authorities(s).refused.add("node-2")
    return ["--yes"]


@scene("cert remove-ca", 9)
def _(s: Scene) -> Words:
    _both_authorities(s).silent.add("node-2")
    return ["--yes"]


@scene("cert remove-ca", 10)
def _(s: Scene) -> Words:
    s.cluster(tls=True)
    return ["--yes"]


# --- load


def _measured(s: Scene, *pairs: int) -> Words:
    async def run(*_: object, **__: object) -> Result:
        result = Result()
        result.acquire_ns = array("q", pairs)
        result.release_ns = array("q", pairs)
        result.took_ns = 1_000_000_000
        return result

    s.patch.setattr("ticketing.cli.bench._run", run)
    return []


SCENES["bench", 0] = lambda s: _measured(s, 1_000_000, 2_000_000)
SCENES["bench", 1] = lambda s: _measured(s)


@scene("bench", 2)
def _(s: Scene) -> Words:
    return ["--clients", "0"]


@scene("bench", 7)
def _(s: Scene) -> Words:
    _answers(s, "bench", ready=False)
    return []


@scene("bench", 8)
def _(s: Scene) -> Words:
    _answers(s, "bench", TicketError("auth", "the token is refused"))
    return []


__all__ = ["ELSEWHERE", "JSON_KEYS", "SCENES", "Asked", "Scene"]
