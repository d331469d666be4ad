"""What organizations use. Triggers keep both tables."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, metadata, organization

quota_usage = sa.Table(
    "quota_usage",
    metadata,
    organization(primary_key=True),
    sa.Column("quota", sa.String, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)
"""How much of a quota (`storage.accounts.quotas`) is used; no row where nothing ever was."""

recording_sizes = sa.Table(
    "recording_sizes",
    metadata,
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("organization_id", Id, nullable=False),
    sa.Column("bytes", sa.BigInteger),
    sa.Index("ix_recording_sizes_unknown", "call_id", sqlite_where=sa.text("bytes IS NULL")),
)
"""Every recording that counts; `bytes` is null until somebody has looked."""
