"""What a case is, and what it is done to."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.e2e.cluster import Cluster, NodeProcess
from tests.hostile.strangers import Stranger, TlsStranger
from ticketing.protocol.handshake import digest

STANDALONE = "standalone, plain"
STANDALONE_TLS = "standalone, TLS"
THREE = "one of three, plain"
THREE_TLS = "one of three, TLS"
EVERYWHERE = (STANDALONE, STANDALONE_TLS, THREE, THREE_TLS)
BOTH = (STANDALONE, THREE_TLS)
"""Where the port, and not what stands behind it, makes the difference: the lightest and the heaviest."""
TLS = (STANDALONE_TLS, THREE_TLS)

DIALS_MAX = 4


class Target:
    """One serving node and the cluster that it belongs to."""

    def __init__(self, flavour: str, cluster: Cluster, node: NodeProcess) -> None:
        self.flavour = flavour
        self.cluster = cluster
        self.node = node

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self.node.tls()

    async def client(self, *, source: str = "127.0.0.1", window: int = 0) -> Stranger | TlsStranger:
        """A connection to the client port, TLS done where there is any; nothing was said yet."""
        context = self.tls
        if context is None:
            return await Stranger.dial(self.node.client, source=source, window=window)
        return await TlsStranger.dial(self.node.client, context, source=source, window=window)

    async def session(self, *, window: int = 0) -> Stranger | TlsStranger:
        """A client that has authenticated. As clients do, it dials again where a machine that stood still has let the
        door's 5 s pass.
        """
        for _ in range(DIALS_MAX):
            stranger = await self.client(window=window)
            try:
                nonce = nonce_of(await stranger.line())
                await stranger.send(digest(self.node.client_token, nonce))
                if (await stranger.line())[:1] in (b"L", b"\n"):
                    return stranger
            except BaseException:
                stranger.close()
                raise
            stranger.close()
        raise ConnectionError(f"not let in, {DIALS_MAX} times")


def nonce_of(banner: bytes) -> str:
    """ConnectionError where there is none: the door was closed."""
    if not banner.startswith(b"TICKETING/"):
        raise ConnectionError(f"no banner: {banner[:40]!r}")
    return banner.split(b"\n")[0].split(b" ")[1].decode()


class Case(NamedTuple):
    """`attack` gets the target and how long it goes on, in seconds, and says what it did; it asserts what only it can
    see."""

    name: str
    attack: Callable[[Target, float], Awaitable[str]]
    flavours: tuple[str, ...] = BOTH
    log: str = ""
    """The event that the node's log must show."""
    log_tls: str = ""
    """In its place where there is TLS, if that is another one."""
    waits: bool = False
    """It mostly waits: done together with the others that do."""

    def told_by(self, flavour: str) -> str:
        return self.log_tls or self.log if flavour in TLS else self.log
