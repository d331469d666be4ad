"""Hold music of agents."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

hold_music = sa.Table(
    "hold_music",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("content_sha256", sa.String(64), nullable=False),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.UniqueConstraint("organization_id", "content_sha256"),
)
"""Music fetched from agents' `hold_music_url`; `content_sha256` is that of the fetched file, in hex. The stored file is
`data_dir/sounds/<id>.wav`. Triggers delete a row when the last agent with this `hold_music_id` is deleted or gets
another one, and insert the id of each deleted row into `background_sound_removals`."""
