"""The configurations that this log knows of, by the index at which each came into force (spec 9)."""

from __future__ import annotations

from ticketing.raft.types import Configuration, Member


class Configurations:
    """A configuration is in force from when its entry is appended and no longer when that is truncated.

    Invariants: indexes rise; the first one is at or before the log's base, so there is one for every index of
    the log. At most the committed one and one open change lie after the base in a healthy cluster.
    """

    __slots__ = ("_history", "incarnations", "newest", "newest_index")

    def __init__(self, index: int, configuration: Configuration) -> None:
        self._history: list[tuple[int, Configuration]] = [(index, configuration)]
        self.newest = configuration
        self.newest_index = index
        self.incarnations: dict[int, int] = {}
        """The incarnation by which each NodeId of any configuration here is known."""
        self._refresh()

    def at(self, index: int) -> Configuration:
        """The configuration in force where the log ends at `index`."""
        for since, configuration in reversed(self._history):
            if since <= index:
                return configuration
        raise AssertionError((index, self._history))

    def append(self, index: int, configuration: Configuration) -> None:
        """An entry with this configuration was appended."""
        assert index > self.newest_index, (index, self.newest_index)
        self._history.append((index, configuration))
        self._refresh()

    def truncate(self, first: int) -> None:
        """The log lost the entry `first` and all after it."""
        if self.newest_index < first:
            return
        while self._history[-1][0] >= first:
            self._history.pop()
        self._refresh()

    def compact(self, index: int) -> None:
        """`index` is the new base: forgets what was superseded by then."""
        history = self._history
        if len(history) == 1:
            return
        while len(history) > 1 and history[1][0] <= index:
            del history[0]
        self._refresh()

    def reset(self, index: int, configuration: Configuration) -> None:
        """A snapshot stands for the whole log."""
        self._history = [(index, configuration)]
        self._refresh()

    def rebase(self, index: int, configuration: Configuration) -> None:
        """A snapshot stands for the log up to `index`; what was appended after it stays."""
        self._history = [(index, configuration), *(item for item in self._history if item[0] > index)]
        self._refresh()

    def knows_otherwise(self, member: Member) -> bool:
        """Whether this NodeId is known by another incarnation."""
        known = self.incarnations.get(member[0])
        return known is not None and known != member[1]

    def _refresh(self) -> None:
        self.newest_index, self.newest = self._history[-1]
        self.incarnations = {
            member.node_id: member.incarnation
            for _, configuration in self._history
            for member in configuration.members()
        }
