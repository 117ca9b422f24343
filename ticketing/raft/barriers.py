"""Read barriers of one lead: a majority round begun after the question came (Raft thesis, 6.4)."""

from __future__ import annotations

from collections import deque


class Barriers:
    """Barriers complete in the order of their begin: rounds and indexes never fall from one to the next."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[tuple[int, int, int]] = deque()

    def begin(self, identity: int, round_: int, index: int) -> int:
        """Waits for a majority's answer to `round_` and for `index` to be handed out; the barrier's id.

        A barrier that already waits for the same two is shared: one serves all who ask in one turn.
        """
        if self._pending and self._pending[-1][1:] == (round_, index):
            return self._pending[-1][0]
        self._pending.append((identity, round_, index))
        return identity

    def complete(self, round_: int, applied_index: int) -> list[int]:
        """Takes out those that a majority has answered and whose entries were handed out."""
        done: list[int] = []
        pending = self._pending
        while pending and pending[0][1] <= round_ and pending[0][2] <= applied_index:
            done.append(pending.popleft()[0])
        return done

    def drop(self) -> list[int]:
        """Takes out all: the lead is over."""
        lost = [identity for identity, _, _ in self._pending]
        self._pending.clear()
        return lost

    def __len__(self) -> int:
        return len(self._pending)
