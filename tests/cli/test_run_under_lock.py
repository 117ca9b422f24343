from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticketing.cli.child import descendants

SCRIPT = Path(__file__).with_name("supervised.py")
WITHIN_S = 10.0


class Running:
    """One supervised command, and what it wrote."""

    def __init__(self, folder: Path, command: list[str], **options: Any) -> None:
        self.log = folder / "log"
        self.mark = folder / "mark"
        settings = {"lease": 30, "grace": 2, "log": str(self.log), **options}
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(settings), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "MARK": str(self.mark), "TICKETING_KEY": "an/outer/key"},
        )

    def finish(self, typed: str = "") -> tuple[int, str, str]:
        out, err = self.process.communicate(typed, timeout=WITHIN_S)
        return self.process.returncode, out, err

    def locked(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def marks(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []

    def wait_for_mark(self, text: str) -> None:
        until(lambda: text in self.marks())


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not ready():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*command: str, **options: Any) -> Running:
        started.append(Running(tmp_path, list(command), **options))
        return started[-1]

    yield start
    for running in started:
        below = descendants(running.process.pid)
        running.process.kill()
        running.process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for stream in (running.process.stdin, running.process.stdout, running.process.stderr):
            if stream is not None:
                stream.close()


Start = Callable[..., Running]


def test_the_commands_own_code_is_ours_and_128_and_its_number_for_a_signal(run: Start) -> None:
    codes = [0, 1, 2, 3, 78, 126, 127, 255]
    running = [run("sh", "-c", f"exit {code}") for code in codes]
    assert [one.finish() for one in running] == [(code, "", "") for code in codes]
    assert running[0].locked() == ["released"] * len(codes)
    assert run("sh", "-c", "kill -USR1 $$").finish()[0] == 128 + signal.SIGUSR1


def test_the_command_has_our_streams_and_its_variables_beat_inherited_ones(run: Start) -> None:
    show = "cat; echo $TICKETING_KEY $TICKETING_FENCING_TOKEN $TICKETING_DOMAIN $TICKETING_LEASE_SECONDS; echo e >&2"
    code, out, err = run("sh", "-c", show).finish("typed\n")
    typed, told = out.splitlines()
    assert (code, typed, err) == (0, "typed", "e\n")
    key, token, domain, seconds = told.split()
    assert (key, token) == ("a/key", "1850000000000000")
    assert domain == "1850000000000000.00112233445566ff"
    assert seconds in ("28", "29")


def test_arguments_reach_the_command_untouched(run: Start) -> None:
    words = ["--wait", "9", "-v", "--", "", "*", "a b", "--lease=1", "$HOME"]
    code, out, _ = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words).finish()
    assert (code, out.strip()) == (0, str(words))


def test_a_command_that_is_not_there_or_not_executable_is_told_as_shells_do(
    run: Start, tmp_path: Path
) -> None:
    running = run("no-such-command-anywhere")
    code, out, err = running.finish()
    assert (code, out) == (127, "")
    assert "no-such-command-anywhere: no such file" in err
    plain = tmp_path / "plain"
    plain.write_text("echo\n")
    code, _, err = run(str(plain)).finish()
    assert (code, "permission denied" in err) == (126, True)
    assert running.locked() == ["released", "released"]


def test_too_little_lease_starts_nothing_and_releases(run: Start) -> None:
    running = run("sh", "-c", "echo x > $MARK", lease=4, grace=2, budget=2)
    code, _, err = running.finish()
    assert (code, running.marks(), running.locked()) == (6, [], ["released"])
    assert "less than grace + budget" in err


def test_stopped_between_grant_and_start_it_releases_and_starts_nothing(run: Start) -> None:
    running = run("sh", "-c", "echo x > $MARK", stopped_by=int(signal.SIGTERM))
    assert running.finish()[0] == 128 + signal.SIGTERM
    assert (running.marks(), running.locked()) == ([], ["released"])


def test_at_the_leases_end_a_child_that_listens_ends_with_term(run: Start) -> None:
    running = run("sh", "-c", "trap 'echo term >> $MARK; exit 0' TERM; sleep 60 & wait", lease=2, grace=1)
    code, out, err = running.finish()
    assert (code, out, running.marks()) == (11, "", ["term"])
    assert running.locked() == ["released"]
    assert "about to run out" in err


def test_nothing_of_the_command_is_left_before_the_lease_ends(run: Start) -> None:
    deaf = 'trap "" TERM; echo $$ >> $MARK; sleep 60; sleep 60'
    deaf_below = f"echo $$ >> $MARK; sh -c '{deaf}' & wait"
    frozen = "trap '' TERM; echo $$ >> $MARK; kill -STOP $$"
    running = [run("sh", "-c", script, lease=2, grace=0.5) for script in (deaf, deaf_below, frozen)]
    assert [one.finish()[0] for one in running] == [11, 11, 11]
    assert running[0].locked() == ["released"] * 3
    assert len(running[0].marks()) == 4
    assert not any(alive(int(pid)) for pid in running[0].marks())


def test_a_lost_lock_ends_the_command_at_once(run: Start) -> None:
    started = time.monotonic()
    running = run("sleep", "60", lost_after=0.5)
    code, _, err = running.finish()
    assert (code, "the lock is lost" in err) == (11, True)
    assert time.monotonic() - started < 3


def test_left_alone_the_command_goes_on_and_the_code_says_so(run: Start) -> None:
    running = run("sh", "-c", "sleep 1.3; echo done > $MARK", lease=1, grace=0.2, leave_alone=True)
    code, _, err = running.finish()
    assert (code, running.marks(), running.locked()) == (11, ["done"], ["late"])
    assert "another may hold 'a/key'" in err


def test_extended_the_command_outlives_its_first_lease(run: Start) -> None:
    running = run("sleep", "1.8", lease=1, grace=0.2, extend=True, extends=True)
    assert running.finish()[0] == 0
    assert running.locked().count("extended") >= 3
    assert running.locked()[-1] == "released"


def test_without_a_confirmed_extension_the_signals_count_from_the_last_end(run: Start) -> None:
    running = run("sleep", "60", lease=1, grace=0.2, extend=True)
    code, _, err = running.finish()
    assert (code, "could not be extended" in err) == (11, True)
    assert running.locked()[-1] == "released"


COUNTING = """
import os, signal, sys
mark = open(os.environ["MARK"], "a", buffering=1)
names = ("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM")
numbers = {getattr(signal, name) for name in names}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # none slips by between two waits
mark.write("ready\\n")
while True:
    number = signal.sigwait(numbers)
    mark.write(number.name + "\\n")
    if number == signal.SIGTERM:
        sys.exit(7)
"""


def test_each_signal_is_passed_on_once_and_the_childs_code_comes_back(run: Start) -> None:
    running = run(sys.executable, "-c", COUNTING)
    running.wait_for_mark("ready")
    sent = ["SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM"]
    for name in sent:
        running.process.send_signal(getattr(signal, name))
        running.wait_for_mark(name)
    assert running.finish()[0] == 7
    assert running.marks() == ["ready", *sent]
    assert running.locked() == ["released"]


def test_after_a_stop_nothing_that_the_command_left_behind_outlives_the_grace(run: Start) -> None:
    deaf = "sh -c \"trap '' INT TERM; echo \\$\\$ >> $MARK; sleep 60; sleep 60\" &"
    running = run("sh", "-c", f"{deaf} echo $$ >> $MARK; exec sleep 60", grace=0.3)
    until(lambda: len(running.marks()) == 2)
    running.process.send_signal(signal.SIGINT)
    assert running.finish()[0] == 128 + signal.SIGINT
    assert not any(alive(int(pid)) for pid in running.marks())
    assert running.locked() == ["released"]


def test_what_a_command_left_running_in_peace_is_left_alone(run: Start) -> None:
    running = run("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $! > $MARK")
    assert running.finish()[0] == 0
    pid = int(running.marks()[0])
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_the_command_ends_when_we_are_killed(run: Start) -> None:
    running = run("sh", "-c", "echo $$ > $MARK; exec sleep 60")
    until(lambda: bool(running.marks()))
    running.process.kill()
    running.process.wait()
    until(lambda: not alive(int(running.marks()[0])))


def test_on_a_terminal_ctrl_c_reaches_the_command_once_and_it_can_read(tmp_path: Path) -> None:
    log, mark = tmp_path / "log", tmp_path / "mark"
    reading = COUNTING.replace("while True:", 'mark.write(sys.stdin.readline().strip() + "\\n")\nwhile True:')
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["MARK"] = str(mark)
        settings = json.dumps({"lease": 30, "grace": 2, "log": str(log)})
        os.execv(sys.executable, [sys.executable, str(SCRIPT), settings, sys.executable, "-c", reading])

    def marks() -> list[str]:
        return mark.read_text().split() if mark.exists() else []

    try:
        until(lambda: "ready" in marks())
        os.write(terminal, b"typed\n")
        until(lambda: "typed" in marks())
        os.write(terminal, b"\x03")
        until(lambda: "SIGINT" in marks())
        os.kill(pid, signal.SIGUSR1)
        until(lambda: "SIGUSR1" in marks())
        os.kill(pid, signal.SIGTERM)
        status = os.waitpid(pid, 0)[1]
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 7
    assert marks() == ["ready", "typed", "SIGINT", "SIGUSR1", "SIGTERM"]
    assert log.read_text().split() == ["released"]
