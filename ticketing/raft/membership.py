"""Deriving configurations from one another, and what makes a change acceptable (Raft thesis, chapter 4)."""

from __future__ import annotations

from ticketing.raft.types import Configuration, Member


class ChangeRefused(Exception):  # noqa: N818 - an answer, named as what it says
    """A configuration change was not proposed; nothing has changed.

    `reason` is one of: not_leader, transferring, own_term_uncommitted, change_open, invalid. `detail` is for
    people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def with_learner(configuration: Configuration, learner: Member) -> Configuration:
    """The same voters and one more learner."""
    assert not configuration.joint, configuration
    return Configuration(configuration.voters, learners=(*configuration.learners, learner))


def without_learner(configuration: Configuration, learner: Member) -> Configuration:
    """The same voters and one learner fewer."""
    assert not configuration.joint, configuration
    return Configuration(
        configuration.voters, learners=tuple(m for m in configuration.learners if m != learner)
    )


def swapping(configuration: Configuration, old: Member, new: Member) -> Configuration:
    """The joint configuration in which `new` (a learner until now) takes the place of the voter `old`."""
    assert not configuration.joint, configuration
    return Configuration(
        voters=tuple(new if member == old else member for member in configuration.voters),
        outgoing=configuration.voters,
        learners=tuple(member for member in configuration.learners if member != new),
    )


def leaving_joint(configuration: Configuration) -> Configuration:
    """The final configuration that a joint one leads to."""
    assert configuration.joint, configuration
    return Configuration(configuration.voters, learners=configuration.learners)


def problem(current: Configuration, wanted: Configuration) -> str | None:
    """Why `wanted` cannot be proposed where `current` is in force and committed, None if it can."""
    if not wanted.voters:
        return "a configuration needs voters"
    for group in (wanted.voters, wanted.outgoing, wanted.learners):
        if len(set(group)) != len(group):
            return "a member stands twice in one group"
    if any(wanted.is_voter(learner) for learner in wanted.learners):
        return "a learner cannot be a voter as well"
    members = wanted.members()
    if len({member.node_id for member in members}) != len(members):
        return "two members share a NodeId"
    if wanted.outgoing and wanted.outgoing != current.voters:
        return "a joint configuration leads away from the voters in force"
    if not wanted.outgoing and set(wanted.voters) != set(current.voters):
        return "voters are changed by a joint configuration only"
    return None
