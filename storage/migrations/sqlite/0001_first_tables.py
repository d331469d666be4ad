"""The first tables: organizations, API keys, agents, phone numbers, calls and the webhook outbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables, those first that others refer to."""
    _facts()
    _organizations()
    _agents()
    _api_keys()
    _calls()
    _phone_numbers()
    _webhook_deliveries()
    _webhook_attempts()


def _facts() -> None:
    op.create_table(
        "facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_facts"),
    )


def _organizations() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("balance", sa.Numeric(precision=18, scale=6, asdecimal=False), nullable=False),
        sa.Column("max_calls", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
        sa.UniqueConstraint("name", name="uq_organizations_name"),
    )


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("name_folded", sa.String(), nullable=False),
        sa.Column("system_prompt", sa.String(), nullable=True),
        sa.Column("slm_model_id", sa.String(length=36), nullable=True),
        sa.Column("voice_id", sa.String(length=36), nullable=True),
        sa.Column("voice_speed", sa.Float(), nullable=False),
        sa.Column("voice_stability", sa.Float(), nullable=False),
        sa.Column("turn_endpoint_delay", sa.Integer(), nullable=True),
        sa.Column("min_turn_duration", sa.Integer(), nullable=True),
        sa.Column("min_interruption_duration", sa.Integer(), nullable=True),
        sa.Column("frame_activation_threshold", sa.Float(), nullable=True),
        sa.Column("post_speech_cooldown", sa.Integer(), nullable=True),
        sa.Column("ultravad_eot_threshold", sa.Float(), nullable=True),
        sa.Column("speculative_silence_ms", sa.Integer(), nullable=True),
        sa.Column("fallback_silence_ms", sa.Integer(), nullable=True),
        sa.Column("allow_end_call", sa.Boolean(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("post_call_summary_enabled", sa.Boolean(), nullable=False),
        sa.Column("post_call_extraction_schema", sa.JSON(), nullable=False),
        sa.Column("post_call_webhook_url", sa.String(), nullable=True),
        sa.Column("post_call_webhook_secret_encrypted", sa.String(), nullable=True),
        sa.Column("first_speaker", sa.String(), nullable=False),
        sa.Column("agent_greeting", sa.String(), nullable=True),
        sa.Column("agent_greeting_enabled", sa.Boolean(), nullable=False),
        sa.Column("first_message_uninterruptible", sa.Boolean(), nullable=False),
        sa.Column("first_message_delay", sa.Integer(), nullable=False),
        sa.Column("max_call_duration_seconds", sa.Integer(), nullable=False),
        sa.Column("language_hint", sa.String(), nullable=True),
        sa.Column("knowledge_search_instructions", sa.String(), nullable=True),
        sa.Column("background_sound_id", sa.String(length=36), nullable=True),
        sa.Column("background_sound_volume", sa.Float(), nullable=False),
        sa.Column("hold_message", sa.String(), nullable=True),
        sa.Column("hold_music_url", sa.String(), nullable=True),
        sa.Column("tool_ids", sa.JSON(), nullable=True),
        sa.Column("transfer_targets", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_agents_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
    )
    op.create_index(
        "ix_agents_organization_id_created_at_id", "agents", ["organization_id", "created_at", "id"], unique=False
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_api_keys_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("sha256", name="uq_api_keys_sha256"),
    )
    op.create_index(
        "ix_api_keys_organization_id_created_at", "api_keys", ["organization_id", "created_at"], unique=False
    )


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("agent_id", sa.String(length=36), nullable=True),
        sa.Column("phone_number_id", sa.String(length=36), nullable=True),
        sa.Column("call_sid", sa.String(), nullable=True),
        sa.Column("provider", sa.String(), nullable=True),
        sa.Column("direction", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("customer_number", sa.String(), nullable=False),
        sa.Column("duration_seconds", sa.Integer(), nullable=True),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("turn_count", sa.Integer(), nullable=False),
        sa.Column("transcript", sa.JSON(), nullable=False),
        sa.Column("analysis", sa.JSON(), nullable=True),
        sa.Column("ended_reason", sa.String(), nullable=True),
        sa.Column("context_variables", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("parent_call_id", sa.String(length=36), nullable=True),
        sa.Column("transfer_type", sa.String(), nullable=True),
        sa.Column("transfer_status", sa.String(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_calls_organization_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["parent_call_id"], ["calls.id"], name="fk_calls_parent_call_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_calls"),
    )
    op.create_index(
        "ix_calls_live",
        "calls",
        ["status"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "ix_calls_organization_id_agent_id_created_at",
        "calls",
        ["organization_id", "agent_id", "created_at"],
        unique=False,
    )
    op.create_index(
        "ix_calls_organization_id_created_at_id", "calls", ["organization_id", "created_at", "id"], unique=False
    )
    op.create_index("ix_calls_parent_call_id", "calls", ["parent_call_id"], unique=False)


def _phone_numbers() -> None:
    op.create_table(
        "phone_numbers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("number", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("sip_mode", sa.String(), nullable=True),
        sa.Column("agent_id", sa.String(length=36), nullable=True),
        sa.Column("carrier_credentials_encrypted", sa.JSON(), nullable=False),
        sa.Column("sip_username", sa.String(), nullable=True),
        sa.Column("sip_password_encrypted", sa.String(), nullable=True),
        sa.Column("sip_proxy", sa.String(), nullable=True),
        sa.Column("sip_outbound_proxy", sa.String(), nullable=True),
        sa.Column("sip_auth_user", sa.String(), nullable=True),
        sa.Column("sip_ip", sa.String(), nullable=True),
        sa.Column("sip_port", sa.Integer(), nullable=True),
        sa.Column("sip_protocol", sa.String(), nullable=True),
        sa.Column("sip_register_transport", sa.String(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_phone_numbers_agent_id", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_phone_numbers_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_phone_numbers"),
        sa.UniqueConstraint("number", "source", name="uq_phone_numbers_number_source"),
        sa.UniqueConstraint("organization_id", "number", name="uq_phone_numbers_organization_id_number"),
    )
    op.create_index("ix_phone_numbers_agent_id", "phone_numbers", ["agent_id"], unique=False)
    op.create_index(
        "ix_phone_numbers_organization_id_created_at_id",
        "phone_numbers",
        ["organization_id", "created_at", "id"],
        unique=False,
    )


def _webhook_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("call_id", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("secret_encrypted", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["calls.id"], name="fk_webhook_deliveries_call_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_webhook_deliveries_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sa.UniqueConstraint("call_id", "event", name="uq_webhook_deliveries_call_id_event"),
    )
    op.create_index("ix_webhook_deliveries_next_attempt_at", "webhook_deliveries", ["next_attempt_at"], unique=False)


def _webhook_attempts() -> None:
    op.create_table(
        "webhook_attempts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("delivery_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_body", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("manual", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["webhook_deliveries.id"], name="fk_webhook_attempts_delivery_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_attempts"),
    )
    op.create_index(
        "ix_webhook_attempts_delivery_id_attempt", "webhook_attempts", ["delivery_id", "attempt"], unique=False
    )
