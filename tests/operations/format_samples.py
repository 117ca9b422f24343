"""What travels between nodes and lies on their disks, one of each: `python -m tests.operations.format_samples`
writes it as this program encodes it.

`formats/link-N.json` is what the program of link format N wrote, so that a later one is tested against it without that
program. This module therefore uses nothing that not all of them have.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, cast

from ticketing.locks.codec import encode_commands
from ticketing.locks.commands import Cancel, Extend, LockCommand, Revoke, Turn
from ticketing.locks.table import LockTable
from ticketing.node import clock_messages, forming_messages, membership_messages, snapshots
from ticketing.node.first_state import FirstMember, FirstState
from ticketing.node.handshake import ACCEPTOR, DIALLER, FORMAT, LinkFacts, PeerHandshake
from ticketing.node.members import MemberRecord, Members, MembersChange
from ticketing.node.settings import OperatorCommand
from ticketing.node.shell import Link, Shell
from ticketing.node.shown import Mark, Shows
from ticketing.node.state import DomainFacts, ReplicatedState
from ticketing.raft import messages as raft_messages
from ticketing.raft.types import Base, Configuration, ConfigurationChange, Entry, EntryKind, Member
from ticketing.server.files import command_content

DOMAIN = "0123456789abcdef"
FIRST_TOKEN = 1 << 50
SECRET = b"the peer secret of the samples"
MEMBERS = (Member(1, 11), Member(2, 22), Member(3, 33))
RECORDS = tuple(
    MemberRecord(f"node-{m.node_id}", *m, *(f"h{m.node_id}:{port}" for port in (5225, 6225, 7225)))
    for m in MEMBERS
)
LEARNER = MemberRecord("node-2", 4, 44, "new:5225", "new:6225", "new:7225", "command-1")
FIRST = FirstState(
    domain_id=DOMAIN,
    first_token=FIRST_TOKEN,
    members=tuple(FirstMember(r.place, r.node_id, r.incarnation, r.client, r.peer, r.admin) for r in RECORDS),
    delta_ns=500_000_000,
    quarantine_s=250,
    permit="a permit",
    cluster="a digest",
    formed_wall_ms=1_800_000_000_000,
)
CONFIGURATION = Configuration(MEMBERS, (), (LEARNER.member,))
COMMANDS: list[LockCommand] = [
    Turn("ключ".encode(), 0, 1 << 63 | 7, 30, 1_800_000_000_001, "a client"),
    Turn(b"b", 0, 1 << 63 | 8, 250, 1_800_000_000_002),
    Turn(b"c", 0, 1 << 63 | 9, 1, 1_800_000_000_003),
    Extend(b"b", FIRST_TOKEN + 1, 200),
    Cancel((1 << 63 | 5, 1 << 63 | 6)),
    Turn(b"c", FIRST_TOKEN + 2, renewal=0),
    Revoke("command-2", Turn("ключ".encode(), FIRST_TOKEN), "somebody", "a reason"),
    Turn("ключ".encode(), 0, 1 << 63 | 10, 60, 1_800_000_000_004),
]
CHANGE = ConfigurationChange(
    CONFIGURATION,
    MembersChange("add", "node-2", 4, (LEARNER,), "command-1", "somebody", "a reason").encode(),
)

MESSAGES: dict[str, dict[str, Any]] = {
    "raft": {
        "pre-vote request": raft_messages.PreVoteRequest(7, 100, 6),
        "pre-vote answer": raft_messages.PreVoteAnswer(7, 8, True),
        "vote request": raft_messages.VoteRequest(8, 100, 6, True),
        "vote answer": raft_messages.VoteAnswer(8, False),
        "append entries": raft_messages.AppendEntries(
            8,
            3,
            100,
            6,
            99,
            [raft_messages.WireEntry(8, EntryKind.COMMANDS, encode_commands(COMMANDS), 1500)],
        ),
        "append reply": raft_messages.AppendReply(8, 3, 101, 101),
        "append refusal": raft_messages.AppendRefusal(8, 3, 100, 50, 50, 5),
        "timeout now": raft_messages.TimeoutNow(8),
        "stale term": raft_messages.StaleTerm(9),
    },
    "forming": {
        "propose": forming_messages.Propose(DOMAIN, False, "a permit", "a digest", 500_000_000),
        "promise": forming_messages.Promise(DOMAIN, 11, FIRST_TOKEN, True),
        "decline": forming_messages.Decline(DOMAIN, "a reason"),
        "record": forming_messages.Record(FIRST),
        "recorded": forming_messages.Recorded(DOMAIN),
        "formed": forming_messages.Formed(DOMAIN),
    },
    "clock": {
        "probe": clock_messages.ClockProbe(1 << 40, None),
        "reply": clock_messages.ClockReply(
            1 << 40, 5, 1_800_000_000_000_000_000, 6, 1_800_000_000_000_000_001
        ),
    },
    "membership": {
        "join ask": membership_messages.JoinAsk(
            "node-2", 44, "new:5225", "new:6225", "new:7225", "command-1", "somebody", "a reason"
        ),
        "join answer": membership_messages.JoinAnswer(
            44, membership_messages.Verdict.NOT_LEADING, "node-1 leads", "node-1"
        ),
        "join taken": membership_messages.JoinTaken(44, "node-2", 4, DOMAIN, FIRST_TOKEN, 500_000_000),
        "join applied": membership_messages.JoinApplied(4, 120),
        "removed": membership_messages.Removed(2, 22, "node-2 has another voter"),
    },
    "leave": {
        "ask": membership_messages.LeaveAsk(2, 22, 8),
        "answer": membership_messages.LeaveAnswer(2, 22, 8, "not now"),
    },
    "entry": {"commands": COMMANDS, "change": CHANGE},
}
"""By frame kind (`entry`: the data of a log entry): what is said in it, by name."""

_ENCODERS: dict[str, Any] = {
    "raft": raft_messages.encode,
    "forming": forming_messages.encode_forming,
    "clock": clock_messages.encode,
    "membership": membership_messages.encode,
    "leave": membership_messages.encode,
}


def encoded(kind: str, message: Any) -> bytes:
    """As this program sends it to one of its own kind."""
    if kind == "entry":
        change = isinstance(message, ConfigurationChange)
        return raft_messages.encode_change(message) if change else encode_commands(message)
    return cast("bytes", _ENCODERS[kind](message))


def sample_state() -> ReplicatedState:
    """A domain's state after both sample entries."""
    domain = DomainFacts(DOMAIN, FIRST_TOKEN, 500_000_000, 250, 1_800_000_000_000)
    members = Members(RECORDS)
    state = ReplicatedState(
        domain, LockTable(FIRST_TOKEN), members, Base(1, 1, Configuration(MEMBERS)), 1_000
    )
    for index, entry in enumerate(MESSAGES["entry"].values(), 2):
        kind = EntryKind.CONFIGURATION if entry is CHANGE else EntryKind.COMMANDS
        state.apply(Entry(index, 8, kind, encoded("entry", entry), 5_000 * index))
    return state


class _Sent:
    """As much of a shell as a snapshot needs."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def elapsed_ns(self) -> int:
        return 1_000_000_000 + len(self.frames)

    def buffered(self, _link: object) -> int:
        return 0

    def send(self, _link: object, frame: bytes) -> None:
        self.frames.append(frame)

    def hang_up(self, _link: object) -> None: ...


def snapshot_frames(state: ReplicatedState) -> list[bytes]:
    """The frames by which a state travels to a new member, and its last word."""
    shell = _Sent()
    base = Base(state.applied_index, state.applied_term, CONFIGURATION)
    sender = snapshots.SnapshotSender(cast("Shell", shell), LEARNER.member, state, base, 64 << 20)
    sender.connected(Link("", inbound=False, purpose="snapshot"))
    for turn in range(10):
        sender.step(2_000_000_000 * (turn + 1))
    assert sender.all_sent
    return [*shell.frames, snapshots.encode(snapshots.Installed(base.index))]


class End:
    """One end of the sample handshake (`LinkHost`)."""

    def __init__(self, number: int) -> None:
        self.number = number

    def facts(self) -> LinkFacts:
        record = RECORDS[self.number - 1]
        return LinkFacts(
            record.place, record.node_id, record.incarnation, DOMAIN, "a digest", "a permit", "0.1.0"
        )

    def shows(self) -> Shows:
        return Shows(8, MEMBERS[0], 100)

    def mark(self) -> Mark:
        return {}

    def judge(self, _peer: object, _mark: object) -> None:
        return None

    def handshake(self) -> PeerHandshake:
        """Its side, with a nonce that is always the same."""
        nonce = hashlib.sha256(b"%d" % self.number).digest()
        if self.number == 1:
            return PeerHandshake(DIALLER, self, [SECRET], nonce, purpose="peer", to="node-2")
        return PeerHandshake(ACCEPTOR, self, [SECRET], nonce)


def handshake_frames() -> list[bytes]:
    """Hello, Welcome, Proof, Verdict."""
    dialler, acceptor = End(1).handshake(), End(2).handshake()
    said = [dialler.start()]
    said.append(acceptor.feed(said[-1]))
    said.append(dialler.feed(said[-1]))
    said.append(acceptor.feed(said[-1]))
    assert dialler.feed(said[-1]) == b""
    return said


def samples() -> dict[str, Any]:
    """Everything, binary as hex."""
    state = sample_state()
    return {
        "link format": FORMAT,
        "handshake": [frame.hex() for frame in handshake_frames()],
        "messages": {
            kind: {name: encoded(kind, message).hex() for name, message in named.items()}
            for kind, named in MESSAGES.items()
        },
        "snapshot": [frame.hex() for frame in snapshot_frames(state)],
        "checksum": state.checksum(),
        "replace.json": command_content(
            OperatorCommand(command_id="command-1", who="somebody", why="a reason")
        ).decode(),
    }


if __name__ == "__main__":
    json.dump(samples(), sys.stdout, indent=1, ensure_ascii=False)
    print()
