"""Usage of quotas. Triggers update both tables."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, metadata, organization_column, partial_index

quota_usage = sa.Table(
    "quota_usage",
    metadata,
    organization_column(primary_key=True),
    sa.Column("quota", sa.String, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)
"""The usage of a quota (`storage.accounts.quotas`); no row where it was never above zero."""

recording_sizes = sa.Table(
    "recording_sizes",
    metadata,
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("organization_id", Id, nullable=False),
    sa.Column("bytes", sa.BigInteger),
    partial_index("ix_recording_sizes_unknown", "call_id", where="bytes IS NULL"),
)
"""The sizes of recordings that count; `bytes` is null until it is measured."""
