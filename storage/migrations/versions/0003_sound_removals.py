"""What deleted background sounds leave behind is noted, as for knowledge documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """However a row goes, by itself or with its organization, its file is to be removed."""
    op.create_table(
        "background_sound_removals",
        sa.Column("sound_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("sound_id", name="pk_background_sound_removals"),
    )
    op.execute(
        "CREATE TRIGGER background_sounds_removed AFTER DELETE ON background_sounds BEGIN "
        "INSERT OR IGNORE INTO background_sound_removals(sound_id) VALUES (old.id); END"
    )
