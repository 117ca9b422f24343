"""What a run takes: root and namespaces, nftables, TUN devices, libfaketime, PostgreSQL."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.fencing.postgres import binaries
from tests.operations.needs import faketime_library, missing


def lacking() -> list[str]:
    """What this machine lacks, a line each, with how to get it."""
    found = []
    if os.geteuid() != 0:
        found.append("network namespaces need root")
    if shutil.which("ip") is None:
        found.append("network namespaces need the command `ip` (Debian: apt-get install iproute2)")
    if shutil.which("nft") is None:
        found.append("cuts need the command `nft` (Debian: apt-get install nftables)")
    if not Path("/dev/net/tun").exists():
        found.append("slow paths need TUN devices (/dev/net/tun)")
    try:
        faketime_library()
    except FileNotFoundError as error:
        found.append(str(error))
    if binaries() is None:
        found.append("the fence needs a PostgreSQL server (Debian: apt-get install postgresql)")
    return found


def need_chaos() -> None:
    """For tests: skips with what is missing, or fails where everything is to be there."""
    if found := lacking():
        missing("; ".join(found))
