"""The table "request by key state" of spec 5 as data: one line a cell, with the states in between that the
notes name.

`me` asks with owner 9; `a` (owner 1) holds where the key is held, `h` (owner 2) waits at the head.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """One request in one state."""

    request: str
    state: str
    at_once: str
    """What `me` is told before anything commits; empty: nothing yet."""
    proposed: str
    """What goes to Raft: `turn 0>me`, `turn a>h`, `turn a>-`, `extend`, `cancel`, `barrier`; empty: nothing.
    """
    me: str
    """What `me` has been told once everything is committed (and the queue is left alone)."""
    others: str
    """What the others have been told by then."""
    holder: str
    """Who holds the key then: a name, `-` for nobody."""


CELLS = (
    # acquire, owner in the ring
    Cell("acquire cancelled", "free", "T9", "", "T9", "", "-"),
    Cell("acquire cancelled", "free, waited, closed", "T9", "", "T9", "", "-"),
    Cell("acquire cancelled", "held", "T9", "", "T9", "", "a"),
    Cell("try cancelled", "free", "T9", "", "T9", "", "-"),
    Cell("acquire being cancelled", "free", "T9", "", "T9", "", "-"),
    # acquire, owner and lease of a grant in flight whose session ended
    Cell("acquire", "lost grant in flight", "", "", "A9", "", "me"),
    Cell("acquire", "lost grant in flight, waited", "", "", "A9", "", "me"),
    Cell("acquire", "lost hand-over in flight", "", "", "A9", "a:R1", "me"),
    Cell("try", "lost grant in flight", "", "", "A9", "", "me"),
    Cell("acquire longer", "lost grant in flight", "", "", "A9", "", "me anew"),
    Cell("try longer", "lost grant in flight", "T9", "", "T9", "", "-"),
    # acquire, owner = holder or waiter
    Cell("acquire as a", "held", "", "", "", "", "a"),
    Cell("acquire as a", "held by an ended session", "", "", "", "", "a"),
    Cell("acquire as h", "held, waited", "", "", "", "probe h", "a"),
    Cell("acquire as a", "grant in flight", "", "", "", "probe a,a:A1", "a"),
    Cell("acquire as a", "resend: held", "", "", "", "probe a", "a"),
    Cell("acquire as a", "resend: held by an ended session", "", "barrier", "A1", "", "a"),
    Cell("try as a", "resend: held by an ended session", "", "barrier", "A1", "", "a"),
    Cell("acquire longer as a", "resend: held by an ended session", "", "barrier", "A1", "", "a"),
    Cell("acquire as a", "resend: held from an earlier term", "", "barrier", "A1", "", "a"),
    # acquire, wait = 0
    Cell("try", "free", "", "turn 0>me", "A9", "", "me"),
    Cell("try", "free, closed", "B9", "", "B9", "", "-"),
    Cell("try", "free, waited, closed", "T9", "", "T9", "", "-"),
    Cell("try", "free, no room", "", "", "", "", "-"),
    Cell("try", "free, waited, no room", "T9", "", "T9", "", "-"),
    Cell("try", "held", "T9", "", "T9", "", "a"),
    Cell("try", "held, waited", "T9", "", "T9", "", "a"),
    Cell("try", "held, closed", "T9", "", "T9", "", "a"),
    Cell("try", "grant in flight", "T9", "", "T9", "a:A1", "a"),
    Cell("try", "hand-over in flight", "T9", "", "T9", "a:R1,h:A2", "h"),
    Cell("try", "extend in flight", "T9", "", "T9", "a:X1", "a"),
    Cell("try", "ending in flight", "", "", "A9", "a:R1", "me"),
    Cell("try", "ending in flight, closed", "", "", "B9", "a:R1", "-"),
    Cell("try", "ending in flight, waited", "T9", "", "T9", "a:R1,h:A2", "h"),
    # acquire, wait > 0
    Cell("acquire", "free", "", "turn 0>me", "A9", "", "me"),
    Cell("acquire", "free, closed", "", "", "", "", "-"),
    Cell("acquire", "free, waited, closed", "", "", "", "", "-"),
    Cell("acquire", "free, no room", "", "", "", "", "-"),
    Cell("acquire", "held", "", "", "", "", "a"),
    Cell("acquire", "held, waited", "", "", "", "", "a"),
    Cell("acquire", "held, at a bound", "B9", "", "B9", "", "a"),
    Cell("acquire", "grant in flight", "", "", "", "a:A1", "a"),
    Cell("acquire", "hand-over in flight", "", "", "", "a:R1,h:A2", "h"),
    Cell("acquire", "extend in flight", "", "", "", "a:X1", "a"),
    Cell("acquire", "ending in flight", "", "", "A9", "a:R1", "me"),
    # R with the holder's token
    Cell("release", "held", "", "turn a>-", "R1", "", "-"),
    Cell("release", "held, waited", "", "turn a>h", "R1", "h:A2", "h"),
    Cell("release", "held, waited, closed", "", "turn a>-", "R1", "", "-"),
    Cell("release", "held, no room for grants", "", "turn a>-", "R1", "", "-"),
    Cell("release", "held, no room", "", "", "", "", "a"),
    Cell("release", "extend in flight", "", "", "R1", "a:X1", "-"),
    Cell("release", "ending in flight", "", "", "N1", "a:R1", "-"),
    Cell("release", "expiry in flight", "", "", "N1", "", "-"),
    # X with the holder's token
    Cell("extend", "held", "", "extend", "X1", "", "a"),
    Cell("extend", "held, waited", "", "extend", "X1", "", "a"),
    Cell("extend", "held, closed", "", "extend", "X1", "", "a"),
    Cell("extend", "held, no room for grants", "", "extend", "X1", "", "a"),
    Cell("extend", "extend in flight", "", "", "X1", "a:X1", "a"),
    Cell("extend", "ending in flight", "", "", "N1", "a:R1", "-"),
    Cell("extend", "expiry in flight", "", "", "N1", "", "-"),
    # R / X with another token
    Cell("release other", "free", "", "barrier", "N7", "", "-"),
    Cell("release other", "free, waited, closed", "", "barrier", "N7", "", "-"),
    Cell("release other", "held", "", "barrier", "N7", "", "a"),
    Cell("release other", "grant in flight", "", "", "N7", "a:A1", "a"),
    Cell("extend other", "free", "", "barrier", "N7", "", "-"),
    Cell("extend other", "free, waited, closed", "", "barrier", "N7", "", "-"),
    Cell("extend other", "held", "", "barrier", "N7", "", "a"),
    Cell("extend other", "hand-over in flight", "", "", "N7", "a:R1,h:A2", "h"),
    # C on the session that carried the request, while it waits
    Cell("cancel mine", "free, waited, closed", "R9", "", "R9", "", "-"),
    Cell("cancel mine", "held", "R9", "", "R9", "", "a"),
    Cell("cancel mine", "held, waited", "R9", "", "R9", "", "a"),
    Cell("cancel mine", "hand-over in flight", "R9", "", "R9", "a:R1,h:A2", "h"),
    Cell("cancel my try", "free, no room", "R9", "", "R9", "", "-"),
    # C otherwise
    Cell("cancel", "free", "", "cancel", "N9", "", "-"),
    Cell("cancel", "held", "", "cancel", "N9", "", "a"),
    Cell("cancel a", "held", "", "cancel", "R1", "", "-"),
    Cell("cancel a", "held, waited", "", "cancel", "R1", "h:A2", "h"),
    Cell("cancel a", "held, waited, closed", "", "cancel", "R1", "", "-"),
    Cell("cancel a", "held, no room", "", "", "", "", "a"),
    Cell("cancel a", "grant in flight", "", "cancel", "R1", "a:A1", "-"),
    Cell("cancel a", "ending in flight", "", "cancel", "N1", "a:R1", "-"),
    Cell("cancel a", "extend in flight", "", "cancel", "R1", "a:X1", "-"),
    Cell("cancel h", "free, waited, closed", "", "cancel", "R2", "h:T2", "-"),
    Cell("cancel h", "held, waited", "", "cancel", "R2", "h:T2", "a"),
    Cell("cancel h", "hand-over in flight", "", "cancel", "R2", "a:R1,h:A2", "-"),
    Cell("cancel h twice", "held, waited", "", "cancel", "R2 R2", "h:T2", "a"),
    Cell("cancel mine asked twice", "held", "", "cancel", "T9 T9 R9", "", "a"),
)
