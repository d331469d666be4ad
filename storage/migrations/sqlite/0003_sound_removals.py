"""A trigger lists the files of deleted background sounds, which are to be removed, as for knowledge documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """The file of a row is listed whether the row is deleted by itself or with its organization."""
    op.create_table(
        "background_sound_removals",
        sa.Column("sound_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("sound_id", name="pk_background_sound_removals"),
    )
    op.execute(
        "CREATE TRIGGER background_sounds_removed AFTER DELETE ON background_sounds BEGIN "
        "INSERT OR IGNORE INTO background_sound_removals(sound_id) VALUES (old.id); END"
    )
