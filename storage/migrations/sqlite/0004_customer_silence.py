"""The time that an agent waits for a silent caller, `customer_silence_ms`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Existing agents get the default of new ones."""
    op.add_column("agents", sa.Column("customer_silence_ms", sa.Integer(), nullable=False, server_default="10000"))
