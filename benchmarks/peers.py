"""The other systems and their clients: from Debian and the package index, into places of their own.

`python -m benchmarks.peers` installs what is missing. They are never a dependency of the project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.published import TOOLS

ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")
ENVIRONMENT = TOOLS / "peers"
PYTHON = ENVIRONMENT / "bin" / "python"
CLIENTS = ("redis==8.1.0", "grpcio==1.85.3", "kazoo==2.11.0", "pysyncobj==0.3.17", "uvloop>=0.21")
DFLOCKD = "dflockd==0.5.0"
"""Says that it wants Python 3.13; runs on 3.11 as it is."""


class MissingError(Exception):
    """Something is not here and cannot be installed; the text says what to do."""


def install(without: Collection[str] = ()) -> None:
    """Installs what is missing, but for the systems named (as in `plan.SYSTEMS`).

    MissingError where Debian's packages are missing and this is not root.
    """
    _install_debian(without)
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *CLIENTS], check=True)
        subprocess.run([*pip, "--ignore-requires-python", "--no-deps", DFLOCKD], check=True)


def _install_debian(without: Collection[str]) -> None:
    wanted = {
        "redis-server": (("redis",), shutil.which("redis-server")),
        "etcd-server": (("etcd-memory", "etcd-fsync"), shutil.which("etcd")),
        "default-jre-headless": (("zookeeper",), shutil.which("java")),
        "zookeeper": (("zookeeper",), ZOOKEEPER.exists()),
    }
    missing = [
        package
        for package, (systems, there) in wanted.items()
        if not there and not set(systems) <= set(without)
    ]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(
            f"missing: {', '.join(missing)}. On Debian, as root: apt-get install --no-install-recommends"
            f" {' '.join(missing)}; or leave those systems out: --without"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def package_version(package: str) -> str:
    """Of a package in the environment of the peers."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(PYTHON), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    try:
        install()
    except MissingError as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
