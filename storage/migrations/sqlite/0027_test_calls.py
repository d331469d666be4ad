"""Test calls, and whether their events are sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Web calls of the time before are test calls, whose metadata says whether their events are sent."""
    op.add_column("calls", sa.Column("test", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("calls", sa.Column("deliver_webhook", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.execute(
        "UPDATE calls SET test = 1, deliver_webhook = coalesce(json_extract(metadata, '$.deliverWebhook'), 0) "
        "WHERE provider = 'web'"
    )
