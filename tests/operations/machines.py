"""The operator's machine and the hosts of a cluster, in namespaces, and what people type on them.

The operator's lines run in a shell. `scp` and `systemctl` are played: the hosts' folders lie beside each other here,
and the shipped unit says what a service runs.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.e2e.cluster import COMMAND, PROJECT, Ended, environment
from tests.e2e.cluster import _die_with_parent as die_with_parent
from tests.operations.namespaces import Network
from tests.operations.needs import faketime_library
from tests.operations.runbook import Line
from tests.operations.unit import Unit, read_unit

OPERATOR = "ops"
UNIT = PROJECT / "deploy" / "ticketing@.service"
LIBRARY = "/var/lib/ticketing"
LOOKS = ("ticketing doctor", "ticketing status --check", "ticketing clock --check")
LOOK_S = 60.0

_TICKETING = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -m ticketing "$@"
"""


class Host:
    """A machine with its disk, its wall clock and the services that run on it."""

    def __init__(self, name: str, folder: Path, network: Network) -> None:
        self.name = name
        self.folder = folder
        self.network = network
        self._services: dict[str, _Service] = {}
        self._pids: list[int] = []
        self._clock = folder / "clock"
        (folder / LIBRARY[1:]).mkdir(parents=True)
        self.set_clock("+0")

    def set_clock(self, offset: str) -> None:
        """The wall clock from now on, e.g. `+3600s`; seen by what runs here within a second or two."""
        self._clock.write_text(offset + "\n")

    def path(self, path: str) -> Path:
        """A file of this machine."""
        return self.folder / path.lstrip("/")

    def log(self, place: str) -> Path:
        return self.folder / f"{place}.log"

    def systemctl(self, verb: str, unit: str) -> None:
        """What systemd would do at this word for `ticketing@PLACE`, as far as the shipped unit goes."""
        place = unit.removeprefix("ticketing@")
        assert place != unit, unit
        match verb:
            case "start":
                self._start(place)
            case "reload":
                self._services[place].process.send_signal(signal.SIGHUP)
            case "stop":
                self._services[place].stop()
            case "restart":
                self._services[place].stop()
                self._start(place)
            case _:
                raise AssertionError(f"systemctl {verb} is not played here")

    def switch_off(self, place: str) -> None:
        """The machine is off: the process is gone without a word, and what supervises it with it."""
        self._services[place].end()

    def ended(self, place: str, within_s: float = 15.0) -> int:
        """The exit status of a service that ends by itself and is not started again."""
        service = self._services[place]
        service.supervisor.join(within_s)
        assert not service.supervisor.is_alive(), f"{place} goes on"
        assert service.process.returncode is not None
        return service.process.returncode

    def _start(self, place: str) -> None:
        former = self._services.get(place)
        if former is not None and former.supervisor.is_alive():
            return  # as systemd has it: it runs already
        unit = read_unit(UNIT, place)
        self._services[place] = _Service(unit, lambda: self._process(place, unit))

    def _process(self, place: str, unit: Unit) -> subprocess.Popen[bytes]:
        words = [word.replace(LIBRARY, str(self.path(LIBRARY))) for word in unit.start]
        with self.log(place).open("ab") as log:
            process = subprocess.Popen(
                [*self.network.prefix(self.name), *COMMAND, *words[1:]],
                cwd=self.path(f"{LIBRARY}/{place}"),
                env=environment(**faked_wall_clock(self._clock)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._pids.append(process.pid)
        return process

    def end(self) -> None:
        """Ends everything, whatever it does."""
        for service in self._services.values():
            service.end()
        for pid in self._pids:
            forget_faked_clock(pid)


class _Service:
    """One started service, supervised as its unit says."""

    def __init__(self, unit: Unit, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._unit = unit
        self._start = start
        self._told_to_stop = threading.Event()
        self.process = start()
        self.supervisor = threading.Thread(target=self._supervise, daemon=True)
        self.supervisor.start()

    def _supervise(self) -> None:
        while True:
            status = self.process.wait()
            if self._told_to_stop.is_set() or not self._unit.starts_again(status):
                return
            if self._told_to_stop.wait(self._unit.restart_s):
                return
            self.process = self._start()

    def stop(self) -> None:
        """`systemctl stop`: SIGTERM, and time to leave; never started again."""
        self._told_to_stop.set()
        self.process.send_signal(signal.SIGTERM)
        self.supervisor.join(self._unit.stop_s)
        assert not self.supervisor.is_alive(), "it would have been killed now"

    def end(self) -> None:
        """At once."""
        self._told_to_stop.set()
        while self.supervisor.is_alive():
            self.process.kill()  # a process that was being started meanwhile, too
            self.supervisor.join(0.2)


def faked_wall_clock(file: Path) -> dict[str, str]:
    """An environment in which the wall clock is off by what stands in a file; elapsed time is true."""
    return {
        "LD_PRELOAD": faketime_library(),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Else waits on condition variables return at once, and threads that want Python's lock spin for it.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def forget_faked_clock(pid: int) -> None:
    """Removes what libfaketime leaves behind of a process that was killed."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        (Path("/dev/shm") / name).unlink(missing_ok=True)


class Machines:
    """All machines, and a hand that types."""

    def __init__(self, folder: Path, network: Network, hosts: Iterable[str]) -> None:
        self.network = network
        self.hosts = {name: Host(name, folder / "hosts" / name, network) for name in hosts}
        self.home = folder / "ops"
        self.home.mkdir()
        commands = folder / "bin"
        commands.mkdir()
        (commands / "ticketing").write_text(_TICKETING)
        (commands / "ticketing").chmod(0o755)
        # Between two looks a person waits for a second; this hand is quicker.
        (commands / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.2\n")
        (commands / "sleep").chmod(0o755)
        self._path = commands
        self.told: list[str] = []
        """Every line and what came of it, for the message of a test that failed."""

    def type(self, line: Line, words: Mapping[str, str] | None = None, *, may_fail: bool = False) -> Ended:
        """Has one line of the runbook done. `words`: what stands for placeholders such as TOKEN."""
        began = time.monotonic()
        command = line.command
        for placeholder, value in (words or {}).items():
            command = re.sub(rf"\b{placeholder}\b", value, command)
        if line.host == OPERATOR:
            ended = self._scp(command) if command.startswith("scp ") else self.run("bash", "-ec", command)
        else:
            ended = self._on_host(self.hosts[line.host], shlex.split(command))
        took_s = time.monotonic() - began
        self.told.append(
            f"{line.host}$ {command}\n-> {ended.status}, {took_s:.1f} s\n{ended.out}{ended.error}"
        )
        assert may_fail or ended.status == 0, self.told[-1]
        assert "Traceback" not in ended.error, self.told[-1]
        return ended

    def type_all(self, lines: Sequence[Line], words: Mapping[str, str] | None = None) -> str:
        """One line after the other; what they wrote to standard output.

        Who only looks, and does not like it, looks again: on a busy machine a node may not answer in time.
        """
        said = []
        for line in lines:
            deadline = time.monotonic() + LOOK_S
            while True:
                looks = line.host == OPERATOR and line.command in LOOKS and time.monotonic() < deadline
                ended = self.type(line, words, may_fail=looks)
                if ended.status == 0:
                    said.append(ended.out)
                    break
        return "".join(said)

    def run(self, *words: str, within_s: float = 90.0) -> Ended:
        """A command on the operator's machine."""
        done = subprocess.run(
            [*self.network.prefix(OPERATOR), *words],
            cwd=self.home,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def environment(self) -> dict[str, str]:
        kept = environment()
        return kept | {"PATH": f"{self._path}:{kept['PATH']}"}

    def prefix(self) -> list[str]:
        return self.network.prefix(OPERATOR)

    def _scp(self, command: str) -> Ended:
        """`cp` has the same rules about folders that are there and that are not."""

        def place_of(word: str) -> str:
            remote = re.fullmatch(r"root@([^:]+):(.*)", word)
            return (
                str(self.hosts[remote[1]].path(remote[2])) + ("/" if word.endswith("/") else "")
                if remote
                else word
            )

        words = [place_of(word) for word in shlex.split(command)[1:]]
        return self.run("cp", "-L", *words)

    def _on_host(self, host: Host, words: list[str]) -> Ended:
        match words:
            case ["systemctl", verb, unit]:
                host.systemctl(verb, unit)
            case ["chown", *_]:
                pass
            case _:
                raise AssertionError(f"{words} is not played here")
        return Ended(0, "", "")

    def end(self) -> None:
        for host in self.hosts.values():
            host.end()

    def logs(self, lines: int = 30) -> str:
        """What was typed, and the last words of every service."""
        found = ["\n".join(self.told)]
        for host in self.hosts.values():
            for log in sorted(host.folder.glob("*.log")):
                tail = log.read_text(errors="replace").splitlines()[-lines:]
                found.append(f"--- {host.name} {log.name}\n" + "\n".join(tail))
        return "\n".join(found)
