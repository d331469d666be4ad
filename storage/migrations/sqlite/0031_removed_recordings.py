"""When and why a call lost its recording."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Of the recordings that were deleted before, it is not known."""
    op.add_column("calls", sa.Column("recording_removed_at", sa.BigInteger(), nullable=True))
    op.add_column("calls", sa.Column("recording_absent_reason", sa.String(), nullable=True))
