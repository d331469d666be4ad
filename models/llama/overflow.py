"""What a talk that has grown too long for the model's memory leaves out: its oldest turns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LEFT: Final = 0.6
"""Share of the room that is filled after turns were left out: all that follows them is read anew then, so that it pays
to leave out several at once and none in the next turns."""


def first_kept(costs: Sequence[int], begins_turn: Sequence[bool], room: int, dropped: int) -> int:
    """The place of the first message to keep, of messages that take `costs` tokens, where `room` fit and `dropped`
    were left out the last time. Turns go whole, so that no tool's result loses its call; the last turn stays."""
    starts = [place for place, begins in enumerate(begins_turn) if begins and place >= dropped] or [dropped]
    if sum(costs[dropped:]) <= room:
        return dropped
    return next((start for start in starts if sum(costs[start:]) <= _LEFT * room), starts[-1])


def without_middle(tokens: list[int], room: int) -> list[int]:
    """A prompt that is too long even so: its beginning, which says who the agent is, and its end, which is asked."""
    if len(tokens) <= room:
        return tokens
    return tokens[: room // 2] + tokens[len(tokens) - (room - room // 2) :]
