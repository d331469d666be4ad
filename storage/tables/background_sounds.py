"""Background sounds."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization

background_sounds = sa.Table(
    "background_sounds",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization(nullable=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("file_size", sa.Integer, nullable=False),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""`organization_id` is None for the system's presets. The file of a sound lies at `data_dir/sounds/<id>.wav`. A trigger
puts the id of each row that goes into `background_sound_removals`."""

background_sound_removals = sa.Table(
    "background_sound_removals",
    metadata,
    sa.Column("sound_id", Id, primary_key=True),
)
"""Sounds that are gone, and whose file may still be there: the next start removes it."""
