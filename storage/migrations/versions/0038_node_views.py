"""What each node reports of itself, and the statuses of the trunks that it registers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Nodes of earlier versions report nothing."""
    op.add_column("nodes", sa.Column("report", sa.JSON()))
    op.create_table(
        "trunk_statuses",
        sa.Column("trunk", TEXT, nullable=False),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("detail", TEXT),
        sa.Column("since", sa.BigInteger()),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("trunk", name="pk_trunk_statuses"),
    )
    op.create_index("ix_trunk_statuses_updated_at", "trunk_statuses", ["updated_at"])
