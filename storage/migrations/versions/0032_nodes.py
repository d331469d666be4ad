"""Nodes that share the database, their leases, and the node of each call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ID = sa.String(length=36).with_variant(sa.String(length=36, collation="C"), "postgresql")


def upgrade() -> None:
    """Calls of earlier versions have no node."""
    op.create_table(
        "nodes",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("instance", ID, nullable=False),
        sa.Column("url", TEXT),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    op.create_table(
        "leases",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("instance", ID, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_index("ix_leases_instance", "leases", ["instance"])
    op.add_column("calls", sa.Column("node", TEXT))
    live = sa.text("ended_at IS NULL")
    op.create_index("ix_calls_live_node", "calls", ["node"], sqlite_where=live, postgresql_where=live)
