"""A moment of a conversation to which it can return."""

from __future__ import annotations

from dataclasses import dataclass

from calls.knowledge.context_injection import PassageKey


@dataclass(frozen=True)
class Checkpoint:
    """What there was: items and tool calls of the transcript, turns of the caller, entries of the timeline, and the
    passages of documents that the language model knew."""

    line_count: int
    turn_count: int
    entry_count: int
    known_passages: frozenset[PassageKey]
