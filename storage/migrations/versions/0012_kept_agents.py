"""What a call that goes on keeps of its agent, when that is deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """No agent of a call that goes on has been deleted at first."""
    op.add_column("calls", sa.Column("kept_agent", sa.JSON(none_as_null=True)))
