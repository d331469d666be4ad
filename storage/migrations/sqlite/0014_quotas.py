"""Quotas of organizations, and their usage, which triggers update."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

COUNTED = {
    "agents": "agents",
    "tools": "tools",
    "documents": "knowledge_documents",
    "sounds": "background_sounds",
    "phone_numbers": "phone_numbers",
}
SOUND_BYTES_PER_MS = 32
"""Bytes per ms of a stored loop: 16-bit samples at 16 kHz."""
ANSWER = "length({row}.body) + length({row}.key) + length({row}.path)"


def upgrade() -> None:
    """Existing resources count against the quotas, and stay even if they exceed them."""
    op.add_column("organizations", sa.Column("quotas", sa.JSON(none_as_null=True)))
    op.add_column("background_sounds", sa.Column("stored_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(f"UPDATE background_sounds SET stored_bytes = duration_ms * {SOUND_BYTES_PER_MS}")
    op.add_column("knowledge_documents", sa.Column("file_removed_at", sa.BigInteger()))
    op.create_table(
        "recording_sizes",
        sa.Column("call_id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("bytes", sa.BigInteger()),
        sa.ForeignKeyConstraint(["call_id"], ["calls.id"], name="fk_recording_sizes_call_id_calls", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("call_id", name="pk_recording_sizes"),
    )
    op.create_index("ix_recording_sizes_unknown", "recording_sizes", ["call_id"], sqlite_where=sa.text("bytes IS NULL"))
    op.create_table(
        "quota_usage",
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("quota", sa.String(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name="fk_quota_usage_organization_id_organizations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", "quota", name="pk_quota_usage"),
    )
    op.execute("INSERT INTO recording_sizes SELECT id, organization_id, NULL FROM calls WHERE recorded = 1")
    for quota, table in COUNTED.items():
        _follow(quota, table, "1")
    _follow("api_keys", "api_keys", "({row}.revoked_at IS NULL)", changes="revoked_at")
    _follow(
        "document_bytes",
        "knowledge_documents",
        "CASE WHEN {row}.file_removed_at IS NULL THEN {row}.file_size ELSE 0 END",
        changes="file_removed_at",
    )
    _follow("sound_bytes", "background_sounds", "{row}.stored_bytes")
    _follow("idempotent_answer_bytes", "idempotent_answers", ANSWER, changes="body")
    _follow("recording_bytes", "recording_sizes", "coalesce({row}.bytes, 0)", changes="bytes")
    _follow_recordings()


def _follow(quota: str, table: str, worth: str, changes: str | None = None) -> None:
    """Count the existing rows; triggers count every row that is added, removed, or changed in the column `changes`."""
    rows = f"FROM {table} WHERE organization_id IS NOT NULL GROUP BY organization_id"
    op.execute(f"INSERT INTO quota_usage SELECT organization_id, '{quota}', sum({worth.format(row=table)}) {rows}")
    of_new, of_old = worth.format(row="new"), worth.format(row="old")
    op.execute(
        f"CREATE TRIGGER quota_{quota}_added AFTER INSERT ON {table} WHEN new.organization_id IS NOT NULL BEGIN "
        f"INSERT INTO quota_usage(organization_id, quota, used) VALUES (new.organization_id, '{quota}', {of_new}) "
        "ON CONFLICT (organization_id, quota) DO UPDATE SET used = used + excluded.used; END"
    )
    whose = f"WHERE organization_id = old.organization_id AND quota = '{quota}'"
    op.execute(
        f"CREATE TRIGGER quota_{quota}_removed AFTER DELETE ON {table} BEGIN "
        f"UPDATE quota_usage SET used = used - ({of_old}) {whose}; END"
    )
    if changes is not None:
        op.execute(
            f"CREATE TRIGGER quota_{quota}_changed AFTER UPDATE OF {changes} ON {table} BEGIN "
            f"UPDATE quota_usage SET used = used + ({of_new}) - ({of_old}) {whose}; END"
        )


def _follow_recordings() -> None:
    """The size of a new recording is unknown until it is measured."""
    add = "INSERT OR IGNORE INTO recording_sizes(call_id, organization_id) VALUES (new.id, new.organization_id)"
    op.execute(f"CREATE TRIGGER recording_added AFTER INSERT ON calls WHEN new.recorded = 1 BEGIN {add}; END")
    op.execute(
        "CREATE TRIGGER recording_made AFTER UPDATE OF recorded ON calls "
        f"WHEN old.recorded = 0 AND new.recorded = 1 BEGIN {add}; END"
    )
    op.execute(
        "CREATE TRIGGER recording_dropped AFTER UPDATE OF recorded ON calls "
        "WHEN old.recorded = 1 AND new.recorded = 0 BEGIN DELETE FROM recording_sizes WHERE call_id = old.id; END"
    )
