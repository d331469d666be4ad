"""Snapshots of deleted agents, for their live calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """There are no snapshots at first."""
    op.add_column("calls", sa.Column("kept_agent", sa.JSON(none_as_null=True)))
