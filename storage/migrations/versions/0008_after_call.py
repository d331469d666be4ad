"""What is known of a call between its end and its closing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """No call waits at first."""
    op.add_column("calls", sa.Column("ending", sa.JSON(none_as_null=True)))
