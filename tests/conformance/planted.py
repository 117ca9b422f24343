"""Faults planted in the Python library, one at a time: the conformance list has to notice each.

`python -m tests.conformance.planted [NAME...]` plants them in a copy of the tree and plays the scripted scenarios.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.conformance.library import PROJECT

SCRIPTED = "python and not clusters"
"""The scenarios without real nodes."""


class Planted(NamedTuple):
    """One fault."""

    name: str
    file: str
    """Below the project's folder."""
    old: str
    new: str
    why: str
    """What is wrong with it."""


PLANTED = (
    Planted(
        "silence",
        "ticketing/client/session.py",
        "SILENCE_NS = 10 * SECOND",
        "SILENCE_NS = 60 * SECOND",
        "a silent session is kept for a minute",
    ),
    Planted(
        "answer-deadline",
        "ticketing/client/session.py",
        "ANSWER_NS = 5 * SECOND",
        "ANSWER_NS = 40 * SECOND",
        "an acquire without an answer is waited for 40 s",
    ),
    Planted(
        "disowned-deadline",
        "ticketing/client/session.py",
        "DISOWNED_NS = 2 * SECOND",
        "DISOWNED_NS = 30 * SECOND",
        "what another leader was named for is waited for 30 s",
    ),
    Planted(
        "cancel-deadline",
        "ticketing/client/session.py",
        "CANCEL_NS = 3 * SECOND",
        "CANCEL_NS = 30 * SECOND",
        "an unanswered cancel closes nothing for 30 s",
    ),
    Planted(
        "try-deadline",
        "ticketing/client/session.py",
        "TRY_NS = 3 * SECOND // 2",
        "TRY_NS = 6 * SECOND",
        "one try of a release takes 6 s",
    ),
    Planted(
        "step-deadline",
        "ticketing/client/session.py",
        "STEP_NS = 3 * SECOND",
        "STEP_NS = 20 * SECOND",
        "each step of connecting has 20 s",
    ),
    Planted(
        "waited-unchecked",
        "ticketing/client/session.py",
        "            waited_ms * MILLISECOND * 1000 > (now - request.sent_ns) * 1003 + 2000 * MILLISECOND\n",
        "            False\n",
        "a grant may have waited longer than it can have",
    ),
    Planted(
        "grant-unwanted-kept",
        "ticketing/client/session.py",
        "            self._keeper.grant_unwanted(self, request)",
        "            pass",
        "a grant for a request that was given up is not given back",
    ),
    Planted(
        "uncorrelated-passed",
        "ticketing/client/session.py",
        "    def _uncorrelated(self, opcode: int, key: bytes) -> None:\n",
        "    def _uncorrelated(self, opcode: int, key: bytes) -> None:\n        return\n",
        "answers to what was never sent are passed over",
    ),
    Planted(
        "wait-rounded-down",
        "ticketing/client/session.py",
        "wait = -((now - wait) // SECOND)",
        "wait = (wait - now) // SECOND",
        "what is left of the wait is rounded down",
    ),
    Planted(
        "published-session-kept",
        "ticketing/client/session.py",
        "        if not self.extended:\n"
        '            self.close("closed", "a request was cancelled")\n'
        "            return\n",
        "        if not self.extended:\n            return\n",
        "a cancelled request at a published server is forgotten",
    ),
    Planted(
        "no-cancel-for-the-lost",
        "ticketing/client/cluster.py",
        "                self.errands.run(Errand(CANCEL, request.owner",
        "                False and self.errands.run(Errand(CANCEL, request.owner",
        "requests lost with their session are not cancelled",
    ),
    Planted(
        "unlisted-without-tls",
        "ticketing/client/cluster.py",
        "        if not verified(self.tls) or",
        "        if",
        "addresses that were not configured are dialled without TLS",
    ),
    Planted(
        "unlisted-unbounded",
        "ticketing/client/cluster.py",
        "UNLISTED_MAX = 8",
        "UNLISTED_MAX = 80",
        "80 addresses that were not configured are dialled",
    ),
    Planted(
        "try-asked-for-ever",
        "ticketing/client/acquire.py",
        "            if not wait_ns:\n"
        '                raise TicketError(TicketErrorKind.NOT_CONNECTED, "no node that was '
        'asked leads")\n',
        "",
        "a try without wait is asked again after every V",
    ),
    Planted(
        "later-of-both-ends",
        "ticketing/client/acquire.py",
        "    return min(by_request, by_answer)",
        "    return max(by_request, by_answer)",
        "the later of both bounds is the conservative end",
    ),
    Planted(
        "waited-counts-twice",
        "ticketing/client/acquire.py",
        "waited_ms * MILLISECOND) * 998 // 1000",
        "waited_ms * MILLISECOND * 2) * 998 // 1000",
        "what was waited counts twice",
    ),
    Planted(
        "insufficient-kept",
        "ticketing/client/acquire.py",
        "        _give_back(cluster, request)\n"
        "        raise TicketError(\n"
        "            TicketErrorKind.INSUFFICIENT",
        "        raise TicketError(\n            TicketErrorKind.INSUFFICIENT",
        "a grant with too little left is not given back",
    ),
    Planted(
        "asked-again-anywhere",
        "ticketing/client/acquire.py",
        "        request.named = True\n",
        "",
        "after a V any node is asked",
    ),
    Planted(
        "no-pause-between-vs",
        "ticketing/client/acquire.py",
        "RETRY_MIN_NS = 10 * MILLISECOND",
        "RETRY_MIN_NS = 0",
        "no pause between the Vs",
    ),
    Planted(
        "latest-extension-counts",
        "ticketing/client/pending.py",
        "        moment = tries[0][1]",
        "        moment = tries[-1][1]",
        "an extension counts from the latest unanswered one",
    ),
    Planted(
        "extension-revives",
        "ticketing/client/ticket.py",
        "        if self._is_lost():\n            # The end was seen",
        "        if False:\n            # The end was seen",
        "an extension answered after the end revives the ticket",
    ),
    Planted(
        "not-held-not-lost",
        "ticketing/client/ticket.py",
        "        elif outcome == NOT_HELD:\n            self._result = False\n            self._lost = True",
        "        elif outcome == NOT_HELD:\n            self._result = False",
        "a release answered N leaves the ticket alive",
    ),
    Planted(
        "date-far-ahead",
        "ticketing/client/domain.py",
        "AHEAD_MAX_S = 60 *",
        "AHEAD_MAX_S = 600 *",
        "a domain dated 600 days ahead is followed",
    ),
    Planted(
        "same-first-token",
        "ticketing/client/domain.py",
        "        elif first_token == self._first_token:\n"
        '            self.reason = f"the domain {domain} has the same first token as {self.current}"\n'
        "            return Verdict.REFUSED\n",
        "",
        "another domain of the same first token is followed",
    ),
    Planted(
        "standalone-preferred",
        "ticketing/client/domain.py",
        "(not banner.standalone, first_token) < (not self._standalone, self._first_token)",
        "first_token < self._first_token",
        "a standalone node is preferred for its number",
    ),
    Planted(
        "errands-for-ever",
        "ticketing/client/release.py",
        "ERRAND_NS = 5 * SECOND",
        "ERRAND_NS = 50 * SECOND",
        "releases and cancels are tried for 50 s",
    ),
    Planted(
        "release-in-a-former-domain",
        "ticketing/client/release.py",
        "            self.answered(errand, NOT_HELD)\n            return\n        session",
        "            pass\n        session",
        "a release of a former domain is sent to the next one",
    ),
    Planted(
        "no-back-off",
        "ticketing/client/connection.py",
        "BACKOFF_MAX_S = 3.2",
        "BACKOFF_MAX_S = 0.1",
        "tries to connect are 0.1 s apart",
    ),
    Planted(
        "lease-rounded-down",
        "ticketing/client/arguments.py",
        "    return -(-amount_ns // SECOND)",
        "    return amount_ns // SECOND or 1",
        "leases are rounded down",
    ),
    Planted(
        "budget-above-the-lease",
        "ticketing/client/arguments.py",
        "    if amount > lease_s * SECOND:",
        "    if amount > 250 * SECOND:",
        "a budget above the lease is taken",
    ),
    Planted(
        "short-nonce",
        "ticketing/protocol/handshake.py",
        "NONCE_CHARS_MIN = 16",
        "NONCE_CHARS_MIN = 8",
        "a nonce of 8 characters is answered",
    ),
    Planted(
        "dropped-ticket-kept",
        "ticketing/client/broker.py",
        "            cluster.loop.call_soon_threadsafe(cluster.compensate, token, key, domain)",
        "            pass",
        "a dropped ticket is not released",
    ),
    Planted(
        "close-does-not-drain",
        "ticketing/client/cluster.py",
        "DRAIN_S = 5.0",
        "DRAIN_S = 0.0",
        "closing does not wait for releases",
    ),
    Planted(
        "left-unwritten",
        "ticketing/client/cluster.py",
        "            session.flush()\n",
        "            pass\n",
        "what is given back in the turn in which its broker is left is not written",
    ),
    Planted(
        "owners-by-address",
        "ticketing/client/session.py",
        "owner = item.owner = next(drawn)[0] | OWNER_TOP_BIT",
        "owner = item.owner = OWNER_TOP_BIT | (id(item) & 0xffffff)",
        "owners are no random numbers",
    ),
)


def noticed_by(fault: Planted, root: Path) -> list[str]:
    """The scenarios that fail with it, in a copy of the tree that is as before on return."""
    path = root / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1, f"{fault.name}: its text is not in {fault.file} once"
    path.write_text(text.replace(fault.old, fault.new))
    try:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--tb=no",
                "tests/conformance",
                "-k",
                SCRIPTED,
            ],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(text)
    return re.findall(r"FAILED .*\[(.*)-python\]", ended.stdout)


def main() -> int:
    """Plants those that are named, or all; 1 where one was not noticed."""
    chosen = [fault for fault in PLANTED if not sys.argv[1:] or fault.name in sys.argv[1:]]
    missed = 0
    with TemporaryDirectory(prefix="planted-") as name:
        root = Path(name)
        for part in ("ticketing", "tests", "saro_ticketing", "docs"):
            shutil.copytree(PROJECT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "pyproject.toml", root)
        for fault in chosen:
            found = noticed_by(fault, root)
            missed += not found
            print(f"{fault.name}: {fault.why}: {', '.join(found) or 'NOT NOTICED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
