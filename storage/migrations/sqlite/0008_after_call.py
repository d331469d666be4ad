"""Pending finalization: the stored end of a call whose analysis is under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """No end is pending at first."""
    op.add_column("calls", sa.Column("ending", sa.JSON(none_as_null=True)))
