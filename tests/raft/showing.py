"""How transcripts write messages, entries and configurations: one line each, `index/term` for a place in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from ticketing.raft.core import Raft
from ticketing.raft.messages import (
    AppendEntries,
    AppendRefusal,
    AppendReply,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    StaleTerm,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
    WireEntry,
    decode_change,
)
from ticketing.raft.types import Configuration, Entry, EntryKind, Member

Names = Callable[[Iterable[Member]], str]


def show_configuration(names: Names, configuration: Configuration) -> str:
    """`(n1 n2 n4)` for voters, `&(n1 n2 n3)` for outgoing ones, `+(n5)` for learners."""
    text = f"({names(configuration.voters)})"
    if configuration.outgoing:
        text += f"&({names(configuration.outgoing)})"
    if configuration.learners:
        text += f"+({names(configuration.learners)})"
    return text


def show_entry(names: Names, index: int, entry: Entry | WireEntry) -> str:
    """`7/3:x`; `7/3` alone for a leader's empty entry."""
    place = f"{index}/{entry.term}"
    if entry.kind == EntryKind.EMPTY:
        return place
    if entry.kind == EntryKind.CONFIGURATION:
        return f"{place}:{show_configuration(names, decode_change(entry.data).configuration)}"
    text = entry.data.decode()
    return f"{place}:{text}" if len(text) <= 16 else f"{place}:{text[:8]}..{len(text)}"


def show_entries(names: Names, first: int, entries: Sequence[Entry | WireEntry]) -> str:
    """Entries from `first` on, in brackets."""
    return "[" + " ".join(show_entry(names, first + n, entry) for n, entry in enumerate(entries)) + "]"


def show_message(names: Names, message: Message) -> str:
    """A message's name and every field that can matter."""
    match message:
        case PreVoteRequest():
            detail = f"last={message.last_index}/{message.last_term}"
        case PreVoteAnswer():
            detail = f"for={message.prospective} {_granted(message.granted)}"
        case VoteRequest():
            detail = f"last={message.last_index}/{message.last_term}"
            if message.transfer:
                detail += " transfer"
        case VoteAnswer():
            detail = _granted(message.granted)
        case AppendEntries():
            shown = show_entries(names, message.prev_index + 1, message.entries)
            detail = (
                f"round={message.round} prev={message.prev_index}/{message.prev_term}"
                f" commit={message.commit} {shown}"
            )
        case AppendReply():
            detail = f"round={message.round} match={message.match} last={message.last_index}"
        case AppendRefusal():
            detail = (
                f"round={message.round} prev={message.prev_index} last={message.last_index}"
                f" hint={message.hint_index}/{message.hint_term}"
            )
        case TimeoutNow() | StaleTerm():
            detail = ""
        case _:
            assert_never(message)
    return f"{type(message).__name__} term={message.term} {detail}".rstrip()


def _granted(granted: bool) -> str:
    return "granted" if granted else "refused"


def show_progress(name: Callable[[Member], str], raft: Raft) -> list[str]:
    """One line for each member as its leader sees it; none where it does not lead."""
    lines = []
    for member in raft.configuration.members():
        view = raft.progress(member)
        if view is None or member == raft.me:
            continue
        line = f"{name(member)}: {view.state.value} match={view.match} next={view.next}"
        if view.inflight_bytes:
            line += f" inflight={view.inflight_bytes}B"
        if view.rolled_back:
            line += " rolled-back"
        lines.append(line)
    return lines
