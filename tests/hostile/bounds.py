"""All bounds of the hostile cases, in one place: what a node may cost and what its other clients may feel.

Memory is what the process's resident set may rise above what it was before the case, in MiB, at its peak. Most cases
have the general bound; the others say why they have another.
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY_MIB = 24
"""The door: 512 connections with at most 4 KiB of ours and some KiB of objects each, log lines on their way, and what
the allocator keeps."""


class Memory(NamedTuple):
    mib: int
    why: str


MEMORY = {
    "tls: a first record without end": Memory(
        32, "one read of up to 256 KiB, given back at once, beside the door's"
    ),
    "tls: handshakes that stall": Memory(48, "512 handshakes begun: OpenSSL keeps some 50 KiB each"),
    "tls: a flood of handshakes": Memory(48, "as many as the door holds: OpenSSL keeps some 50 KiB each"),
    "session: never reads": Memory(32, "8 sessions: a write buffer of 256 KiB and one read's answers each"),
    "session: a flood of requests": Memory(
        64, "four sessions' reads of 256 KiB as requests, until a majority answers"
    ),
    "peer: a liar with the secret": Memory(32, "frames of up to 4 MiB each"),
    "admin: events that are never read": Memory(24, "16 readers, 64 KiB each"),
    "waiting cases together": Memory(64, "the doors of all three ports full at once, TLS handshakes begun"),
}

LATENCY_RATIO = 20.0
LATENCY_FLOOR_MS = 1_500.0
"""The neighbours' acquire at the 95th percentile: at most the ratio times that without attack, plus the floor. The
attackers themselves run on the same few cores as the node and the neighbours, and so may the rest of a test run: the
bound tells service from starvation, the measured figures tell how much."""

SLOWEST_MS = 9_000.0
"""No acquire of a neighbour waits longer, and none fails. On a machine of its own it is a tenth; where other programs
stop every process for seconds, nothing less can be told from a fault."""

LEADS_MOVED_MAX = 2
"""Where the machine itself stops a leader for longer than an election, the lead moves, and an acquire under way is told
that its outcome is not known. Once, and once back: more than that is the case's doing."""

BACK_TO_NORMAL_S = 12.0
"""Within this time after a case no descriptor of it is left."""

LIVES_S = 20.0
"""A newcomer is served within this time after a case: what the kernel still holds of it is worked off first."""

LOG_BURST = 20
LOG_EVERY_S = 1.0
LOG_EVENTS = 8
"""Lines of one kind: a burst, and one a second after it; a case may bring about so many kinds."""


def memory_of(case: str) -> Memory:
    return MEMORY.get(case, Memory(MEMORY_MIB, "the general bound"))


def latency_bound_ms(without_attack_ms: float) -> float:
    return LATENCY_RATIO * without_attack_ms + LATENCY_FLOOR_MS


def log_lines_max(lasted_s: float) -> int:
    return int(LOG_EVENTS * (LOG_BURST + lasted_s / LOG_EVERY_S + 1))
