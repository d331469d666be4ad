"""Tables and schemas of the FastAPI server of the API benchmark: ORM classes and pydantic models, written as in the
FastAPI and SQLAlchemy tutorials."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

T = TypeVar("T")
Json = dict[str, Any]
Probability = Annotated[float, Field(ge=0, le=1)]


def new_id() -> str:
    """A random UUID."""
    return str(uuid4())


def now() -> datetime:
    """UTC."""
    return datetime.now(UTC)


class Base(DeclarativeBase):
    """JSON columns are dictionaries and lists."""

    type_annotation_map = {Json: sa.JSON, list[Json]: sa.JSON, list[str]: sa.JSON}  # noqa: RUF012


class StoredApiKey(Base):
    """A key is stored as its SHA-256."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[str]
    sha256: Mapped[str] = mapped_column(unique=True)
    revoked_at: Mapped[datetime | None]


class StoredAgent(Base):
    """An agent."""

    __tablename__ = "agents"
    __table_args__ = (sa.Index("ix_agents", "organization_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[str]
    name: Mapped[str]
    system_prompt: Mapped[str | None]
    slm_model_id: Mapped[str | None]
    voice_id: Mapped[str | None]
    voice_speed: Mapped[float]
    voice_stability: Mapped[float]
    turn_endpoint_delay: Mapped[int | None]
    min_turn_duration: Mapped[int | None]
    min_interruption_duration: Mapped[int | None]
    frame_activation_threshold: Mapped[float | None]
    post_speech_cooldown: Mapped[int | None]
    ultravad_eot_threshold: Mapped[float | None]
    speculative_silence_ms: Mapped[int | None]
    fallback_silence_ms: Mapped[int | None]
    allow_end_call: Mapped[bool]
    is_active: Mapped[bool]
    post_call_summary_enabled: Mapped[bool]
    post_call_extraction_schema: Mapped[list[Json]]
    post_call_webhook_url: Mapped[str | None]
    post_call_webhook_secret: Mapped[str | None]
    first_speaker: Mapped[str]
    agent_greeting: Mapped[str | None]
    agent_greeting_enabled: Mapped[bool]
    first_message_uninterruptible: Mapped[bool]
    first_message_delay: Mapped[int]
    max_call_duration_seconds: Mapped[int]
    language_hint: Mapped[str | None]
    knowledge_search_instructions: Mapped[str | None]
    background_sound_id: Mapped[str | None]
    background_sound_volume: Mapped[float]
    hold_message: Mapped[str | None]
    hold_music_url: Mapped[str | None]
    tool_ids: Mapped[list[str] | None]
    transfer_targets: Mapped[list[Json]]
    customer_silence_ms: Mapped[int]
    record_after_transfer: Mapped[bool]
    voicemail_detection: Mapped[str]
    voicemail_message: Mapped[str | None]
    stay_on_call: Mapped[bool]
    recording_enabled: Mapped[bool]
    recording_announcement: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now)

    @property
    def post_call_webhook_secret_set(self) -> bool:
        """True if there is a secret; the secret itself is never returned."""
        return self.post_call_webhook_secret is not None


class StoredCall(Base):
    """A call with its transcript."""

    __tablename__ = "calls"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[str]
    agent_id: Mapped[str | None]
    phone_number_id: Mapped[str | None]
    call_sid: Mapped[str | None]
    provider: Mapped[str | None]
    direction: Mapped[str]
    status: Mapped[str]
    customer_number: Mapped[str]
    duration_seconds: Mapped[int | None]
    recording_url: Mapped[str | None]
    turn_count: Mapped[int]
    ended_reason: Mapped[str | None]
    context_variables: Mapped[Json]
    call_metadata: Mapped[Json] = mapped_column("metadata")
    parent_call_id: Mapped[str | None]
    transfer_type: Mapped[str | None]
    transfer_status: Mapped[str | None]
    transfer_calls: Mapped[list[Json]]
    transcript: Mapped[list[Json]]
    analysis: Mapped[Json | None]
    media_quality: Mapped[Json | None]
    sip_end: Mapped[Json | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class In(BaseModel):
    """A request body: camelCase, unknown fields are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class Out(BaseModel):
    """Part of a response: read from ORM objects, serialized in camelCase."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel), from_attributes=True)


class ExtractionFieldIn(In):
    """One value that is extracted from the transcript."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    description: Annotated[str, Field(max_length=2000)]
    type: Literal["string", "boolean", "number"]


class TransferTargetIn(In):
    """A destination to which a call may be transferred."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    description: Annotated[str, Field(max_length=2000)]
    number: str
    mode: Literal["cold", "warm_briefing", "warm_announce", "attended"]
    phone_number_id: str | None = None


class AgentIn(In):
    """A new agent."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    system_prompt: Annotated[str, Field(max_length=32000)] | None = None
    slm_model_id: UUID | None = None
    voice_id: UUID | None = None
    voice_speed: Annotated[float, Field(ge=0.6, le=1.5)] = 1
    voice_stability: Probability = 0.5
    turn_endpoint_delay: Annotated[int, Field(ge=50, le=2000)] | None = 100
    min_turn_duration: Annotated[int, Field(ge=0, le=2000)] | None = 50
    min_interruption_duration: Annotated[int, Field(ge=0, le=2000)] | None = 100
    frame_activation_threshold: Probability | None = 0.35
    post_speech_cooldown: Annotated[int, Field(ge=0, le=5000)] | None = 400
    ultravad_eot_threshold: Probability | None = 0.1
    speculative_silence_ms: Annotated[int, Field(ge=0, le=5000)] | None = 150
    fallback_silence_ms: Annotated[int, Field(ge=0, le=10000)] | None = 3000
    allow_end_call: bool = True
    is_active: bool = True
    post_call_summary_enabled: bool = False
    post_call_extraction_schema: Annotated[list[ExtractionFieldIn], Field(max_length=100)] = []
    post_call_webhook_url: str | None = None
    post_call_webhook_secret: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    first_speaker: Literal["user", "agent"] = "user"
    agent_greeting: Annotated[str, Field(max_length=1000)] | None = None
    agent_greeting_enabled: bool = False
    first_message_uninterruptible: bool = False
    first_message_delay: Annotated[int, Field(ge=0, le=10000)] = 0
    max_call_duration_seconds: Annotated[int, Field(ge=30, le=3600)] = 600
    language_hint: Annotated[str, Field(max_length=10)] | None = None
    knowledge_search_instructions: Annotated[str, Field(max_length=2000)] | None = None
    background_sound_id: UUID | None = None
    background_sound_volume: Probability = 0.15
    hold_message: Annotated[str, Field(max_length=500)] | None = None
    hold_music_url: Annotated[str, Field(max_length=500)] | None = None
    tool_ids: Annotated[list[UUID], Field(max_length=500)] | None = None
    transfer_targets: Annotated[list[TransferTargetIn], Field(max_length=64)] = []
    customer_silence_ms: Annotated[int, Field(ge=0, le=60_000)] = 10_000
    record_after_transfer: bool = True
    voicemail_detection: Literal["off", "detect", "leave_message"] = "off"
    voicemail_message: Annotated[str, Field(max_length=500)] | None = None
    stay_on_call: bool = False
    recording_enabled: bool = True
    recording_announcement: Annotated[str, Field(max_length=500)] | None = None


class AgentOut(Out):
    """An agent in a response."""

    id: str
    name: str
    system_prompt: str | None
    slm_model_id: str | None
    voice_id: str | None
    voice_speed: float
    voice_stability: float
    turn_endpoint_delay: int | None
    min_turn_duration: int | None
    min_interruption_duration: int | None
    frame_activation_threshold: float | None
    post_speech_cooldown: int | None
    ultravad_eot_threshold: float | None
    speculative_silence_ms: int | None
    fallback_silence_ms: int | None
    allow_end_call: bool
    is_active: bool
    post_call_summary_enabled: bool
    post_call_extraction_schema: list[ExtractionFieldIn]
    post_call_webhook_url: str | None
    post_call_webhook_secret_set: bool
    first_speaker: Literal["user", "agent"]
    agent_greeting: str | None
    agent_greeting_enabled: bool
    first_message_uninterruptible: bool
    first_message_delay: int
    max_call_duration_seconds: int
    language_hint: str | None
    knowledge_search_instructions: str | None
    background_sound_id: str | None
    background_sound_volume: float
    hold_message: str | None
    hold_music_url: str | None
    tool_ids: list[str] | None
    transfer_targets: list[TransferTargetIn]
    customer_silence_ms: int
    record_after_transfer: bool
    voicemail_detection: Literal["off", "detect", "leave_message"]
    voicemail_message: str | None
    stay_on_call: bool
    recording_enabled: bool
    recording_announcement: str | None
    created_at: datetime
    updated_at: datetime


class TranscriptItemOut(Out):
    """One item of the transcript."""

    role: Literal["user", "assistant"]
    content: str


class AnalysisOut(Out):
    """Summary and extracted values of the transcript."""

    summary: str | None
    extractions: Json


class CallOut(Out):
    """A call in a response."""

    id: str
    organization_id: str
    agent_id: str | None
    phone_number_id: str | None
    call_sid: str | None
    provider: str | None
    direction: str
    status: str
    customer_number: str
    duration_seconds: int | None
    recording_url: str | None
    turn_count: int
    ended_reason: str | None
    context_variables: Json
    metadata: Json = Field(validation_alias="call_metadata")
    parent_call_id: str | None
    transfer_type: str | None
    transfer_status: str | None
    transfer_calls: list[Json]
    transcript: list[TranscriptItemOut]
    analysis: AnalysisOut | None
    media_quality: Json | None
    sip_end: Json | None
    started_at: datetime | None
    ended_at: datetime | None
    created_at: datetime


class Pagination(Out):
    """Limit, offset and total of a page."""

    total: int
    limit: int
    offset: int


class DataResponse(Out, Generic[T]):
    """The response with one resource."""

    data: T


class PageResponse(Out, Generic[T]):
    """The response with a page of a list."""

    data: list[T]
    pagination: Pagination
