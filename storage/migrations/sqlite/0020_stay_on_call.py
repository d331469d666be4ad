"""Whether an agent transcribes the caller and the target of a transfer after they were connected."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Agents that there are do not."""
    op.add_column("agents", sa.Column("stay_on_call", sa.Boolean(), nullable=False, server_default="0"))
