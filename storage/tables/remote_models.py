"""Models on other machines."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import UtcTime, metadata

remote_models = sa.Table(
    "remote_models",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    *(sa.Column(name, sa.String, nullable=False) for name in ("kind", "base_url", "model")),
    sa.Column("key_encrypted", sa.String),
    sa.Column("context_length", sa.Integer),
    *(sa.Column(name, sa.JSON, nullable=False) for name in ("voices", "limits", "extra")),
    sa.Column("created_at", UtcTime, nullable=False),
)
