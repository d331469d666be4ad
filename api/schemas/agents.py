"""Agents in bodies and responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import InitErrorDetails, PydanticCustomError

from api.schemas.addresses import HttpAddress, WebhookAddress
from api.schemas.base import (
    Body,
    Description,
    Id,
    IdView,
    Instant,
    KnownPlaceholders,
    Name,
    Paging,
    View,
    without_default,
    without_defaults,
)
from api.schemas.bounds import MAX_EXTRACTIONS, MAX_SECRET, MAX_TOOL_IDS, MAX_TRANSFER_TARGETS
from api.schemas.patterns import DialNumber, LanguageTag
from config.secrets import Secrets
from storage.agents.agents import Agent as StoredAgent
from storage.tables.agent_fields import AgentFields

Probability = Annotated[float, Field(ge=0, le=1)]
UpTo2000Ms = Annotated[int, Field(ge=0, le=2000)]
UpTo5000Ms = Annotated[int, Field(ge=0, le=5000)]
UpTo10000Ms = Annotated[int, Field(ge=0, le=10000)]


class ExtractionField(Body):
    """One value to extract from the conversation."""

    name: Name
    description: Description
    type: Literal["string", "boolean", "number"]


class TransferTarget(Body):
    """Where the agent may transfer a call to."""

    name: Name
    description: Description
    number: DialNumber
    mode: Literal["cold", "warm_briefing"]


def _distinct_names(items: list[ExtractionField]) -> list[ExtractionField]:
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise PydanticCustomError("distinct", "Names must differ from each other")
    return items


def _distinct_without_case(targets: list[TransferTarget]) -> list[TransferTarget]:
    """Names every target whose name occurred before, because targets are selected by their spoken name."""
    seen: set[str] = set()
    problems: list[InitErrorDetails] = []
    for index, target in enumerate(targets):
        if target.name.casefold() in seen:
            wrong = PydanticCustomError("distinct", "Names must differ from each other, also without letter case")
            problems.append(InitErrorDetails(type=wrong, loc=(index, "name"), input=None))
        seen.add(target.name.casefold())
    if problems:
        raise ValidationError.from_exception_data("transferTargets", problems)
    return targets


Extractions = Annotated[list[ExtractionField], Field(max_length=MAX_EXTRACTIONS), AfterValidator(_distinct_names)]
Targets = Annotated[
    list[TransferTarget], Field(max_length=MAX_TRANSFER_TARGETS), AfterValidator(_distinct_without_case)
]


class AgentSettings(Body):
    """Fields of creating and of updating an agent."""

    system_prompt: Annotated[str, Field(max_length=32000), KnownPlaceholders] = Field(
        "",
        description="What the agent is told; may contain {{variables}}; null in responses until it is given",
        json_schema_extra=without_default,
    )
    slm_model_id: Id | None = Field(None, description="Language model; null: the server's default")
    voice_id: Id | None = Field(None, description="Voice; null: the server's default")
    voice_speed: Annotated[float, Field(ge=0.6, le=1.5)] = 1
    voice_stability: Probability = Field(0.5, description="Applies only to some voice providers")
    turn_endpoint_delay: Annotated[int, Field(ge=50, le=2000)] | None = Field(
        100, description="ms of silence before the agent responds"
    )
    min_turn_duration: UpTo2000Ms | None = Field(50, description="ms of speech that counts as a turn")
    min_interruption_duration: UpTo2000Ms | None = Field(100, description="ms the user must speak to interrupt")
    frame_activation_threshold: Probability | None = Field(0.35, description="Voice-activity probability threshold")
    post_speech_cooldown: UpTo5000Ms | None = Field(400, description="Echo guard, ms after the agent stops speaking")
    ultravad_eot_threshold: Probability | None = Field(
        0.1, description="End-of-turn probability threshold; null: no end-of-turn model"
    )
    speculative_silence_ms: UpTo5000Ms | None = Field(
        150, description="ms of silence before an answer is begun, at the risk of throwing it away; null: never"
    )
    fallback_silence_ms: UpTo10000Ms | None = Field(3000, description="ms after which silence ends a turn anyway")
    allow_end_call: bool = Field(True, description="The agent may end calls proactively")
    is_active: bool = Field(True, description="The agent can handle calls")
    post_call_summary_enabled: bool = Field(False, description="Generate a call summary: `analysis.summary` of a call")
    post_call_extraction_schema: Extractions = Field(
        [],
        description=(
            "What to extract after a call: `analysis.extractions`, by these names; null where it was not said. "
            "Descriptions in the words that the agent asks with are found best"
        ),
    )
    post_call_webhook_url: WebhookAddress | None = Field(None, description="Receiver of call.completed; https only")
    post_call_webhook_secret: Annotated[str, Field(min_length=1, max_length=MAX_SECRET)] | None = Field(
        None, description="Signing secret for webhooks; never returned", json_schema_extra={"writeOnly": True}
    )
    first_speaker: Literal["user", "agent"] = "user"
    agent_greeting: Annotated[str, Field(max_length=1000), KnownPlaceholders] | None = Field(
        None, description="May contain {{variables}}"
    )
    agent_greeting_enabled: bool = Field(False, description="Use the custom greeting")
    first_message_uninterruptible: bool = Field(
        False, description="The first agent message cannot be interrupted; counts only with firstSpeaker agent"
    )
    first_message_delay: UpTo10000Ms = Field(
        0, description="ms before the first agent message; counts only with firstSpeaker agent"
    )
    max_call_duration_seconds: Annotated[int, Field(ge=30, le=3600)] = 600
    language_hint: LanguageTag | None = Field(
        None, description="Language tag (BCP 47) for transcription, for example en or pt-BR"
    )
    knowledge_search_instructions: Annotated[str, Field(max_length=2000)] | None = Field(
        None, description="When to search the knowledge base"
    )
    background_sound_id: Id | None = Field(None, description="Background sound played during calls")
    background_sound_volume: Probability = 0.15
    hold_message: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Spoken to the caller on hold during a warm transfer"
    )
    hold_music_url: Annotated[HttpAddress, Field(max_length=500)] | None = Field(
        None, description="Audio played during hold in a warm transfer; an http or https URL"
    )
    tool_ids: Annotated[list[Id], Field(max_length=MAX_TOOL_IDS)] | None = Field(
        None, description="Tools of this agent; null: every tool of the organization"
    )
    transfer_targets: Targets = Field(
        [], description="Where the agent may hand a call to; their names differ, also without letter case"
    )
    customer_silence_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        10_000,
        description="ms in which nobody speaks before the agent asks whether the caller is still there; after as long "
        "again it says goodbye and ends the call (customer_silent). 0: never",
    )

    def to_store(self, secrets: Secrets, *, only_given: bool) -> dict[str, Any]:
        """Returns the values under the names of `AgentFields`, all or only those in the body."""
        values = self.model_dump(exclude_unset=only_given)
        if "system_prompt" not in self.model_fields_set:
            values.pop("system_prompt", None)  # its default is null, which no body may have
        if "post_call_webhook_secret" in values:
            secret = values.pop("post_call_webhook_secret")
            values["post_call_webhook_secret_encrypted"] = None if secret is None else secrets.encrypt(secret)
        return values


class AgentCreate(AgentSettings):
    """A new agent; only the name is required."""

    name: Name


class AgentUpdate(AgentSettings):
    """Changes to an agent: an absent field stays, null clears a nullable one."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""


class AgentQuery(Paging):
    """Filter of the list of agents."""

    search: str | None = Field(None, description="Part of the name, in any letter case")


class ExtractionFieldView(View):
    """One value to extract from the conversation."""

    name: str
    description: str
    type: Literal["string", "boolean", "number"]


class TransferTargetView(View):
    """Where the agent may transfer a call to."""

    name: str
    description: str
    number: str
    mode: Literal["cold", "warm_briefing"]


_VIEWED_AS: Final[dict[str, Any]] = {
    "slm_model_id": IdView | None,
    "voice_id": IdView | None,
    "background_sound_id": IdView | None,
    "tool_ids": list[IdView] | None,
    "post_call_extraction_schema": list[ExtractionFieldView],
    "transfer_targets": list[TransferTargetView],
}
"""Fields whose type in responses is not the stored one."""
_SECRET: Final = "post_call_webhook_secret"


def _view_fields() -> Iterator[tuple[str, Any]]:
    """Yields name and type of each field of the view: those of `AgentFields`, in their order; in place of the webhook
    secret, whether there is one."""
    yield "id", IdView
    for name, stored in get_type_hints(AgentFields).items():
        if name == f"{_SECRET}_encrypted":
            yield f"{_SECRET}_set", bool
        else:
            yield name, _VIEWED_AS.get(name, stored)
    yield "created_at", Instant
    yield "updated_at", Instant


_FIELD_DEFINITIONS: Final[dict[str, Any]] = {name: (kind, ...) for name, kind in _view_fields()}
Agent: Final[type[View]] = create_model(
    "Agent", __base__=View, __doc__="A voice agent.", __module__=__name__, **_FIELD_DEFINITIONS
)


def agent_view(stored: StoredAgent) -> View:
    """The view of a stored agent."""
    secret_set = stored.post_call_webhook_secret_encrypted is not None
    return Agent.model_validate({**stored.__dict__, f"{_SECRET}_set": secret_set})
