"""Whose the files are: a node reads them as its own user, whoever has written them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from ticketing.config.problems import wrong
from ticketing.config.reader import reason


def keep_owner(descriptor: int, path: Path) -> None:
    """Makes a new file, which only we may open yet, one that whoever reads the one at `path` can read.

    Where none is there it goes with its folder. `ConfigError` where that is not ours to give.
    """
    by_root = os.geteuid() == 0
    try:
        former = path.stat()
    except FileNotFoundError:
        give_to_owner(descriptor, path.parent)
        return
    group_reads = former.st_mode & 0o047 == 0o040
    own = os.fstat(descriptor)
    if own.st_uid != former.st_uid or (own.st_gid != former.st_gid and (by_root or group_reads)):
        try:
            os.fchown(descriptor, former.st_uid, former.st_gid)
        except OSError as error:
            user = user_name(former.st_uid)
            raise wrong(
                f"cannot write: it belongs to {user}, and would not any more ({reason(error)})",
                file=path,
                hint=f"run this as {user}" + ("" if by_root or former.st_uid == 0 else ", or as root"),
            ) from None
    if group_reads:
        os.fchmod(descriptor, 0o640)


def give_to_owner(made: int | Path, of: Path) -> None:
    """What root has made for a node belongs to the user whose folder `of` is, or the node could not open it."""
    owner = of.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(made, owner.st_uid, owner.st_gid)


def strangers_warning(folder: Path) -> str:
    """What to say where root is about to run a node in the folder of another user; empty where that is not so."""
    owner = folder.stat().st_uid if folder.is_dir() else 0
    if os.geteuid() != 0 or owner == 0:
        return ""
    user = user_name(owner)
    return (
        f"{folder} belongs to {user}, and the node runs as root: what it writes there {user} cannot read;"
        f" start it as {user}"
    )


def user_name(number: int) -> str:
    """A user as people know it."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
