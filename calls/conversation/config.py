"""What an agent was told for one call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConversationConfig:
    """Its placeholders are filled. `greeting` None: the language model opens the talk, if the agent speaks first.
    `user_idle_ms`: how long nobody has spoken when the agent asks whether the caller is still there; 0 never."""

    system_prompt: str
    greeting: str | None = None
    speaks_first: bool = False
    first_message_delay_ms: int = 0
    first_message_uninterruptible: bool = False
    language: str | None = None
    user_idle_ms: int = 0
