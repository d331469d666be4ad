"""The fields of an agent that a client sets. The table's columns, the API's view and the defaults of its request bodies
are derived from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired, TypedDict

WebhookEvent = Literal[
    "call.started", "call.answered", "call.transferred", "call.failed", "call.completed", "call.turn"
]
"""An event of a call that a webhook may get."""
CALL_COMPLETED: Final = "call.completed"


class ExtractionField(TypedDict):
    """A value to extract after a call; `type` is string, boolean or number."""

    name: str
    description: str
    type: str


class TransferTarget(TypedDict):
    """Where a call may be transferred to; `mode` is a `storage.calls.transfers.TransferMode`. `phone_number_id`:
    the number whose trunk is used; absent or None: the call's own."""

    name: str
    description: str
    number: str
    mode: str
    phone_number_id: NotRequired[str | None]


@dataclass(frozen=True, kw_only=True)
class AgentFields:
    """Fields that a client sets, in the order of the API's table. Delays and durations in ms unless the name says
    seconds, thresholds are probabilities 0..1; None in a turn setting disables that step."""

    name: str
    system_prompt: str | None = None
    slm_model_id: str | None = None
    voice_id: str | None = None
    voice_speed: float = 1
    voice_stability: float = 0.5
    turn_endpoint_delay: int | None = 100
    min_turn_duration: int | None = 50
    min_interruption_duration: int | None = 100
    frame_activation_threshold: float | None = 0.35
    post_speech_cooldown: int | None = 400
    ultravad_eot_threshold: float | None = 0.1
    speculative_silence_ms: int | None = 150
    fallback_silence_ms: int | None = 3000
    allow_end_call: bool = True
    is_active: bool = True
    post_call_summary_enabled: bool = False
    post_call_extraction_schema: list[ExtractionField] = field(default_factory=list)
    post_call_webhook_url: str | None = None
    post_call_webhook_secret_encrypted: str | None = field(default=None, repr=False)
    post_call_webhook_events: list[WebhookEvent] = field(default_factory=lambda: ["call.completed"])
    first_speaker: Literal["user", "agent"] = "user"
    agent_greeting: str | None = None
    agent_greeting_enabled: bool = False
    first_message_uninterruptible: bool = False
    first_message_delay: int = 0
    max_call_duration_seconds: int = 600
    language_hint: str | None = None
    knowledge_search_instructions: str | None = None
    background_sound_id: str | None = None
    background_sound_volume: float = 0.15
    hold_message: str | None = None
    hold_music_url: str | None = None
    tool_ids: list[str] | None = None
    transfer_targets: list[TransferTarget] = field(default_factory=list)
    customer_silence_ms: int = 10_000
    record_after_transfer: bool = True
    voicemail_detection: Literal["off", "detect", "leave_message"] = "off"
    voicemail_message: str | None = None
    stay_on_call: bool = False
    recording_enabled: bool = True
    recording_announcement: str | None = None
