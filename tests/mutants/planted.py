"""The planted bugs: small mistakes in the consensus core, the lock desk and the node that the simulator must find.

Each is the exact text of a few lines (found once in its file), the text that takes its place, what the mistake
is, and the rule that should catch it. They are mistakes that somebody could make, and that a review could miss.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """One planted bug."""

    name: str
    file: str
    """Below the project's folder."""
    old: str
    new: str
    why: str
    """What is wrong with it."""
    rule: str
    """What should show it: rules of `docs/simulation.md`, or assertions of the code itself. For people."""


MUTATIONS: tuple[Mutation, ...] = (
    # --- consensus: votes and terms
    Mutation(
        "vote-twice",
        "ticketing/raft/election.py",
        "replica.vote == sender or (replica.vote is None and self.leader is None)",
        "self.leader is None",
        "a vote is given to everybody who asks in a term",
        "one vote a term",
    ),
    Mutation(
        "vote-for-shorter-log",
        "ticketing/raft/replica.py",
        "return last_term < mine or (last_term == mine and last_index < log.last_index)",
        "return last_term < mine",
        "the length of the log is not compared where the last terms are equal",
        "leader completeness",
    ),
    Mutation(
        "minority-elects",
        "ticketing/raft/quorum.py",
        "needed = len(voters) // 2 + 1",
        "needed = len(voters) // 2",
        "half of the voters, rounded down, elect a leader",
        "election safety",
    ),
    Mutation(
        "old-leader-followed",
        "ticketing/raft/core.py",
        "            case AppendEntries():\n                if message.term < replica.term:",
        "            case AppendEntries():\n                if message.term < 0:",
        "entries of a leader whose term is over are taken",
        "log matching",
    ),
    Mutation(
        "pre-vote-ignores-lease",
        "ticketing/raft/election.py",
        "            and not self._leader_is_alive(now_ns)\n",
        "            and self.lead is None\n",
        "a pre-vote is granted while the leader is heard",
        "no pre-vote against a living leader",
    ),
    # --- consensus: replication and commitment
    Mutation(
        "minority-commits",
        "ticketing/raft/quorum.py",
        "return sorted(values)[(len(values) - 1) >> 1]",
        "return sorted(values)[(len(values) + 1) >> 1 if len(values) > 1 else 0]",
        "one fewer than a majority commits, passes barriers and keeps a lead",
        "state machine safety",
    ),
    Mutation(
        "sent-is-acknowledged",
        "ticketing/raft/replication.py",
        "            progress.next = last + 1\n",
        "            progress.next, progress.match = last + 1, last\n",
        "what was sent is counted as stored",
        "state machine safety",
    ),
    Mutation(
        "acknowledged-before-appended",
        "ticketing/raft/replica.py",
        "self._store(previous, entries, now_ns)",
        "self._store(previous, entries[:-1], now_ns)",
        "a follower acknowledges the last entry of an append without keeping it",
        "log matching",
    ),
    Mutation(
        "previous-entry-not-compared",
        "ticketing/raft/replica.py",
        "elif not log.contains(previous, message.prev_term):",
        "elif previous > log.last_index:",
        "a follower appends behind an entry that is not the leader's",
        "log matching",
    ),
    Mutation(
        "conflict-kept",
        "ticketing/raft/replica.py",
        "if log.term_at(index) != entry.term:",
        "if log.term_at(index) > entry.term:",
        "an entry that conflicts with the leader's stays",
        "log matching",
    ),
    Mutation(
        "earlier-term-committed-by-counting",
        "ticketing/raft/lead.py",
        "if index <= replica.commit_index or index < self.term_start_index:",
        "if index <= replica.commit_index:",
        "an entry of an earlier term is committed because a majority has it (figure 8)",
        "leader completeness",
    ),
    # --- consensus: members
    Mutation(
        "joint-needs-new-majority-only",
        "ticketing/raft/quorum.py",
        "        return min(index, reached(outgoing))\n",
        "        return index\n",
        "a joint configuration decides without a majority of the old voters",
        "a majority has what is committed",
    ),
    Mutation(
        "learner-counts",
        "ticketing/raft/replication.py",
        "        self._voters = [self.members[member] for member in configuration.voters]\n",
        "        counted = (configuration.learners + configuration.voters)[: len(configuration.voters)]\n"
        "        self._voters = [self.members[member] for member in counted]\n",
        "a learner counts in place of a voter",
        "a majority has what is committed",
    ),
    Mutation(
        "removed-voter-stays",
        "ticketing/raft/membership.py",
        "    return Configuration(configuration.voters, learners=configuration.learners)\n",
        "    voters = tuple(dict.fromkeys(configuration.voters + configuration.outgoing))\n"
        "    return Configuration(voters, learners=configuration.learners)\n",
        "the voter whose place was taken goes on counting",
        "3 or 5 voters",
    ),
    Mutation(
        "joint-left-before-decided",
        "ticketing/raft/lead.py",
        "        if configurations.newest_index > replica.commit_index:\n            return\n        newest",
        "        newest",
        "the final configuration follows before the joint one is committed",
        "assertions of the core",
    ),
    Mutation(
        "lagging-learner-promoted",
        "ticketing/node/replacement.py",
        "if seen.match < index or seen.answered_ns <= at_ns or not seen.linked:",
        "if not seen.linked:",
        "a learner becomes a voter before it has caught up",
        "no lagging voter",
    ),
    Mutation(
        "incarnation-forgotten",
        "ticketing/node/node.py",
        "self.incarnation = int.from_bytes(shell.random_bytes(8)) >> 1 | 1",
        "self.incarnation = int.from_bytes(settings.place.encode()[-8:])",
        "a restarted process comes back as the one that it was",
        "assertions of the core",
    ),
    # --- leases and clocks
    Mutation(
        "expires-early",
        "ticketing/locks/table.py",
        "stamped_until_ns = now_ns - lease * SECOND_NS",
        "stamped_until_ns = now_ns - lease * SECOND_NS * 9 // 10",
        "a lease ends after nine tenths of it",
        "one holder",
    ),
    Mutation(
        "extension-not-counted",
        "ticketing/locks/table.py",
        "        held.stamp_ns = max(held.stamp_ns, stamp_ns)\n",
        "",
        "an extended lease goes on counting from the grant",
        "one holder",
    ),
    Mutation(
        "stamp-before-grant",
        "ticketing/raft/replica.py",
        "stamp = now_ns - entry.age_us * 998",
        "stamp = now_ns - entry.age_us * 1010",
        "the age of an entry that is sent again is taken for more than it is",
        "no stamp before its proposal",
    ),
    Mutation(
        "snapshot-stamp-before-grant",
        "ticketing/locks/restore.py",
        "own_stamp_ns = self._receipt_ns - age_ns * 998 // 1000",
        "own_stamp_ns = self._receipt_ns - age_ns * 1010 // 1000",
        "the age of a lease in a snapshot is taken for more than it is",
        "no stamp before its grant",
    ),
    Mutation(
        "gate-ignored",
        "ticketing/node/lead.py",
        "        if self._settings.standalone:\n            return True\n",
        "        if self.serving:\n            return True\n",
        "keys are granted however far the wall clocks are apart",
        "no grant while the clocks are unproven",
    ),
    Mutation(
        "error-not-added",
        "ticketing/node/clock_health.py",
        "return abs(difference_ns) + error_ns <= self.delta_ns // 2 and",
        "return abs(difference_ns) - error_ns <= self.delta_ns and",
        "a wall clock that may be anywhere within delta counts as near",
        "no grant while the clocks are unproven",
    ),
    Mutation(
        "open-gate-outlives-a-step",
        "ticketing/node/clock_health.py",
        "            and known.low_ns <= wall_ns - now_ns <= known.high_ns\n",
        "",
        "an open gate is kept although the wall clock has moved",
        "no grant while the clocks are unproven",
    ),
    Mutation(
        "old-sample-counts",
        "ticketing/node/peer_clock.py",
        "SAMPLE_VALID_NS = 3 * S",
        "SAMPLE_VALID_NS = 300 * S",
        "a wall clock that was measured long ago still counts",
        "no grant while the clocks are unproven",
    ),
    Mutation(
        "minority-opens-the-gate",
        "ticketing/node/clock_health.py",
        "missing = len(voters) // 2 + 1",
        "missing = len(voters) // 2",
        "one clock fewer than a majority opens the gate",
        "no grant while the clocks are unproven",
    ),
    # --- the lead of a node
    Mutation(
        "serves-before-own-entry",
        "ticketing/node/leading.py",
        "serving = raft.confirmed and state.applied_term == raft.term and not quarantine",
        "serving = raft.confirmed and not quarantine",
        "a new leader serves before the first entry of its term is applied",
        "assertions of the desk",
    ),
    Mutation(
        "answers-V-for-what-was-proposed",
        "ticketing/locks/desk.py",
        "            if state.batch is self._batch:\n",
        "            if state.batch is not None:\n",
        "a leader that stands down calls what is in its log never proposed",
        "V although proposed",
    ),
    # --- the desk and the table
    Mutation(
        "free-between-release-and-grant",
        "ticketing/locks/turns.py",
        "        waiter = None\n        if self._gate_open and state.first is not None:\n",
        "        waiter = None\n        if self._gate_open and state.once is not None:\n",
        "a release frees the key, and the head of the queue is granted it afterwards",
        "no key free in a hand-over",
    ),
    Mutation(
        "second-in-queue",
        "ticketing/locks/turns.py",
        "waiter.owner not in cancelling:\n                return waiter\n",
        "waiter.owner not in cancelling:\n                return waiter.behind or waiter\n",
        "the second in the queue is served first",
        "first come, first served",
    ),
    Mutation(
        "T-for-a-request-in-flight",
        "ticketing/locks/turns.py",
        "            if waiter.state is not None:\n                self._waiters.remove(waiter)\n",
        "",
        "a request stays in the queue while its grant is in flight, and its wait may end there",
        "uncorrelated reply",
    ),
    Mutation(
        "releases-for-anybody",
        "ticketing/locks/turns.py",
        "        if kind == RELEASE:\n            if held is not None and held.token == ask.number:\n",
        "        if kind == RELEASE:\n            if held is not None:\n",
        "a release with a former token ends the present ownership",
        "one holder",
    ),
    Mutation(
        "cancel-leaves-holder",
        "ticketing/locks/turns.py",
        "if held is not None and held.owner == ask.number:\n                return self._end",
        "if held is None and state.next is not None:\n                return self._end",
        "a cancel does not release what its owner holds, and says that it held nothing",
        "whose cancel is answered holds nothing",
    ),
    Mutation(
        "late-copy-granted",
        "ticketing/locks/table.py",
        "                self.ring.extend(command.owners)\n",
        "                self.ring.extend(command.owners[1:])\n",
        "the first owner of a cancel entry is not remembered as cancelled",
        "a cancelled owner gets nothing",
    ),
    Mutation(
        "token-twice",
        "ticketing/locks/table.py",
        "self.next_token = token + 1",
        "self.next_token = token + (held is None)",
        "a key that is handed over takes the token of the next grant along",
        "a token once",
    ),
    Mutation(
        "wait-too-short",
        "ticketing/locks/waiting.py",
        "self.due_ns = read_ns + wait * SECOND_NS if wait else NEVER_NS",
        "self.due_ns = read_ns + (wait - 1) * SECOND_NS if wait else NEVER_NS",
        "a wait ends a second early",
        "T too early",
    ),
    # --- found by what is judged at the first step of a mistake, or by the themes that bring it about
    Mutation(
        "stale-answers-counted",
        "ticketing/raft/core.py",
        "elif lead is None or message.term < term:",
        "elif lead is None:",
        "acknowledgements of an earlier lead count in this one",
        "state machine safety",
    ),
    Mutation(
        "commit-past-what-was-checked",
        "ticketing/raft/replica.py",
        "commit = min(match, message.commit)",
        "commit = min(log.last_index, message.commit)",
        "a follower commits entries of its own that the leader has not vouched for",
        "state machine safety",
    ),
    Mutation(
        "snapshot-keeps-conflicts",
        "ticketing/raft/replica.py",
        "if self.log.contains(base.index, base.term):",
        "if base.index <= self.log.last_index:",
        "after a snapshot the rest of the log stays even where it conflicts",
        "log matching",
    ),
    Mutation(
        "truncated-configuration-in-force",
        "ticketing/raft/replica.py",
        "                    self.configurations.truncate(index)\n",
        "                    self.configurations.compact(self.log.base_index)\n",
        "a configuration stays in force when its entry is truncated",
        "assertions of the core",
    ),
    Mutation(
        "answers-after-a-gap",
        "ticketing/raft/core.py",
        "            lead.doubt()",
        "            pass",
        "a leader whose loop stood still answers before a majority has confirmed it",
        "no answer after a gap without a majority",
    ),
    Mutation(
        "barrier-without-round",
        "ticketing/raft/lead.py",
        "return self.barriers.begin(identity, self.replication.round + 1, index)",
        "return self.barriers.begin(identity, 0, index)",
        "a leader answers from its state without asking whether it still leads",
        "N although held",
    ),
    # --- what is left undone, and done for nothing
    Mutation(
        "overdue-looked-at-all-the-time",
        "ticketing/locks/desk.py",
        "            self._next_look_ns = now_ns + EXPIRY_LOOK_NS\n",
        "            self._next_look_ns = now_ns\n",
        "a leader looks at leases whose ends are under way as often as it can",
        "no idle turns",
    ),
    Mutation(
        "rates-not-compared",
        "ticketing/node/clock_health.py",
        " and clock.rate_outside(now_ns) is not True\n",
        "\n",
        "the gate stays open although elapsed clocks are proved to run at other rates",
        "no grant while the clocks are unproven",
    ),
    Mutation(
        "own-rate-never-wrong",
        "ticketing/node/clock_health.py",
        "return self._rate_against(now_ns, me, voters) or self._rate_against(now_ns, me, outgoing)",
        "return False",
        "a leader whose elapsed clock is proved wrong lets leases end by it",
        "no expiry by a wrong clock",
    ),
    Mutation(
        "expiry-never",
        "ticketing/locks/desk.py",
        "expiring) if limit > 0 else []",
        "expiring) if limit > EXPIRIES_PER_SLICE else []",
        "no lease ever ends by itself",
        "a lease ends",
    ),
    Mutation(
        "undeliverable-kept",
        "ticketing/locks/turns.py",
        "            state.doomed = token\n        elif waiter.op",
        '            self.counters["undeliverable"] += 1\n        elif waiter.op',
        "what is granted to a session that is over by then is kept until its lease ends",
        "what nobody received is released",
    ),
    Mutation(
        "less-log-kept",
        "ticketing/raft/core.py",
        "base = log.base_keeping(upto, keep)",
        "base = log.base_keeping(upto, keep >> 3)",
        "where a log is compacted an eighth of what is promised stays",
        "bounded log",
    ),
    Mutation(
        "gate-opens-without-pump",
        "ticketing/locks/desk.py",
        "        if self._gate_open:\n            self._settle_kept(self._grants_kept",
        "        if self._gate_open and self._room_queue:\n            self._settle_kept(self._grants_kept",
        "who waits for a free key since the gate was closed is not looked at when it opens",
        "nobody is forgotten",
    ),
    Mutation(
        "room-without-pump",
        "ticketing/locks/proposing.py",
        "            self._grants_short = self._ends_short = False\n        elif",
        "            self._ends_short = False\n        elif",
        "grants that were kept for want of room are not looked at when there is some",
        "nobody is forgotten",
    ),
    Mutation(
        "session-end-keeps-waiters",
        "ticketing/locks/desk.py",
        "        self._leaving.append(session)\n        self._drop_leaving()\n",
        "        if unhanded:\n            self._leaving.append(session)\n        self._drop_leaving()\n",
        "the waiters of a session that is over go on counting",
        "nobody is forgotten",
    ),
    Mutation(
        "ending-without-pump",
        "ticketing/locks/turns.py",
        "            else:\n                touched[state] = None\n        self._settle_touched",
        "            elif turn.owner or state.asides or state.doomed:\n"
        "                touched[state] = None\n        self._settle_touched",
        "who came while a key was being given up is not looked at when it is free",
        "nobody is forgotten",
    ),
    Mutation(
        "snapshot-without-saved-records",
        "ticketing/locks/table.py",
        "        for walk in self.held.walks:\n            walk.extending(held)\n",
        "",
        "a snapshot tells of a key as it was extended after the snapshot's index",
        "table equality",
    ),
)
FAST: tuple[str, ...] = (
    "minority-commits",
    "acknowledged-before-appended",
    "gate-ignored",
    "second-in-queue",
    "token-twice",
)
"""Found within the first seeds; the tests hunt for these every time."""
