"""What the nodes of a benchmark say of their longest turns (`longest_turn_ms` in their status), watched from beside."""

from __future__ import annotations

import threading

from ticketing.cli.dev_cluster import DevCluster

LOOK_S = 4.0
"""A node remembers its longest turn for 10 s at least, so none is missed."""
FORGOTTEN_S = 21.0
"""After so long nothing of the time before is told any more."""


class TurnWatch:
    """Looks at every node every few seconds, in a thread. Keeps the longest turn of each, and the terms seen."""

    def __init__(self, cluster: DevCluster) -> None:
        self.terms: set[str] = set()
        self._cluster = cluster
        self._longest_ms: dict[str, float] = {}
        self._longest_cpu_ms: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TurnWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Looks at all nodes that answer."""
        for place, facts in self._cluster.statuses().items():
            process = facts["process"]
            for most, turn_ms in (
                (self._longest_ms, process["longest_turn_ms"]),
                (self._longest_cpu_ms, process["longest_turn_cpu_ms"]),
            ):
                most[place] = max(most.get(place, 0.0), turn_ms)
            if facts["role"] in ("leader", "follower"):
                self.terms.add(facts["raft"]["term"])

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def told(self) -> str:
        """One line for people. Where the machine ran others meanwhile the CPU time is less."""
        longest = max(self._longest_ms.values())
        cpu = max(self._longest_cpu_ms.values())
        places = "; ".join(
            f"{place} {self._longest_ms[place]:.1f} / {self._longest_cpu_ms[place]:.1f}"
            for place in sorted(self._longest_ms)
        )
        return f"longest turn {longest:.1f} ms, its CPU time at most {cpu:.1f} ms ({places})"
