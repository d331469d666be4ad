"""Transfers of calls, and how a number's calls are transferred."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_ID = sa.String(length=36)


def upgrade() -> None:
    """Numbers and agents that there are have the defaults of new ones; no call has been transferred."""
    op.create_table(
        "transfers",
        sa.Column("id", _ID, nullable=False),
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("parent_call_id", _ID, nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("target_name", sa.String(), nullable=False),
        sa.Column("number", sa.String(), nullable=False),
        sa.Column("reason", sa.String()),
        sa.Column("summary", sa.String()),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("sip_status", sa.Integer()),
        sa.Column("decline_reason", sa.String()),
        sa.Column("attempts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger()),
        sa.Column("connected_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name="fk_transfers_organization_id_organizations",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["parent_call_id"], ["calls.id"], name="fk_transfers_parent_call_id_calls", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_transfers"),
    )
    op.create_index("ix_transfers_parent_call_id", "transfers", ["parent_call_id"])
    op.create_index("ix_transfers_open", "transfers", ["status"], sqlite_where=sa.text("ended_at IS NULL"))
    method = sa.Column("sip_transfer_method", sa.String(), nullable=False, server_default="auto")
    op.add_column("phone_numbers", method)
    op.add_column("agents", sa.Column("record_after_transfer", sa.Boolean(), nullable=False, server_default="1"))
