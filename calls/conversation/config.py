"""What an agent was told for one call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """Its placeholders are filled. `greeting` None: the language model opens the talk, if the agent speaks first.
    `silence_ms`: how long nobody has spoken when the agent asks whether the caller is still there; 0 never."""

    system: str
    greeting: str | None = None
    speaks_first: bool = False
    first_message_delay_ms: int = 0
    first_message_protected: bool = False
    language: str | None = None
    silence_ms: int = 0
