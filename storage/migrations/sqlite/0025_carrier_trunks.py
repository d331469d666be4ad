"""The trunk that a number has from its provider."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """No number has one yet: the next start gives it to those whose provider is configured."""
    op.add_column("phone_numbers", sa.Column("carrier_trunk", sa.JSON()))
