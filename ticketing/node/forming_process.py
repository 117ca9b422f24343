"""What a process knows while domains form, and what it has recorded (spec 9, Forming): common to proposer and
others.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ticketing.node.first_state import FirstState
from ticketing.node.forming_messages import FormingMessage
from ticketing.node.handshake import LinkPeer
from ticketing.node.settings import NodeSettings, S
from ticketing.raft.types import MS

RELEASE_MS = 1_767_225_600_000
"""2026-01-01: no domain of this program is dated before it."""

RESEND_NS = 500 * MS
"""What got no answer is said again after this long."""

LEADERLESS_NS = 30 * S
"""A member that has heard of no leader for this long says so, and may leave its domain for a new one."""


class FormingHost(Protocol):
    """What the forming asks of its node."""

    def random_bytes(self, count: int) -> bytes:
        """From the system's random source."""
        ...

    def clock_within(self, place: str) -> bool | None:
        """Whether that place's wall clock is within Δ of this one's; None: not known."""
        ...

    def leader_alive(self) -> bool:
        """Whether this process leads its domain or knows a living leader of it."""
        ...

    def domain(self) -> str:
        """Id of the domain that this process is a member of, formed or rejoined, or empty."""
        ...


class FormingOutput(NamedTuple):
    """What the node has to do now, in this order."""

    drop: bool
    """Leave the present domain at once and for good: no vote, no answer, no grant any more. Comes with
    `store`.
    """
    store: FirstState | None
    """Write this durably, then call `stored`."""
    messages: list[tuple[int, FormingMessage]]
    """To send, each to the process of that incarnation; what cannot be sent may be dropped."""
    formed: FirstState | None
    """The domain exists: this process is its member and may vote and campaign."""
    notes: list[str]
    """For the log."""


class FormingProcess:
    """One process: who is up, what hinders, what is recorded, and the output gathered so far.

    Invariant: `recorded` names the only domain that this process may act in, from before it is stored until
    another first state takes its place.
    """

    def __init__(self, settings: NodeSettings, incarnation: int, host: FormingHost, now_ns: int) -> None:
        assert not settings.standalone
        assert len(settings.places) > 1, settings.places
        self.settings = settings
        self.incarnation = incarnation
        self.host = host
        self.others = [place.name for place in settings.places if place.name != settings.place]
        assert len(self.others) == len(settings.places) - 1, settings.place
        self.wall_ms = 0
        """The wall clock as it was last handed in."""
        self.earlier = settings.earlier_first_token
        """The greatest first token recorded in this folder, 0 for none."""
        self.recorded: FirstState | None = None
        """The newest first state recorded in this process life."""
        self.spent = bool(settings.earlier_domain)
        """This folder holds a record, which voids the permit beside it."""
        self.storing = False
        """`recorded` is not on disk yet: nothing is answered for it."""
        self.formed = False
        """All are known to have recorded `recorded`."""
        self.leaderless_ns = 0
        """For how long this process, a member, has heard of no leader."""
        self._up: dict[str, dict[int, LinkPeer]] = {place: {} for place in self.others}
        """Who is up at each other place, by incarnation. More than one is a fault outside, and forms nothing.
        """
        self._observed_ns = now_ns
        self.output = FormingOutput(drop=False, store=None, messages=[], formed=None, notes=[])

    # --- who is up

    def link_up(self, peer: LinkPeer) -> None:
        """A process of another place is there."""
        if peer.place in self._up:
            self._up[peer.place][peer.facts.incarnation] = peer

    def link_down(self, peer: LinkPeer) -> None:
        """It is not any more."""
        if peer.place in self._up:
            self._up[peer.place].pop(peer.facts.incarnation, None)

    def peer(self, place: str) -> LinkPeer | None:
        """The one process that is up at a place."""
        up = self._up[place]
        return next(iter(up.values())) if len(up) == 1 else None

    def peers(self) -> list[LinkPeer]:
        """The processes up at other places, in configured order."""
        return [peer for up in self._up.values() for peer in up.values()]

    # --- what hinders

    @property
    def member(self) -> bool:
        """Whether this process belongs to a domain: formed, half formed, or rejoined."""
        return self.recorded is not None or bool(self.host.domain())

    @property
    def permit(self) -> str:
        """This process's valid permit, or empty; see `Forming.permit`."""
        return "" if self.spent else self.settings.permit

    def own_obstacles(self, *, operator: bool) -> list[str]:
        """Why this process itself cannot take part now, by an operator's `form` or by a permit."""
        found = []
        if self.wall_ms < RELEASE_MS:
            found.append("its clock stands before the release of the program")
        if self.storing:
            found.append("is writing a first state")
        if operator:
            if self.host.leader_alive():
                found.append("has a living leader")
            elif self.member and self.leaderless_ns < LEADERLESS_NS:
                found.append(f"had a leader, or recorded a domain, within the last {LEADERLESS_NS // S} s")
        elif self.member:
            found.append("is a member of a domain")
        elif not self.permit:
            found.append("has no valid permit")
        return found

    def seen_obstacles(self) -> list[str]:
        """What this process sees amiss with other places, each as `place: what`."""
        found = []
        own = self.settings.place
        for place, up in self._up.items():
            if len(up) != 1:
                found.append(
                    f"{place}: more than one process is up" if up else f"{place}: is not connected with {own}"
                )
                continue
            (peer,) = up.values()
            if peer.facts.cluster != self.settings.cluster:
                found.append(f"{place}: has another configuration than {own}")
            within = self.host.clock_within(place)
            if within is None:
                found.append(f"{place}: its clock is not yet compared with that of {own}")
            elif not within:
                found.append(f"{place}: its clock and that of {own} are not within Δ")
        return found

    def permit_obstacles(self) -> list[str]:
        """What this process sees amiss with the permits of others, each as `place: what`."""
        found = []
        for peer in self.peers():
            if peer.domain:
                found.append(f"{peer.place}: is a member of a domain")
            elif not peer.facts.permit:
                found.append(f"{peer.place}: has no valid permit")
            elif self.permit and peer.facts.permit != self.permit:
                found.append(f"{peer.place}: has another permit than {self.settings.place}")
        return found

    # --- what happens

    @property
    def observed_ns(self) -> int:
        """The last time handed in."""
        return self._observed_ns

    def observe(self, now_ns: int) -> None:
        """Counts the time without a leader; a gap of this process's own counts one second at most.

        One turn of the loop may hand in readings that are a little older than the last one.
        """
        gap_ns = min(max(now_ns - self._observed_ns, 0), S)
        self._observed_ns = max(now_ns, self._observed_ns)
        if not self.member or self.host.leader_alive():
            self.leaderless_ns = 0
            return
        before_ns = self.leaderless_ns
        self.leaderless_ns = before_ns + gap_ns
        if before_ns < LEADERLESS_NS <= self.leaderless_ns:
            self.note(self.leaderless_text())

    def leaderless_text(self) -> str:
        """What to say once `LEADERLESS_NS` are over."""
        recorded = self.recorded
        half = recorded is not None and not self.formed
        domain = recorded.domain if recorded is not None else self.host.domain()
        return (
            f"{'recorded' if half else 'a member of'} domain {domain} and heard of no leader for "
            f"{LEADERLESS_NS // S} s; once every old process has stopped, `ticketing form` starts over"
        )

    def note(self, text: str) -> None:
        """Adds a line for the log."""
        self.output.notes.append(text)

    def send(self, peer: LinkPeer, message: FormingMessage) -> None:
        """Adds a message to a process that is up."""
        self.output.messages.append((peer.facts.incarnation, message))

    def record(self, state: FirstState) -> None:
        """From here on this process belongs to no other domain, whatever becomes of this one."""
        assert not self.storing
        assert self.output.store is None
        assert state.first_token > self.earlier, (state.first_token, self.earlier)
        self.output = self.output._replace(drop=self.member, store=state, formed=None)
        self.recorded = state
        self.earlier = state.first_token
        self.spent = True
        self.storing = True
        self.formed = False
        self.leaderless_ns = 0

    def forget(self) -> None:
        """This process was taken in by another domain: it answers for what it recorded no more."""
        assert not self.storing
        self.recorded = None
        self.formed = False
        self.leaderless_ns = 0

    def become_formed(self) -> None:
        """All have recorded what is recorded here: the domain exists."""
        state = self.recorded
        assert state is not None
        assert not self.storing
        assert not self.formed
        self.formed = True
        self.output = self.output._replace(formed=state)
        self.note(f"formed domain {state.domain}")

    def take_output(self) -> FormingOutput:
        """Everything since the last call."""
        output = self.output
        self.output = FormingOutput(drop=False, store=None, messages=[], formed=None, notes=[])
        return output
