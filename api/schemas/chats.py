"""Chats in bodies and responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from api.schemas.agents import AgentUpdate
from api.schemas.base import Body, Id, JsonObject, View
from api.schemas.bounds import OBJECT_LIMITS
from api.schemas.calls import ContextVariables
from api.schemas.transcripts import TurnSource
from calls.chat.chat_session import MAX_TURNS

MAX_MESSAGE = 4000
"""Characters of a message."""


class ChatCreate(Body):
    """A chat with an agent."""

    agent_id: Id = Field(description="Agent that holds the conversation; must be active")
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The version of the agent that holds it; null: the present one"
    )
    context_variables: ContextVariables = Field(
        default_factory=dict,
        description=f"Values of the placeholders; names of letters, digits and underscores; {OBJECT_LIMITS}",
    )
    agent: AgentUpdate | None = Field(
        None,
        description="Changes to the agent, as in PATCH /agents/{id}, for this chat alone: they are not saved",
    )


class ChatMessageCreate(Body):
    """A message of the user."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)] = Field(description="Its words")
    edit_turn: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = Field(
        None,
        description="Number of an earlier turn of the user, from 1: the message takes its place, and all that came "
        "after it is dropped; null: the message is the next turn",
    )

    @field_validator("content")
    @classmethod
    def _has_words(cls, content: str) -> str:
        if not content.strip():
            raise ValueError("Must not be blank")
        return content.strip()


class ChatToolCall(View):
    """A tool call of the agent."""

    name: str = Field(description="Name under which the language model called it")
    arguments: JsonObject | None = Field(
        description="As the language model wrote them; credentials are `[hidden]`. Null if they were no JSON object"
    )
    result: str | None = Field(description="What the language model got")
    ok: bool = Field(description="True if the tool succeeded")
    duration_ms: int = Field(description="How long it took, ms")


class ChatMessage(View):
    """The agent's answer to a message."""

    turn: int = Field(description="Number of the user's turn that it answers, from 1")
    content: str = Field(description="The agent's words; empty if it said nothing")
    response_gap_ms: int | None = Field(
        description="From the message to the agent's first sentence, ms, as in the timeline; null if it said nothing"
    )
    duration_ms: int = Field(description="From the message to the end of the answer, ms")
    tools: list[ChatToolCall] = Field(description="The tools that were called for the answer, in order of their ends")
    sources: list[TurnSource] = Field(
        description="The passages of the agent's documents that the language model got for the answer"
    )
    ended: bool = Field(description="True if the agent has ended the conversation")
