"""The node whose disk has a call's recording, so that this one removes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0035"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
NODE = "coalesce(old.recording_node, old.node)"
REMOVAL = f"recording_removals(call_id, created_at, node) VALUES (old.id, old.created_at, {NODE})"


def upgrade() -> None:
    """Removals of earlier versions have no node: each node may do them."""
    op.add_column("calls", sa.Column("recording_node", TEXT))
    op.add_column("recording_removals", sa.Column("node", TEXT))
    op.create_index("ix_recording_removals_node", "recording_removals", ["node"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION recording_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"INSERT INTO {REMOVAL} ON CONFLICT DO NOTHING; RETURN NULL; END $$"
        )
        return
    op.execute("DROP TRIGGER calls_removed")
    op.execute("DROP TRIGGER calls_unrecorded")
    op.execute(f"CREATE TRIGGER calls_removed AFTER DELETE ON calls BEGIN INSERT OR IGNORE INTO {REMOVAL}; END")
    op.execute(
        "CREATE TRIGGER calls_unrecorded AFTER UPDATE OF recorded ON calls "
        f"WHEN old.recorded = 1 AND new.recorded = 0 BEGIN INSERT OR IGNORE INTO {REMOVAL}; END"
    )
