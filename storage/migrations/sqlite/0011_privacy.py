"""Retention periods and redaction of calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """By default everything is kept for ever and nothing is redacted. Triggers list the file of a recording for removal
    when its call is deleted, by itself or with its organization, and when the call loses its recording."""
    for name in ("keep_recordings_days", "keep_transcripts_days", "keep_calls_days"):
        op.add_column("organizations", sa.Column(name, sa.Integer()))
    for name in ("redact", "redact_dialled"):
        op.add_column("organizations", sa.Column(name, sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("calls", sa.Column("talk_removed_at", sa.BigInteger()))
    op.create_index(
        "ix_calls_with_recording", "calls", ["organization_id", "ended_at"], sqlite_where=sa.text("recorded = 1")
    )
    op.create_index(
        "ix_calls_with_talk",
        "calls",
        ["organization_id", "ended_at"],
        sqlite_where=sa.text("talk_removed_at IS NULL AND ended_at IS NOT NULL"),
    )
    op.create_table(
        "recording_removals",
        sa.Column("call_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("call_id", name="pk_recording_removals"),
    )
    note = "INSERT OR IGNORE INTO recording_removals(call_id, created_at) VALUES (old.id, old.created_at)"
    op.execute(f"CREATE TRIGGER calls_removed AFTER DELETE ON calls BEGIN {note}; END")
    op.execute(
        "CREATE TRIGGER calls_unrecorded AFTER UPDATE OF recorded ON calls "
        f"WHEN old.recorded = 1 AND new.recorded = 0 BEGIN {note}; END"
    )
