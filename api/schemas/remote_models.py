"""Models on other machines in responses."""

from __future__ import annotations

from typing import Literal
from uuid import NAMESPACE_URL, uuid5

from pydantic import Field

from api.schemas.base import IdView, Instant, View
from models.remote.outcomes import RequestOutcome
from storage.agents.remote_models import StoredRemoteModel


def remote_model_id(name: str) -> str:
    """The id of a remote model."""
    return str(uuid5(NAMESPACE_URL, f"trunkline:remote-model:{name}"))


class RemoteVoice(View):
    """A voice of a remote model."""

    name: str = Field(description="Name on its server")
    language: str | None = Field(description="BCP 47 tag; null: any language")


class RemoteRequest(View):
    """The end of a request."""

    at: Instant = Field(description="When it ended")
    problem: str | None = Field(description="Why it failed; null if it succeeded")


class RemoteModel(View):
    """A model that another machine serves with the OpenAI API. Its API key is never returned."""

    id: IdView
    kind: Literal["llm", "stt", "tts", "embedding"] = Field(description="What it is for")
    name: str = Field(description="Name in settings and lists")
    url: str = Field(description="Base URL of the model's server")
    model: str = Field(description="Name of the model on its server")
    has_key: bool = Field(description="An API key is stored for it")
    context_length: int | None = Field(description="Tokens of context of a language model; null: the default")
    voices: list[RemoteVoice] = Field(description="Voices of a text-to-speech model")
    created_at: Instant
    last_request: RemoteRequest | None = Field(
        description="How the last request of this server to it ended; null: none since the server's start"
    )

    @classmethod
    def of(cls, stored: StoredRemoteModel, last: RequestOutcome | None) -> RemoteModel:
        """Returns the view."""
        return cls(
            id=remote_model_id(stored.name),
            kind=stored.kind,
            name=stored.name,
            url=stored.base_url,
            model=stored.model,
            has_key=stored.key_encrypted is not None,
            context_length=stored.context_length,
            voices=[RemoteVoice(name=str(name), language=language) for name, language in stored.voices],
            created_at=stored.created_at,
            last_request=None if last is None else RemoteRequest(at=last.at, problem=last.problem),
        )


class RemoteModelTest(View):
    """The answer to a test request."""

    answer: str | None = Field(description="The response and its time; null if it failed")
    problem: str | None = Field(description="Why it failed; null if it succeeded")
