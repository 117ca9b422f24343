"""All bounds of the hostile cases, in one place: what a node may cost and what its other clients may feel.

Memory is what the process's resident set may rise above what it was before the case, in MiB, at its peak. Most cases
have the general bound; the others say why they have another. A bound is what the design allows, and above all that was
measured on a calm machine and on a busy one (docs/hostile.md).
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY_MIB = 12
"""The door: 512 connections with at most 4 KiB of ours and some KiB of objects each, log lines on their way, and what
the allocator keeps."""


class Memory(NamedTuple):
    mib: int
    why: str


MEMORY = {
    "tls: a first record without end": Memory(4, "what is kept of each is 4 KiB"),
    "tls: a flood of handshakes": Memory(24, "as many as the door holds: OpenSSL keeps some 50 KiB each"),
    "peer: a flood of handshakes": Memory(16, "64 handshakes begun: OpenSSL keeps some 50 KiB each"),
    "session: a flood of requests": Memory(
        32,
        "16 MiB of entries until a majority answers, four sessions' answers of 256 KiB and what they stand in",
    ),
    "peer: a liar with the secret": Memory(16, "a frame of up to 4 MiB, as bytes and as what is read of it"),
    "waiting cases together": Memory(
        32, "the doors of all three ports full at once, TLS handshakes begun, 4 sessions' answers of 256 KiB"
    ),
}

TURN_CPU_MS = 100.0
"""What the node's loop was kept from its sockets by one turn, in processor time of its thread, so that it says the same
on any machine. An eighth of the time after which a leader that hears nothing steps down: no case costs a lead."""

LATENCY_RATIO = 10.0
LATENCY_FLOOR_MS = 600.0
FLOOD_FLOOR_MS = 1_200.0
FLOODS = frozenset(("session: a flood of requests",))
"""The neighbours' acquire at the 95th percentile: at most the ratio times that without attack, plus the floor. The
attackers themselves run on the same few cores as the node and the neighbours, and so may the rest of a test run: the
bound tells service from starvation, the measured figures tell how much. Sessions that send without end are heard in
turn with the neighbour, and what they cost beside the node's own time is the machine's."""

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

LOGGED_S = 5.0
"""A line is in the log within this time after a case."""

LOG_BURST = 20
LOG_EVERY_S = 1.0
LOG_EVENTS = 8
"""Lines of one kind: a burst, and one a second after it; a case may bring about so many kinds."""


def memory_of(case: str) -> Memory:
    return MEMORY.get(case, Memory(MEMORY_MIB, "the general bound"))


def latency_bound_ms(case: str, without_attack_ms: float) -> float:
    floor_ms = FLOOD_FLOOR_MS if case in FLOODS else LATENCY_FLOOR_MS
    return LATENCY_RATIO * without_attack_ms + floor_ms


def log_lines_max(lasted_s: float) -> int:
    return int(LOG_EVENTS * (LOG_BURST + lasted_s / LOG_EVERY_S + 1))
