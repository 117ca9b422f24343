"""Whether grants come in the order in which they were asked for."""

from __future__ import annotations

from collections import deque


class Order:
    """The requests of one key that are waiting, in the order of asking."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._asked = 0
        self.overtaken = 0
        """Grants that came while an earlier request of the key still waited."""

    def asked(self) -> int:
        """A request is about to be made; its number."""
        number = self._asked
        self._asked = number + 1
        self._waiting.append(number)
        return number

    def granted(self, number: int) -> None:
        """The request of that number has its grant."""
        if self._waiting[0] == number:
            self._waiting.popleft()
        else:
            self._waiting.remove(number)
            self.overtaken += 1
