"""Agents in bodies and responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Name,
    Paging,
    ValidPlaceholders,
    View,
    without_default,
    without_defaults,
)
from api.schemas.bounds import MAX_EXTRACTIONS, MAX_SECRET, MAX_TOOL_IDS, MAX_TRANSFER_TARGETS
from api.schemas.patterns import Destination, LanguageTag
from api.schemas.webhook_events import WEBHOOK_EVENTS, WebhookEvents
from config.secrets import Secrets
from storage.agents.agents import Agent as StoredAgent
from storage.calls.transfers import TransferMode
from storage.tables.agent_fields import AgentFields

Probability = Annotated[float, Field(ge=0, le=1)]
UpTo2000Ms = Annotated[int, Field(ge=0, le=2000)]
UpTo5000Ms = Annotated[int, Field(ge=0, le=5000)]
UpTo10000Ms = Annotated[int, Field(ge=0, le=10000)]
_DEFAULTS: Final = AgentFields(name="")
"""The defaults of requests are the stored ones, where they are values: an absent id or text is null."""


class ExtractionField(Body):
    """One value to extract from the conversation."""

    name: Name
    description: Description
    type: Literal["string", "boolean", "number"]


TRANSFER_MODE: Final = (
    "cold: without a word; warm_briefing: the agent tells the target about the call, and the target accepts or "
    "declines; warm_announce: the agent tells the target about the call and connects them; attended: as "
    "warm_briefing, then the peer's own transfer by REFER with Replaces takes both legs"
)
TARGET_TRUNK: Final = "Phone number whose trunk is used; null: the one of the call's own phone number"


class TransferTarget(Body):
    """A number that the agent may transfer a call to."""

    name: Name
    description: Description
    number: Destination = Field(description="E.164, or an internal extension of 2 to 7 digits, such as 100")
    mode: TransferMode = Field(description=TRANSFER_MODE)
    phone_number_id: Id | None = Field(None, description=TARGET_TRUNK)


def _distinct_names(items: list[ExtractionField]) -> list[ExtractionField]:
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise PydanticCustomError("distinct", "Names must differ from each other")
    return items


def _distinct_without_case(targets: list[TransferTarget]) -> list[TransferTarget]:
    """Reports each target with the name of an earlier one; letter case is ignored, because targets are selected by
    their spoken name."""
    seen: set[str] = set()
    problems: list[InitErrorDetails] = []
    for index, target in enumerate(targets):
        if target.name.casefold() in seen:
            error = PydanticCustomError("distinct", "Names must differ from each other, also without letter case")
            problems.append(InitErrorDetails(type=error, loc=(index, "name"), input=None))
        seen.add(target.name.casefold())
    if problems:
        raise ValidationError.from_exception_data("transferTargets", problems)
    return targets


Extractions = Annotated[list[ExtractionField], Field(max_length=MAX_EXTRACTIONS), AfterValidator(_distinct_names)]
Targets = Annotated[
    list[TransferTarget], Field(max_length=MAX_TRANSFER_TARGETS), AfterValidator(_distinct_without_case)
]


class AgentSettings(Body):
    """Fields of new and of changed agents."""

    system_prompt: Annotated[str, Field(max_length=32000), ValidPlaceholders] = Field(
        "",
        description="Instructions of the agent; may contain {{variables}}; null in responses until it is set",
        json_schema_extra=without_default,
    )
    slm_model_id: Id | None = Field(None, description="Language model; null: the server's default")
    voice_id: Id | None = Field(None, description="Voice; null: the server's default")
    voice_speed: Annotated[float, Field(ge=0.6, le=1.5)] = _DEFAULTS.voice_speed
    voice_stability: Probability = Field(_DEFAULTS.voice_stability, description="Applies only to some voice providers")
    turn_endpoint_delay: Annotated[int, Field(ge=50, le=2000)] | None = Field(
        _DEFAULTS.turn_endpoint_delay, description="Silence before the agent responds, ms"
    )
    min_turn_duration: UpTo2000Ms | None = Field(
        _DEFAULTS.min_turn_duration, description="Shortest speech that counts as a turn, ms"
    )
    min_interruption_duration: UpTo2000Ms | None = Field(
        _DEFAULTS.min_interruption_duration, description="Shortest speech of the caller that interrupts the agent, ms"
    )
    frame_activation_threshold: Probability | None = Field(
        _DEFAULTS.frame_activation_threshold, description="Voice activity detection: probability threshold of speech"
    )
    post_speech_cooldown: UpTo5000Ms | None = Field(
        _DEFAULTS.post_speech_cooldown,
        description="Time after the end of the agent's speech, ms; speech that begins and ends within it is ignored as "
        "echo",
    )
    ultravad_eot_threshold: Probability | None = Field(
        _DEFAULTS.ultravad_eot_threshold,
        description="End-of-turn model: probability threshold; null: no end-of-turn model",
    )
    speculative_silence_ms: UpTo5000Ms | None = Field(
        _DEFAULTS.speculative_silence_ms,
        description="Silence after which a response is generated in advance, ms; discarded if the caller speaks on. "
        "null: never",
    )
    fallback_silence_ms: UpTo10000Ms | None = Field(
        _DEFAULTS.fallback_silence_ms, description="Silence that ends a turn whatever the end-of-turn model decides, ms"
    )
    allow_end_call: bool = Field(_DEFAULTS.allow_end_call, description="The agent may end the call")
    is_active: bool = Field(_DEFAULTS.is_active, description="The agent can handle calls")
    post_call_summary_enabled: bool = Field(
        _DEFAULTS.post_call_summary_enabled, description="Generate a summary of each call: `analysis.summary`"
    )
    post_call_extraction_schema: Extractions = Field(
        [],
        description=(
            "Values to extract after a call: `analysis.extractions`, by these names; a value that the caller did not "
            "say is null. Descriptions in the words of the agent's questions give the best results"
        ),
    )
    post_call_webhook_url: WebhookAddress | None = Field(
        None, description="Receiver of the events in postCallWebhookEvents; https only"
    )
    post_call_webhook_secret: Annotated[str, Field(min_length=1, max_length=MAX_SECRET)] | None = Field(
        None, description="Secret that signs webhooks; never returned", json_schema_extra={"writeOnly": True}
    )
    post_call_webhook_events: WebhookEvents = Field(["call.completed"], description=WEBHOOK_EVENTS)
    first_speaker: Literal["user", "agent"] = _DEFAULTS.first_speaker
    agent_greeting: Annotated[str, Field(max_length=1000), ValidPlaceholders] | None = Field(
        None, description="Text of the greeting; may contain {{variables}}"
    )
    agent_greeting_enabled: bool = Field(
        _DEFAULTS.agent_greeting_enabled, description="Use agentGreeting as the greeting"
    )
    first_message_uninterruptible: bool = Field(
        _DEFAULTS.first_message_uninterruptible,
        description="The agent's first message cannot be interrupted; only with firstSpeaker agent",
    )
    first_message_delay: UpTo10000Ms = Field(
        _DEFAULTS.first_message_delay,
        description="Delay of the agent's first message, ms; only with firstSpeaker agent",
    )
    max_call_duration_seconds: Annotated[int, Field(ge=30, le=3600)] = _DEFAULTS.max_call_duration_seconds
    language_hint: LanguageTag | None = Field(
        None, description="Language tag (BCP 47) for transcription, for example en or pt-BR"
    )
    knowledge_search_instructions: Annotated[str, Field(max_length=2000)] | None = Field(
        None, description="Instructs the language model when to search the agent's documents"
    )
    background_sound_id: Id | None = Field(None, description="Background sound that is played during calls")
    background_sound_volume: Probability = _DEFAULTS.background_sound_volume
    hold_message: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Spoken to the caller before a transfer; null: a stock phrase if the agent says nothing else"
    )
    hold_music_url: Annotated[HttpAddress, Field(max_length=500)] | None = Field(
        None,
        description="Music for the caller during a transfer; null: built-in music. An http or https URL "
        "of a WAV, MP3, Ogg (Vorbis or Opus) or FLAC file of at most 10 MiB and 1 to 600 seconds. The file is fetched "
        "when the URL is set, without following redirects, and stored: the agent keeps it when the URL has none any "
        "more. It is played in a loop, in mono, at the level of speech.",
    )
    tool_ids: Annotated[list[Id], Field(max_length=MAX_TOOL_IDS)] | None = Field(
        None, description="Tools of this agent; null: every tool of the organization"
    )
    transfer_targets: Targets = Field(
        [],
        description="Numbers that the agent may transfer a call to; their names differ, whatever the letter case. "
        "Each number begins with a permitted prefix of the organization and of the phone number in phoneNumberId",
    )
    customer_silence_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        _DEFAULTS.customer_silence_ms,
        description="Silence of both sides after which the agent asks whether the caller is still there, ms; after the "
        "same time again the agent says goodbye and ends the call (customer_silent). 0: never",
    )
    record_after_transfer: bool = Field(
        _DEFAULTS.record_after_transfer,
        description="The recordings of both legs go on after a transfer has connected the caller to the target",
    )
    voicemail_detection: Literal["off", "detect", "leave_message"] = Field(
        _DEFAULTS.voicemail_detection,
        description="Outbound calls that a machine answers (voicemail, fax): off: the agent talks to it; detect: the "
        "call ends (voicemail); leave_message: the agent leaves voicemailMessage first. Targets of transfers "
        "are always screened",
    )
    voicemail_message: Annotated[str, Field(max_length=500), ValidPlaceholders] | None = Field(
        None,
        description="Message for voicemails, after the beep or 2 s of quiet; cut after 30 s. May contain "
        "{{variables}}; required with voicemailDetection leave_message",
    )
    stay_on_call: bool = Field(
        _DEFAULTS.stay_on_call,
        description="After a transfer has connected the caller to the target, the agent says nothing and transcribes "
        "both, until either tells it to stop (`stop the transcript`), or the call ends. The words are in the "
        "transcript of the caller's call, with their `speaker`, also if recordAfterTransfer is false, which ends the "
        "recordings alone. Ask both parties for the consent that the law requires",
    )
    recording_enabled: bool = Field(
        _DEFAULTS.recording_enabled,
        description="Calls of the agent, and the second legs of their transfers, are recorded, from the answer on. "
        "false: no audio is stored, recordingUrl is null and GET /calls/{id}/recording is 404. Calls that are in "
        "progress keep the setting with which they began",
    )
    recording_announcement: Annotated[str, Field(max_length=500), ValidPlaceholders] | None = Field(
        None,
        description="Said by the agent first thing after the answer of each recorded call, also outbound, before "
        "any greeting; the caller cannot interrupt it. May contain {{variables}}. The recording has it and what the "
        "caller says meanwhile. Targets of transfers do not hear it",
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
    """Changes to an agent: an absent field stays as it is, null clears a nullable field."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""


class AgentQuery(Paging):
    """Query parameters of the list of agents."""

    search: str | None = Field(None, description="Agents whose name contains this, in any letter case")


class ExtractionFieldView(View):
    """One value to extract from the conversation."""

    name: str
    description: str
    type: Literal["string", "boolean", "number"]


class TransferTargetView(View):
    """A number that the agent may transfer a call to."""

    name: str
    description: str
    number: str
    mode: TransferMode = Field(description=TRANSFER_MODE)
    phone_number_id: IdView | None = Field(None, description=TARGET_TRUNK)


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


class AgentWarning(View):
    """What the agent's calls do in another way than a field asks for."""

    field: Annotated[str, Field(description="Name of the field", json_schema_extra={"example": "languageHint"})]
    message: Annotated[str, Field(description="What happens in calls")]


def _view_fields() -> Iterator[tuple[str, Any]]:
    """Yields name and type of each field of the view: those of `AgentFields`, in their order; in place of the webhook
    secret, whether there is one."""
    yield "id", IdView
    yield from _viewed_settings()
    yield "created_at", Instant
    yield "updated_at", Instant
    yield "version", int
    yield "warnings", list[AgentWarning]


def _viewed_settings() -> Iterator[tuple[str, Any]]:
    for name, stored in get_type_hints(AgentFields).items():
        if name == f"{_SECRET}_encrypted":
            yield f"{_SECRET}_set", bool
        else:
            yield name, _VIEWED_AS.get(name, stored)


_FIELD_DEFINITIONS: Final[dict[str, Any]] = {name: (kind, ...) for name, kind in _view_fields()}
Agent: Final[type[View]] = create_model(
    "Agent", __base__=View, __doc__="A voice agent.", __module__=__name__, **_FIELD_DEFINITIONS
)


def agent_view(stored: StoredAgent, warnings: Sequence[AgentWarning]) -> View:
    """The view of a stored agent."""
    secret_set = stored.post_call_webhook_secret_encrypted is not None
    return Agent.model_validate({**stored.__dict__, f"{_SECRET}_set": secret_set, "warnings": list(warnings)})


_VERSION_DEFINITIONS: Final[dict[str, Any]] = {name: (kind, ...) for name, kind in _viewed_settings()}
AgentOfVersion: Final[type[View]] = create_model(
    "AgentOfVersion",
    __base__=View,
    __doc__="The fields of an agent in one of its versions.",
    __module__=__name__,
    **_VERSION_DEFINITIONS,
)


def version_view(stored: AgentFields) -> View:
    """The view of an agent's fields in a version."""
    secret_set = stored.post_call_webhook_secret_encrypted is not None
    return AgentOfVersion.model_validate({**stored.__dict__, f"{_SECRET}_set": secret_set})
