"""Claims on webhook attempts, and the search for due attempts by destination."""

from __future__ import annotations

from urllib.parse import urlsplit

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

FREE = "status = 'pending' AND claimed_by IS NULL"
CLAIMED = "claimed_by IS NOT NULL"


def upgrade() -> None:
    """Pending attempts are unclaimed, and only they need a destination."""
    op.add_column("webhook_attempts", sa.Column("destination", sa.String(), nullable=False, server_default=""))
    op.add_column("webhook_attempts", sa.Column("claimed_by", sa.String()))
    op.add_column("webhook_attempts", sa.Column("claimed_until", sa.BigInteger()))
    op.drop_index("ix_webhook_attempts_due", "webhook_attempts")
    op.create_index(
        "ix_webhook_attempts_due",
        "webhook_attempts",
        ["destination", "manual", "next_attempt_at"],
        sqlite_where=sa.text(FREE),
        postgresql_where=sa.text(FREE),
    )
    op.create_index(
        "ix_webhook_attempts_claimed",
        "webhook_attempts",
        ["claimed_until"],
        sqlite_where=sa.text(CLAIMED),
        postgresql_where=sa.text(CLAIMED),
    )
    _fill(op.get_bind())


def _destination_of(url: str) -> str:
    """Host and port of a URL, as this revision stored it; "" for an invalid URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""


def _fill(conn: sa.Connection) -> None:
    waiting = conn.execute(
        sa.text(
            "SELECT a.id, d.url FROM webhook_attempts a JOIN webhook_deliveries d ON d.id = a.delivery_id "
            "WHERE a.status = 'pending'"
        )
    ).all()
    if waiting:
        conn.execute(
            sa.text("UPDATE webhook_attempts SET destination = :destination WHERE id = :id"),
            [{"id": row.id, "destination": _destination_of(row.url)} for row in waiting],
        )
