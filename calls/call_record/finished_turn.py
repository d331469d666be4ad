"""A turn of a call that is over, with its words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from storage.calls.calls import Speaker


@dataclass(frozen=True)
class FinishedTurn:
    """What one side has said, or what the caller has dialled. Times are ms since the answer, None if not known; of the
    agent, of what was heard. `interrupted`: the other side has cut it."""

    role: Literal["user", "assistant"]
    text: str = field(repr=False)
    start_ms: int | None = None
    end_ms: int | None = None
    interrupted: bool = False
    speaker: Speaker | None = None
    """Of what connected parties say to each other; their role is user."""
