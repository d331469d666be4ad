"""Webhook endpoints of organizations, and the deliveries to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Deliveries that there are go to the URLs of agents."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret_encrypted", sa.String(), nullable=True),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_webhook_endpoints_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
    )
    op.create_index(
        "ix_webhook_endpoints_organization_id_created_at_id",
        "webhook_endpoints",
        ["organization_id", "created_at", "id"],
        unique=False,
    )
    with op.batch_alter_table("webhook_deliveries") as deliveries:
        deliveries.add_column(sa.Column("endpoint_id", sa.String(length=36), nullable=True))
        deliveries.create_foreign_key(
            "fk_webhook_deliveries_endpoint_id", "webhook_endpoints", ["endpoint_id"], ["id"], ondelete="CASCADE"
        )
    op.create_index(
        "ix_webhook_deliveries_endpoint_id",
        "webhook_deliveries",
        ["endpoint_id"],
        sqlite_where=sa.text("endpoint_id IS NOT NULL"),
    )
