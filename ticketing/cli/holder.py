"""Who holds a key that could not be had, where the operator's file lies beside `client.toml`."""

from __future__ import annotations

from ticketing.config.client_file import Access

WITHIN_S = 1.0


def holder_of(access: Access, key: str) -> str:
    """The holder in a few words, or nothing: a program without the admin token is not told, and nothing waits long."""
    if access.file is None or dict(access.sources).get("addrs") != str(access.file):
        return ""  # the addresses may be another cluster's than the file's

    from ticketing.cli.admin_client import AdminAccess, AdminError
    from ticketing.cli.admin_leader import Leader, key_path
    from ticketing.cli.cells import cell, seconds, text
    from ticketing.cli.errors import CommandFailed
    from ticketing.config.client_file import read_admin_file
    from ticketing.config.layout import ADMIN_FILE
    from ticketing.config.problems import ConfigError

    file = access.file.parent / ADMIN_FILE
    try:
        if not file.is_file():
            return ""
        admin = read_admin_file(file)
        leader = Leader(AdminAccess(admin.nodes, admin.token, admin.tls))
        found = leader.try_ask("GET", f"{key_path(key)}?limit=1", within_s=WITHIN_S)
    except (ConfigError, AdminError, CommandFailed, OSError):
        return ""
    lock = found.get("lock")
    if not isinstance(lock, dict):
        return ""
    waiting = found.get("waiting")
    queue = f"; {waiting} wait{'s' if waiting == 1 else ''}" if waiting else ""
    return (
        f"{text(lock.get('name')) if lock.get('name') else 'somebody without a name'} (token"
        f" {cell(lock.get('token'))}, {seconds(lock.get('lease_left_ms'))} of its lease left{queue})"
    )
