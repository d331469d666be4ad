"""The versions of agents, and the one that a call had."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

PLAIN: Final = (
    "name",
    "system_prompt",
    "slm_model_id",
    "voice_id",
    "voice_speed",
    "voice_stability",
    "turn_endpoint_delay",
    "min_turn_duration",
    "min_interruption_duration",
    "frame_activation_threshold",
    "post_speech_cooldown",
    "ultravad_eot_threshold",
    "speculative_silence_ms",
    "fallback_silence_ms",
    "post_call_webhook_url",
    "post_call_webhook_secret_encrypted",
    "first_speaker",
    "agent_greeting",
    "first_message_delay",
    "max_call_duration_seconds",
    "language_hint",
    "knowledge_search_instructions",
    "background_sound_id",
    "background_sound_volume",
    "hold_message",
    "hold_music_url",
    "customer_silence_ms",
    "voicemail_detection",
    "voicemail_message",
    "recording_announcement",
)
BOOLEANS: Final = (
    "allow_end_call",
    "is_active",
    "post_call_summary_enabled",
    "agent_greeting_enabled",
    "first_message_uninterruptible",
    "record_after_transfer",
    "stay_on_call",
    "recording_enabled",
)
JSON: Final = (
    "post_call_extraction_schema",
    "post_call_webhook_events",
    "tool_ids",
    "transfer_targets",
)
BATCH: Final = 500


def upgrade() -> None:
    """Each agent is its version 1, by nobody known; calls that there are have none."""
    op.add_column("agents", sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("calls", sa.Column("agent_version", sa.Integer()))
    versions = op.create_table(
        "agent_versions",
        sa.Column("agent_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("author", sa.String()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("fields", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name="fk_agent_versions_agent_id_agents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "version", name="pk_agent_versions"),
    )
    agents = sa.table(
        "agents",
        sa.column("id", sa.String()),
        sa.column("updated_at", sa.BigInteger()),
        *(sa.column(name) for name in PLAIN),
        *(sa.column(name, sa.Boolean()) for name in BOOLEANS),
        *(sa.column(name, sa.JSON(none_as_null=True)) for name in JSON),
    )
    conn = op.get_bind()
    ids = conn.execute(sa.select(agents.c.id)).scalars().all()
    for at in range(0, len(ids), BATCH):
        rows = conn.execute(sa.select(agents).where(agents.c.id.in_(ids[at : at + BATCH]))).mappings().all()
        first = [
            {
                "agent_id": row["id"],
                "version": 1,
                "created_at": row["updated_at"],
                "changes": [],
                "fields": _compressed({name: row[name] for name in (*PLAIN, *BOOLEANS, *JSON)}),
            }
            for row in rows
        ]
        conn.execute(sa.insert(versions), first)


def _compressed(fields: dict[str, Any]) -> bytes:
    return zlib.compress(json.dumps(fields).encode(), 1)
