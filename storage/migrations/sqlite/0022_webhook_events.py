"""The events that an agent's webhook gets, and several deliveries of a call with the same event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Agents that there are get call.completed alone; deliveries that there are are one per call and event."""
    op.add_column(
        "agents",
        sa.Column("post_call_webhook_events", sa.JSON(), nullable=False, server_default='["call.completed"]'),
    )
    op.add_column("webhook_deliveries", sa.Column("unique_key", sa.String(), nullable=False, server_default=""))
    op.execute("UPDATE webhook_deliveries SET unique_key = event")
    with op.batch_alter_table("webhook_deliveries") as deliveries:
        deliveries.drop_constraint("uq_webhook_deliveries_call_id_event", type_="unique")
        deliveries.create_unique_constraint("uq_webhook_deliveries_call_id_unique_key", ["call_id", "unique_key"])
