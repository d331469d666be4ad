"""Every table. Column names equal the attributes of the dataclasses in the files of the resources.

Ids are UUIDs as lower-case text, times whole milliseconds since 1970 UTC (`UtcTime`). Calls keep the ids of agents and
numbers that are deleted later, therefore those two columns are no foreign keys.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from config.clock import whole_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """An aware `datetime`, stored as whole milliseconds since 1970 UTC."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """To milliseconds."""
        return None if value is None else (whole_ms(value) - EPOCH) // timedelta(milliseconds=1)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """From milliseconds."""
        return None if value is None else EPOCH + timedelta(milliseconds=value)


Id = sa.String(36)
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _organization(*, nullable: bool = False, primary_key: bool = False) -> sa.Column[str]:
    owner = sa.ForeignKey("organizations.id", ondelete="CASCADE")
    return sa.Column("organization_id", Id, owner, nullable=nullable, primary_key=primary_key)


facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
"""Facts about the installation itself, for example the proof that the secret key is the right one."""

organizations = sa.Table(
    "organizations",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("plan", sa.String, nullable=False),
    sa.Column("balance", sa.Numeric(18, 6, asdecimal=False), nullable=False),
    sa.Column("max_calls", sa.Integer),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("outbound_prefixes", sa.JSON(none_as_null=True)),
    sa.Column("outbound_per_minute", sa.Integer),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("prefix", sa.String, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("name", sa.String),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("last_used_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
    sa.Index(None, "organization_id", "created_at"),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
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

phone_numbers = sa.Table(
    "phone_numbers",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("name", sa.String),
    sa.Column("number", sa.String, nullable=False),
    sa.Column("provider", sa.String, nullable=False),
    sa.Column("sip_mode", sa.String),
    sa.Column("agent_id", Id, sa.ForeignKey("agents.id", ondelete="SET NULL")),
    sa.Column("carrier_credentials_encrypted", sa.JSON, nullable=False),
    sa.Column("sip_username", sa.String),
    sa.Column("sip_password_encrypted", sa.String),
    sa.Column("sip_proxy", sa.String),
    sa.Column("sip_outbound_proxy", sa.String),
    sa.Column("sip_auth_user", sa.String),
    sa.Column("sip_ip", sa.String),
    sa.Column("sip_port", sa.Integer),
    sa.Column("sip_protocol", sa.String),
    sa.Column("sip_register_transport", sa.String),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("source", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("sip_sources", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("sip_inbound_auth", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_allow_redirect", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_allow_refer", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_qualify_seconds", sa.Integer, nullable=False, server_default="60"),
    sa.Column("outbound_prefixes", sa.JSON(none_as_null=True)),
    sa.Column("outbound_per_minute", sa.Integer),
    sa.UniqueConstraint("organization_id", "number"),
    sa.UniqueConstraint("number", "source"),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "agent_id"),
)
"""`source` is where its calls go, and where most come from: the normal form of `sip_ip`, or of the registrar's host;
None while unset."""

phone_number_sources = sa.Table(
    "phone_number_sources",
    metadata,
    sa.Column("phone_number_id", Id, sa.ForeignKey("phone_numbers.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("source", sa.String, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
    sa.Index(None, "source"),
)
"""Everywhere that a number's calls come from, in normal form: addresses, networks (CIDR) and host names. `since`: when
it was first stored for this number as it is written."""

calls = sa.Table(
    "calls",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("agent_id", Id),
    sa.Column("phone_number_id", Id),
    sa.Column("call_sid", sa.String),
    sa.Column("provider", sa.String),
    sa.Column("direction", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("customer_number", sa.String, nullable=False),
    sa.Column("duration_seconds", sa.Integer),
    sa.Column("cost", sa.Float),
    sa.Column("recorded", sa.Boolean, nullable=False),
    sa.Column("turn_count", sa.Integer, nullable=False),
    sa.Column("transcript", sa.JSON, nullable=False),
    sa.Column("analysis", sa.JSON(none_as_null=True)),
    sa.Column("timeline", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("ended_reason", sa.String),
    sa.Column("context_variables", sa.JSON, nullable=False),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("parent_call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE")),
    sa.Column("transfer_type", sa.String),
    sa.Column("transfer_status", sa.String),
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("media_quality", sa.JSON(none_as_null=True)),
    sa.Column("sip_end", sa.JSON(none_as_null=True)),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "organization_id", "agent_id", "created_at"),
    sa.Index(None, "parent_call_id"),
    sa.Index(
        "ix_calls_live",
        "status",
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
)

call_sip = sa.Table(
    "call_sip",
    metadata,
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("messages", sa.JSON, nullable=False),
    sa.Column("left_out", sa.Integer, nullable=False),
)
"""The SIP messages of ended calls, without their secrets; `left_out` counts those that there was no room for."""

outbound_attempts = sa.Table(
    "outbound_attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("api_key_id", Id),
    sa.Column("api_key_prefix", sa.String),
    sa.Column("client", sa.String),
    sa.Column("phone_number_id", Id),
    sa.Column("number", sa.String),
    sa.Column("call_id", Id),
    sa.Column("destination", sa.String, nullable=False),
    sa.Column("verdict", sa.String, nullable=False),
    sa.Column("detail", sa.String),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "phone_number_id", "created_at"),
    sa.Index(None, "call_id"),
)
"""The audit log: who wanted to have whom called, and what became of it. Rows are never changed, and say themselves what
their ids stood for: a key and a number may be gone before them."""

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), nullable=False),
    sa.Column("event", sa.String, nullable=False),
    sa.Column("url", sa.String, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("secret_encrypted", sa.String),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.UniqueConstraint("call_id", "event"),
)
"""The outbox: one row per event."""

webhook_attempts = sa.Table(
    "webhook_attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("delivery_id", Id, sa.ForeignKey("webhook_deliveries.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("response_status", sa.Integer),
    sa.Column("response_body", sa.String),
    sa.Column("error", sa.String),
    sa.Column("duration_ms", sa.Integer),
    sa.Column("manual", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("next_attempt_at", UtcTime),
    sa.Index(None, "delivery_id", "attempt"),
    sa.Index(
        "ix_webhook_attempts_due",
        "next_attempt_at",
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    ),
)
"""Every sending of an event, made or still to come (`status` is pending)."""

idempotent_answers = sa.Table(
    "idempotent_answers",
    metadata,
    _organization(primary_key=True),
    sa.Column("method", sa.String, primary_key=True),
    sa.Column("path", sa.String, primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Index(None, "created_at"),
)

tools = sa.Table(
    "tools",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("type", sa.String, nullable=False),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""Header values in `config` may be credentials: they are stored as `Secrets.encrypt` tokens."""

knowledge_documents = sa.Table(
    "knowledge_documents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(),
    sa.Column("agent_id", Id, sa.ForeignKey("agents.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("filename", sa.String, nullable=False),
    sa.Column("mime_type", sa.String, nullable=False),
    sa.Column("file_size", sa.Integer, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("chunk_count", sa.Integer, nullable=False),
    sa.Column("error", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "agent_id"),
    sa.Index(None, "status", "created_at"),
)
"""A trigger puts the id of each row that goes into `knowledge_removals`."""

knowledge_chunks = sa.Table(
    "knowledge_chunks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("document_id", Id, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("content", sa.String, nullable=False),
    sa.UniqueConstraint("document_id", "position"),
)
"""The passages of documents. Beside them stands the full-text index `knowledge_index` (FTS5; its rowid is the chunk's
id) with the columns `agent` and `terms`; a trigger removes from it what is removed here. `document_id` is no foreign
key: to remove the chunks of a large document takes seconds, which the writer has only in small pieces."""

knowledge_removals = sa.Table(
    "knowledge_removals",
    metadata,
    sa.Column("document_id", Id, primary_key=True),
)
"""Documents that are gone, and whose chunks and file are still to be removed."""

background_sounds = sa.Table(
    "background_sounds",
    metadata,
    sa.Column("id", Id, primary_key=True),
    _organization(nullable=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("file_size", sa.Integer, nullable=False),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""`organization_id` is None for the system's presets. The file of a sound lies at `data_dir/sounds/<id>.wav`. A trigger
puts the id of each row that goes into `background_sound_removals`."""

background_sound_removals = sa.Table(
    "background_sound_removals",
    metadata,
    sa.Column("sound_id", Id, primary_key=True),
)
"""Sounds that are gone, and whose file may still be there: the next start removes it."""

remote_models = sa.Table(
    "remote_models",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    *(sa.Column(name, sa.String, nullable=False) for name in ("kind", "base_url", "model")),
    sa.Column("key_encrypted", sa.String),
    sa.Column("context_length", sa.Integer),
    *(sa.Column(name, sa.JSON, nullable=False) for name in ("voices", "limits", "extra")),
    sa.Column("created_at", UtcTime, nullable=False),
)
