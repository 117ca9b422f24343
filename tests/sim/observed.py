"""The node as it is, with everything shown that Raft tells it to do, as messages and not as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tests.sim.shell import SimShell
from ticketing.node.loop_turn import LoopTurn
from ticketing.node.node import Node
from ticketing.node.settings import NodeSettings
from ticketing.raft.core import Output
from ticketing.raft.types import Entry

if TYPE_CHECKING:
    from tests.sim.process import Process


class Observer(Protocol):
    """Who watches all processes of a run."""

    def carrying_out(self, process: Process, output: Output) -> None:
        """Raft's output of this turn, or of one pass of it; nothing of it has happened yet."""
        ...

    def applied(self, process: Process, entry: Entry) -> None:
        """One entry of it has been applied."""
        ...

    def carried_out(self, process: Process) -> None:
        """All of it has happened."""
        ...

    def after_turn(self, process: Process) -> None:
        """A turn is over."""
        ...


class ObservedTurn(LoopTurn):
    """What Raft tells the node to do, shown before and after."""

    def __init__(self, node: Node, now_ns: int, process: Process, observer: Observer) -> None:
        super().__init__(node, now_ns)
        self._process = process
        self._observer = observer

    def carry_out(self, output: Output, now_ns: int) -> None:
        self._observer.carrying_out(self._process, output)
        super().carry_out(output, now_ns)
        self._observer.carried_out(self._process)

    def _work(self, now_ns: int) -> None:
        self._process.node.worked = True
        super()._work(now_ns)

    def _apply(self, entries: list[Entry], now_ns: int) -> None:
        for entry in entries:
            super()._apply([entry], now_ns)
            self._observer.applied(self._process, entry)


class ObservedNode(Node):
    """See the module. It changes nothing."""

    def __init__(self, settings: NodeSettings, shell: SimShell, process: Process, observer: Observer) -> None:
        super().__init__(settings, shell)
        self.loop_turn = ObservedTurn(self, self.loop_turn.seen_ns, process, observer)
        self.worked = False
        """Something was to be decided, sent or answered in this turn. Whoever watches takes it back."""
        self.woken_by_time = False
        """The present turn began with a tick: nothing had arrived. Whoever watches takes it back."""

    def tick(self) -> None:
        if not self.loop_turn._begun:
            self.woken_by_time = True
        super().tick()
