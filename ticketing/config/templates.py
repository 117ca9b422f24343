"""The text of the files that `init` writes: each option's reason, default and danger."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ticketing.node.settings import Place


def node_toml(
    place: Place,
    places: Sequence[Place],
    *,
    listen: tuple[str, str, str],
    client_token: str,
    peer_secret: str,
    admin_token: str,
    first_token: int,
    tls: bool,
    insecure: bool,
) -> str:
    """`node.toml` of `place`. `listen` is client, peer, admin; empty where it is the place's own address."""
    parts = [_NODE.format(place=_quoted(place.name), insecure=_INSECURE if insecure else "")]
    parts.append(
        _CLUSTER.format(first_token=f"first_token = {first_token}" if first_token else "# first_token = 0")
    )
    parts += [_place(item) for item in places]
    parts.append(_listen(listen))
    parts.append(
        _SECRETS.format(
            client_token=_quoted(client_token),
            peer=_PEER.format(secret=_quoted(peer_secret)) if place.peer else "",
            admin_token=_quoted(admin_token),
        )
    )
    parts.append(_TLS if tls else _NO_TLS)
    parts.append(_REST)
    return "".join(parts)


def client_toml(places: Sequence[Place], *, token: str, tls: bool) -> str:
    """`client.toml`: for programs and for the commands that take and release locks."""
    addrs = "".join(f"    {_quoted(place.client)},\n" for place in places)
    return _CLIENT.format(addrs=addrs, token=_quoted(token), tls=_quoted("ca/ca.pem" if tls else "off"))


def admin_toml(places: Sequence[Place], *, token: str, tls: bool) -> str:
    """`admin.toml`: for the operator's commands."""
    text = _ADMIN.format(token=_quoted(token), tls=_quoted("ca/ca.pem" if tls else "off"))
    for place in places:
        text += f"\n[[nodes]]\nname = {_quoted(place.name)}\nadmin = {_quoted(place.admin)}\n"
    return text


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are all among TOML's."""
    return json.dumps(text)


def _place(place: Place) -> str:
    lines = ["", "[[cluster.nodes]]", f"name = {_quoted(place.name)}", f"client = {_quoted(place.client)}"]
    if place.peer:
        lines.append(f"peer = {_quoted(place.peer)}")
    lines.append(f"admin = {_quoted(place.admin)}")
    return "\n".join(lines) + "\n"


def _listen(listen: tuple[str, str, str]) -> str:
    text = _LISTEN
    for name, address in zip(("client", "peer", "admin"), listen, strict=True):
        if address:
            text += f"{name} = {_quoted(address)}\n"
    return text


_NODE = """\
# One node of a ticketing cluster. Paths are meant from the folder of this file. `ticketing config check`
# tells everything that is wrong with it. It holds secrets: keep it at mode 0600.

[node]
# Which of the places under [cluster] this process fills.
place = {place}

# Folder of the one-time formation permit and of the records of earlier domains. It must outlive the
# process and belong to this node alone: a copy of it on two hosts is two processes that claim one place.
state = "state"

# A process that starts where an earlier one ended takes that one's place under a new NodeId. With false
# it stops instead and names the command; restarts then need a person.
# rejoin = true

# Seconds for which a node that is told to stop asks the leader for leave, before it stops without.
# Whatever starts and stops it must allow more than this (60 is a good figure).
# stop_wait_s = 25

# Programs of the published client 0.3.0 may send a request again under the same owner. True answers these
# with the grant they had; safe only where no such program forks after importing the client.
# legacy_resend = false
{insecure}
"""

_INSECURE = """
# Listen beyond loopback without TLS. Everybody on the way can read tokens' answers and take over
# sessions: for networks that nobody else is on. Written because the cluster was made with --no-tls.
insecure = true
"""

_CLUSTER = """\
# What all nodes must agree on: it is the same in every node's file, or they do not form a domain.
[cluster]
# The greatest difference between two nodes' wall clocks, in milliseconds, with which locks are still
# granted. Larger hides broken time synchronisation; smaller stops granting on a network with slow round
# trips.
# delta_ms = 500

# A new domain's first fencing token is at least this. Needed only where a database remembers higher
# tokens than the clock's (Unix seconds x 2^20) and the records of earlier domains give. Raising it is
# safe; tokens never fall.
{first_token}
"""

_LISTEN = """
# Where to listen, when that is not the address above (a wildcard may stand here, never above). Default:
# the addresses of this node's place.
[listen]
"""

_SECRETS = """
# Each secret may stand in a file of its own instead: client_tokens_file, peer_secrets_file,
# admin_token_file.
[secrets]
# Any of them opens a client session. To change it without a pause: add the new one on every node, move
# the clients, remove the old one.
client_tokens = [{client_token}]
{peer}
# Opens the admin plane of this node: status, replacing nodes, revoking locks. While it is rotated a further one
# stands in admin_tokens (a list).
admin_token = {admin_token}
"""

_PEER = """
# Nodes prove themselves to each other with the first; each is accepted (two while one is rotated).
# Whoever has it can pose as a node.
peer_secrets = [{secret}]
"""

_TLS = """
# The certificate names this node's host; it serves clients and admins and proves the node to its peers.
[tls]
ca = "tls/ca.pem"
certificate = "tls/node.pem"
key = "tls/node.key"
"""

_NO_TLS = """
# No TLS. Beyond loopback it is required unless [node] says `insecure = true`.
# [tls]
# ca = "tls/ca.pem"
# certificate = "tls/node.pem"
# key = "tls/node.key"
"""

_REST = """
[admin]
# Let Prometheus read /metrics without the admin token. It shows figures and places, no keys and no names.
# metrics_open = false

[clock]
# chrony's own tool, "chronyc" by name or with its path: a further source on this machine's wall clock. While
# chrony does not call the clock synchronised, or does not answer, this node counts as one whose clock is off:
# where it leads it gives the lead away, and where all nodes say so nothing is granted. Default: not asked.
# chronyc = ""

[log]
# `text`, `json`, or `auto`: text on a terminal, JSON lines elsewhere.
# format = "auto"
# level = "info"

# Bounds of this node. Beyond them an acquire is answered "busy" at once. Raising them takes memory: about
# 1 KiB a waiter and a held key.
[limits]
# waiters_per_session = 50000
# waiters_per_key = 100000
# waiters = 200000
# keys = 1000000
# sessions = 20000

# Consensus. The defaults are for nodes in one region. Shorter timeouts replace a dead leader sooner and
# mistake a busy machine for a dead one more often: every mistake drops the queue.
[raft]
# heartbeat_ms = 50
# leader_lease_ms = 400
# election_timeout_min_ms = 400
# election_timeout_max_ms = 800
# quorum_check_ms = 800
"""

_CLIENT = """\
# How programs and `ticketing acquire` reach the cluster. Copy it to the hosts of the programs (with the
# CA file, if `tls` names one). It holds a secret: keep it at mode 0600.

# The nodes' client addresses, in any order: the client finds the leader.
addrs = [
{addrs}]

# One of the nodes' client_tokens. It may stand in a file of its own instead: token_file.
token = {token}

# "off", "system-roots", a CA file (meant from the folder of this file), or, for tests alone,
# "insecure-skip-verify".
tls = {tls}
"""

_ADMIN = """\
# How an operator's commands (`ticketing status`, `ticketing node ...`) reach the nodes. Not for the hosts
# of programs: the token opens everything. Keep it at mode 0600.

# The nodes' admin_token. It may stand in a file of its own instead: token_file.
token = {token}

# As in client.toml.
tls = {tls}
"""
