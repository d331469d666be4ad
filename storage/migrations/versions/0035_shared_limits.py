"""Limits that nodes share, and indexes of the rows that are deleted with an organization."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0032"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """The table is empty where there is one server."""
    op.create_table(
        "shared_limits",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("drawn", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_shared_limits"),
    )
    op.create_index("ix_webhook_deliveries_organization_id", "webhook_deliveries", ["organization_id"])
    op.create_index("ix_transfers_organization_id", "transfers", ["organization_id"])
