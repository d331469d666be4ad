"""Whether an agent's calls are recorded, and what it says about that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Agents that there are record, as before."""
    op.add_column("agents", sa.Column("recording_enabled", sa.Boolean(), nullable=False, server_default="1"))
    op.add_column("agents", sa.Column("recording_announcement", sa.String()))
