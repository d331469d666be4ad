"""Billing: usage and cost of calls, and balances."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Balances become whole millionths, and each later change of a balance gets a row. The old column is not altered in
    place, because SQLite would have to create the table again, which all other tables refer to."""
    op.add_column("calls", sa.Column("usage", sa.JSON()))
    op.add_column("organizations", sa.Column("balance_millionths", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE organizations SET balance_millionths = CAST(ROUND(balance * 1000000) AS BIGINT)")
    op.execute("ALTER TABLE organizations DROP COLUMN balance")
    op.execute("ALTER TABLE organizations RENAME COLUMN balance_millionths TO balance")
    op.create_table(
        "balance_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("balance_after", sa.BigInteger(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("call_id", sa.String(length=36)),
        sa.Column("note", sa.String()),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_balance_changes_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_balance_changes"),
        sa.UniqueConstraint("call_id", name="uq_balance_changes_call_id"),
    )
    op.create_index("ix_balance_changes_organization_id_id", "balance_changes", ["organization_id", "id"])
    op.execute(
        sa.text(
            "INSERT INTO balance_changes (organization_id, created_at, amount, balance_after, made_by, note) "
            "SELECT id, :now, balance, balance, 'server', 'what was there before changes were kept' "
            "FROM organizations WHERE balance <> 0"
        ).bindparams(now=int(time.time() * 1000))
    )
