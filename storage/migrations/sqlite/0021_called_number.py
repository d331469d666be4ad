"""The number that was dialled, of each call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Outbound calls dialled the customer. An inbound call dialled its phone number, which is known if the number has
    not been changed since."""
    op.add_column("calls", sa.Column("called_number", sa.String()))
    op.execute("UPDATE calls SET called_number = customer_number WHERE direction = 'outbound'")
    op.execute(
        "UPDATE calls SET called_number = (SELECT number FROM phone_numbers WHERE id = calls.phone_number_id "
        "AND updated_at <= calls.created_at) WHERE direction = 'inbound'"
    )
