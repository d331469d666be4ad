"""Models on other machines in bodies and responses. `RemoteModelCreate` validates what `trunkline models remote add`
stores, too."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self
from uuid import NAMESPACE_URL, uuid5

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from api.schemas.base import Body, BoundedJsonObject, IdView, Instant, Name, View
from api.schemas.bounds import MAX_URL, MAX_VOICES, OBJECT_LIMITS
from api.schemas.patterns import BEARER_KEY, MODEL_NAME, VOICE_NAME, LanguageTag, reject_tag_characters
from config.secrets import Secrets
from models.remote.config import RemoteKind, base_url_of
from models.remote.outcomes import RequestOutcome
from storage.agents.remote_models import StoredRemoteModel

RESERVED_NAMES: Final = ("auto", "default", "off")
MAX_KEY: Final = 8192


def remote_model_id(name: str) -> str:
    """The id of a remote model."""
    return str(uuid5(NAMESPACE_URL, f"trunkline:remote-model:{name}"))


def _not_reserved(name: str) -> str:
    if name in RESERVED_NAMES:
        raise PydanticCustomError("reserved", "Must be another name: settings have a meaning for this one")
    return name


def _base_url(text: str) -> str:
    try:
        return base_url_of(text)
    except ValueError as error:
        problem = str(error)
        raise PydanticCustomError("url", "{problem}", {"problem": problem[0].upper() + problem[1:]}) from None


def _distinct_names(voices: list[RemoteVoice]) -> list[RemoteVoice]:
    """Reports each voice with the name of an earlier one."""
    names = [each.name for each in voices]
    again = [index for index, name in enumerate(names) if name in names[:index]]
    if again:
        distinct = PydanticCustomError("distinct", "Names must differ from each other")
        problems = [InitErrorDetails(type=distinct, loc=(index, "name"), input=None) for index in again]
        raise ValidationError.from_exception_data("voices", problems)
    return voices


Seconds = Annotated[float, Field(ge=0.01, le=600)]


class RemoteVoice(Body):
    """A voice of a remote text-to-speech model."""

    name: Annotated[str, Field(max_length=128, pattern=VOICE_NAME), AfterValidator(reject_tag_characters)] = Field(
        description="Name on its server, without spaces, / and =; differs from those of the other voices"
    )
    language: LanguageTag | None = Field(
        None, description="BCP 47 tag, which makes the voice a default of the language; null: any language"
    )


class RemoteTimeouts(Body):
    """Time limits of the requests to a remote model; null: the default of its kind."""

    connect_seconds: Seconds | None = Field(None, description="For the connection, s")
    first_word_seconds: Seconds | None = Field(
        None, description="Until the first part of the response, with the connection and all retries, s"
    )
    between_words_seconds: Seconds | None = Field(None, description="Between two parts of the response, s")
    total_seconds: Seconds | None = Field(None, description="For the complete response, s")

    def to_store(self) -> dict[str, float]:
        """Returns the values that differ from the default, under the names of `StoredRemoteModel.limits`."""
        given = {name: getattr(self, field) for name, field in _STORED_TIMEOUTS.items()}
        return {name: seconds for name, seconds in given.items() if seconds is not None}


_STORED_TIMEOUTS: Final = {
    "connect_s": "connect_seconds",
    "first_s": "first_word_seconds",
    "gap_s": "between_words_seconds",
    "whole_s": "total_seconds",
}
"""The fields of the timeouts by their stored names."""


class RemoteModelCreate(Body):
    """A new remote model."""

    name: Annotated[str, Field(max_length=128, pattern=MODEL_NAME), AfterValidator(_not_reserved)] = Field(
        description=f"Name in settings and lists; not one of {', '.join(RESERVED_NAMES)}, nor that of another model"
    )
    kind: RemoteKind = Field(description="What it is for")
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL), AfterValidator(_base_url)] = Field(
        description="Base URL of the model's server, http(s)://host[:port]/v1; /v1 is added to one without a path. No "
        "user, no password, no query"
    )
    model: Name = Field(description="Name of the model on its server")
    key: Annotated[str, Field(max_length=MAX_KEY, pattern=BEARER_KEY)] | None = Field(
        None,
        description="API key of the model's server; stored encrypted, never returned",
        json_schema_extra={"writeOnly": True},
    )
    context_length: Annotated[int, Field(ge=512, le=10_000_000)] | None = Field(
        None, description="Context length in tokens, of an llm alone; null: 8192"
    )
    voices: Annotated[list[RemoteVoice], Field(max_length=MAX_VOICES), AfterValidator(_distinct_names)] = Field(
        [], description=f"Voices of a tts model, which needs at least one; at most {MAX_VOICES}; none for other kinds"
    )
    timeouts: RemoteTimeouts = Field(
        default_factory=RemoteTimeouts, description="Time limits that differ from the defaults of its kind"
    )
    extra: BoundedJsonObject = Field(
        default_factory=dict,
        description="Fields that are added to every request, in place of the server's own; a null removes one. "
        f"{OBJECT_LIMITS[0].upper()}{OBJECT_LIMITS[1:]}; never returned",
        json_schema_extra={"writeOnly": True},
    )

    @model_validator(mode="after")
    def _check_fields_of_kind(self) -> Self:
        """Reports fields that the kind does not have, or needs."""
        problems = []
        if self.kind == "tts" and not self.voices:
            problems.append(("voices", PydanticCustomError("kind", "A tts model needs at least one voice")))
        if self.kind != "tts" and self.voices:
            problems.append(("voices", PydanticCustomError("kind", "Only a tts model has voices")))
        if self.kind != "llm" and self.context_length is not None:
            problems.append(("contextLength", PydanticCustomError("kind", "Only an llm has a context length")))
        if problems:
            details = [InitErrorDetails(type=problem, loc=(field,), input=None) for field, problem in problems]
            raise ValidationError.from_exception_data("body", details)
        return self

    def to_store(self, secrets: Secrets) -> StoredRemoteModel:
        """Returns the model to be stored, with its key encrypted."""
        return StoredRemoteModel(
            name=self.name,
            kind=self.kind,
            base_url=self.url,
            model=self.model,
            key_encrypted=None if self.key is None else secrets.encrypt(self.key),
            context_length=self.context_length,
            voices=[[each.name, each.language] for each in self.voices],
            limits=self.timeouts.to_store(),
            extra=self.extra,
        )


class RemoteVoiceView(View):
    """A voice of a remote model."""

    name: str = Field(description="Name on its server")
    language: str | None = Field(description="BCP 47 tag; null: any language")


class RemoteTimeoutsView(View):
    """Time limits of the requests to a remote model; null: the default of its kind."""

    connect_seconds: float | None
    first_word_seconds: float | None
    between_words_seconds: float | None
    total_seconds: float | None


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
    voices: list[RemoteVoiceView] = Field(description="Voices of a text-to-speech model")
    timeouts: RemoteTimeoutsView = Field(description="Time limits that differ from the defaults of its kind")
    loaded: bool = Field(description="The running server has it; a new one is used after the next start")
    in_use: str | None = Field(description="Why it cannot be removed now, and what to do; null if it can be")
    agents: int = Field(
        description="Agents of all organizations that have chosen it or one of its voices; without it they get the "
        "default"
    )
    warnings: list[str] = Field(description="What is wrong with its address, and what to do; empty if nothing is")
    created_at: Instant
    last_request: RemoteRequest | None = Field(
        description="How the last request of this server to it ended; null: none since the server's start"
    )

    @classmethod
    def of(
        cls,
        stored: StoredRemoteModel,
        last: RequestOutcome | None,
        *,
        loaded: bool,
        in_use: str | None,
        agents: int,
        warnings: list[str],
    ) -> RemoteModel:
        """Returns the view."""
        timeouts: dict[str, Any] = {field: stored.limits.get(name) for name, field in _STORED_TIMEOUTS.items()}
        return cls(
            id=remote_model_id(stored.name),
            kind=stored.kind,
            name=stored.name,
            url=stored.base_url,
            model=stored.model,
            has_key=stored.key_encrypted is not None,
            context_length=stored.context_length,
            voices=[RemoteVoiceView(name=str(name), language=language) for name, language in stored.voices],
            timeouts=RemoteTimeoutsView(**timeouts),
            loaded=loaded,
            in_use=in_use,
            agents=agents,
            warnings=warnings,
            created_at=stored.created_at,
            last_request=None if last is None else RemoteRequest(at=last.at, problem=last.problem),
        )


class RemoteModelTest(View):
    """The answer to a test request."""

    answer: str | None = Field(description="The response and its time; null if it failed")
    problem: str | None = Field(description="Why it failed; null if it succeeded")
