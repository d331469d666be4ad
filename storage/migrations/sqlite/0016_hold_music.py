"""The music of agents' `holdMusicUrl`, fetched when an agent is saved. It lives while an agent uses it, and counts as
bytes of sounds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

REMOVE_UNUSED = (
    "DELETE FROM hold_music WHERE id = old.hold_music_id "
    "AND NOT EXISTS (SELECT 1 FROM agents WHERE hold_music_id = old.hold_music_id)"
)


def upgrade() -> None:
    """No music has been fetched for the URLs that exist: their agents have the built-in one until they are saved."""
    op.create_table(
        "hold_music",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name="fk_hold_music_organization_id_organizations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_hold_music"),
        sa.UniqueConstraint("organization_id", "content_sha256", name="uq_hold_music_organization_id_content_sha256"),
    )
    op.add_column("agents", sa.Column("hold_music_id", sa.String(length=36)))
    op.create_index(
        "ix_agents_hold_music_id", "agents", ["hold_music_id"], sqlite_where=sa.text("hold_music_id IS NOT NULL")
    )
    op.execute(
        "CREATE TRIGGER hold_music_replaced AFTER UPDATE OF hold_music_id ON agents "
        f"WHEN old.hold_music_id IS NOT NULL BEGIN {REMOVE_UNUSED}; END"
    )
    op.execute(
        "CREATE TRIGGER hold_music_of_deleted_agent AFTER DELETE ON agents "
        f"WHEN old.hold_music_id IS NOT NULL BEGIN {REMOVE_UNUSED}; END"
    )
    op.execute(
        "CREATE TRIGGER hold_music_removed AFTER DELETE ON hold_music BEGIN "
        "INSERT OR IGNORE INTO background_sound_removals(sound_id) VALUES (old.id); END"
    )
    _count_bytes()


def _count_bytes() -> None:
    op.execute(
        "CREATE TRIGGER quota_hold_music_bytes_added AFTER INSERT ON hold_music BEGIN "
        "INSERT INTO quota_usage(organization_id, quota, used) "
        "VALUES (new.organization_id, 'sound_bytes', new.stored_bytes) "
        "ON CONFLICT (organization_id, quota) DO UPDATE SET used = used + excluded.used; END"
    )
    op.execute(
        "CREATE TRIGGER quota_hold_music_bytes_removed AFTER DELETE ON hold_music BEGIN "
        "UPDATE quota_usage SET used = used - old.stored_bytes "
        "WHERE organization_id = old.organization_id AND quota = 'sound_bytes'; END"
    )
