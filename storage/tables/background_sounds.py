"""Background sounds."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

background_sounds = sa.Table(
    "background_sounds",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(nullable=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("file_size", sa.Integer, nullable=False),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""`organization_id` is None for presets. The file of a sound is `data_dir/sounds/<id>.wav`. A trigger inserts the id of
each deleted row into `background_sound_removals`."""

background_sound_removals = sa.Table(
    "background_sound_removals",
    metadata,
    sa.Column("sound_id", Id, primary_key=True),
)
"""Deleted sounds whose file is still to be removed, by the next start."""
