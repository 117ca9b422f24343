"""A PostgreSQL server of the test's own: in a folder that is thrown away, on a Unix socket alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

USER = "tester"
DATABASE = "postgres"
START_S = 30.0


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, of the newest version that there is."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), reverse=True
    )
    if found:
        return found[0].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).parent if elsewhere is not None and shutil.which("postgres") else None


class Postgres:
    """Runs as whoever runs the tests; where that is root, which PostgreSQL refuses, as an unprivileged user."""

    def __init__(self, bin_folder: Path, connections: int = 20) -> None:
        self._bin = bin_folder
        self._connections = connections
        self.folder = Path(tempfile.mkdtemp(prefix="ticketing-postgres-"))
        self._user = _unprivileged() if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", f"max_connections={self._connections}"]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", data, "-k", self.folder, *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"LC_ALL": "C"},
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # ends sessions and stops
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        """Empties the database and returns its name."""
        with psycopg.connect(f"host={self.folder} dbname={DATABASE} user={USER}") as connection:
            connection.execute("DROP SCHEMA IF EXISTS public, shop CASCADE")
            connection.execute("CREATE SCHEMA public")
        return DATABASE

    def _answers(self) -> bool:
        command = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *words: str | Path) -> None:
        done = subprocess.run(
            [self._bin / program, *words],
            cwd=self.folder,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "")},
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with status {done.returncode}:\n{done.stderr}")


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("neither a user postgres nor a user nobody to run PostgreSQL as")
