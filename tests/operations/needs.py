"""What a machine must have for these tests: what is missing is a skip with its reason, or a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_FAKETIME = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
)


def missing(what: str) -> None:
    """Skips, or fails where everything is to be there."""
    if os.environ.get("TICKETING_TESTS_COMPLETE"):
        pytest.fail(what)
    pytest.skip(what)


def need_namespaces() -> None:
    """Root and iproute2."""
    if os.geteuid() != 0:
        missing("network namespaces need root")
    if shutil.which("ip") is None:
        missing("network namespaces need the command `ip` (Debian: apt-get install iproute2)")


def libfaketime() -> str:
    """The library that fakes clocks."""
    try:
        return faketime_library()
    except FileNotFoundError as error:
        missing(str(error))
        raise


def faketime_library() -> str:
    """As `libfaketime`, outside of tests: FileNotFoundError where there is none."""
    for path in _FAKETIME:
        if Path(path).exists():
            return path
    raise FileNotFoundError("faked clocks need libfaketime (Debian: apt-get install faketime)")
