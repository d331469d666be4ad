"""The caller id of second legs of transfers, by phone number."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Existing numbers show themselves, as before."""
    op.add_column(
        "phone_numbers", sa.Column("sip_transfer_caller_id", sa.String(), nullable=False, server_default="own")
    )
