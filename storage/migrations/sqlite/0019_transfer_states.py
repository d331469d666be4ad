"""The times of each status of a transfer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Transfers that exist have none."""
    op.add_column("transfers", sa.Column("states", sa.JSON(), nullable=False, server_default="[]"))
