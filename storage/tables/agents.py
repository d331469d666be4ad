"""Agents and their tools."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("name_folded", sa.String, nullable=False),
    sa.Column("system_prompt", sa.String),
    sa.Column("slm_model_id", Id),
    sa.Column("voice_id", Id),
    sa.Column("voice_speed", sa.Float, nullable=False),
    sa.Column("voice_stability", sa.Float, nullable=False),
    sa.Column("turn_endpoint_delay", sa.Integer),
    sa.Column("min_turn_duration", sa.Integer),
    sa.Column("min_interruption_duration", sa.Integer),
    sa.Column("frame_activation_threshold", sa.Float),
    sa.Column("post_speech_cooldown", sa.Integer),
    sa.Column("ultravad_eot_threshold", sa.Float),
    sa.Column("speculative_silence_ms", sa.Integer),
    sa.Column("fallback_silence_ms", sa.Integer),
    sa.Column("allow_end_call", sa.Boolean, nullable=False),
    sa.Column("is_active", sa.Boolean, nullable=False),
    sa.Column("post_call_summary_enabled", sa.Boolean, nullable=False),
    sa.Column("post_call_extraction_schema", sa.JSON, nullable=False),
    sa.Column("post_call_webhook_url", sa.String),
    sa.Column("post_call_webhook_secret_encrypted", sa.String),
    sa.Column("first_speaker", sa.String, nullable=False),
    sa.Column("agent_greeting", sa.String),
    sa.Column("agent_greeting_enabled", sa.Boolean, nullable=False),
    sa.Column("first_message_uninterruptible", sa.Boolean, nullable=False),
    sa.Column("first_message_delay", sa.Integer, nullable=False),
    sa.Column("max_call_duration_seconds", sa.Integer, nullable=False),
    sa.Column("language_hint", sa.String),
    sa.Column("knowledge_search_instructions", sa.String),
    sa.Column("background_sound_id", Id),
    sa.Column("background_sound_volume", sa.Float, nullable=False),
    sa.Column("hold_message", sa.String),
    sa.Column("hold_music_url", sa.String),
    sa.Column("tool_ids", sa.JSON(none_as_null=True)),
    sa.Column("transfer_targets", sa.JSON, nullable=False),
    sa.Column("customer_silence_ms", sa.Integer, nullable=False, server_default="10000"),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)

tools = sa.Table(
    "tools",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("type", sa.String, nullable=False),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""Header values in `config` may be credentials: they are stored as `Secrets.encrypt` tokens."""
