"""Sums over ended calls by quarter hours. Triggers update them in the transaction of each end and each deletion of a
call."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, metadata, organization_column

statistics_scopes = sa.Table(
    "statistics_scopes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    organization_column(),
    sa.Column("agent_id", Id, nullable=False),
    sa.Column("phone_number_id", Id, nullable=False),
    sa.Column("direction", sa.String, nullable=False),
    sa.Index(
        "ix_statistics_scopes_key", "organization_id", "agent_id", "phone_number_id", "direction", unique=True
    ),
)  # fmt: skip
"""What is summed separately: the calls of a direction, of all agents and numbers (each ''), or of one; '-': the calls
without one."""

statistics = sa.Table(
    "statistics",
    metadata,
    sa.Column("scope_id", sa.Integer, sa.ForeignKey("statistics_scopes.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("quarter", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("figure", sa.String, primary_key=True),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""`quarter`: quarter hours since 1970 UTC, of the calls' creation. `figure`: `storage.calls.statistics`. Sums of 0 have
no row. Test calls do not count."""
