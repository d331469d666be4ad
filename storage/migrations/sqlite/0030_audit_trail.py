"""Who made a change, and to which object, in the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Earlier entries keep the name of their actor alone; those of a call are about the call."""
    with op.batch_alter_table("audit_entries") as entries:
        entries.add_column(sa.Column("actor_type", sa.String(), nullable=True))
        entries.add_column(sa.Column("actor_id", sa.String(length=36), nullable=True))
        entries.add_column(sa.Column("object_type", sa.String(), nullable=True))
        entries.add_column(sa.Column("object_id", sa.String(length=36), nullable=True))
        entries.add_column(sa.Column("object_name", sa.String(), nullable=True))
        entries.add_column(sa.Column("fields", sa.JSON(), nullable=False, server_default="[]"))
        entries.add_column(sa.Column("client", sa.String(), nullable=True))
    op.execute("UPDATE audit_entries SET object_type = 'call', object_id = call_id WHERE call_id IS NOT NULL")
    with op.batch_alter_table("audit_entries") as entries:
        entries.drop_column("call_id")
    op.create_index("ix_audit_entries_created_at_id", "audit_entries", ["created_at", "id"], unique=False)
