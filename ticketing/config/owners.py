"""Whose the files are: a node reads them as its own user, whoever has written them."""

from __future__ import annotations

import errno
import os
import pwd
import stat
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


def give_to_owner(made: int, of: Path) -> None:
    """What root has made for a node belongs to the user whose folder `of` is, or the node could not open it.

    `made` is a descriptor: in a folder of his that user may put a link where the file was.
    """
    owner, own = of.stat(), os.fstat(made)
    if os.geteuid() == 0 and owner.st_uid != 0 and own.st_uid == 0:
        if not stat.S_ISDIR(own.st_mode) and own.st_nlink > 1:
            raise OSError(errno.EPERM, "it goes by another name as well")
        os.fchown(made, owner.st_uid, owner.st_gid)


def give_folder_to_owner(made: Path, of: Path) -> None:
    """The same for a folder that was made, without what is in it."""
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_to_owner(descriptor, of)
    finally:
        os.close(descriptor)


def give_all_to_owner(made: Path, of: Path) -> None:
    """The same with all that is in it, from the leaves up: until all is done nobody else gets in."""
    for _, folders, files, home in os.fwalk(made, topdown=False):
        if os.fstat(home).st_uid != os.geteuid():
            raise OSError(errno.EPERM, "another folder was put in its place", str(made))
        for name in (*folders, *files):
            kind = os.O_DIRECTORY if name in folders else 0
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=home)
            try:
                give_to_owner(descriptor, of)
            finally:
                os.close(descriptor)
    give_folder_to_owner(made, of)


def is_strangers(folder: Path) -> bool:
    """Whether root is at work in the folder of another user."""
    return os.geteuid() == 0 and folder.is_dir() and folder.stat().st_uid != 0


def strangers_warning(folder: Path) -> str:
    """What to say where root is about to run a node in the folder of another user; empty where that is not so."""
    if not is_strangers(folder):
        return ""
    user = user_name(folder.stat().st_uid)
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
