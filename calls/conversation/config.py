"""The configuration of the agent for one conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConversationConfig:
    """Texts have their placeholders filled. `greeting` None: the language model writes the first message, if the agent
    speaks first. `user_idle_ms`: silence of both sides after which the agent prompts the user; 0 never."""

    system_prompt: str
    greeting: str | None = None
    speaks_first: bool = False
    first_message_delay_ms: int = 0
    first_message_uninterruptible: bool = False
    language: str | None = None
    user_idle_ms: int = 0
