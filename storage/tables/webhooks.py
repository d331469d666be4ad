"""The outbox of events."""

from __future__ import annotations

from dataclasses import dataclass, field

import sqlalchemy as sa

from storage.tables.agent_fields import WebhookEvent
from storage.tables.columns import Id, UtcTime, columns_of, metadata, organization_column, partial_index


@dataclass(frozen=True, kw_only=True)
class WebhookEndpointFields:
    """The fields of a webhook endpoint that a client sets. `secret_encrypted` is a `Secrets.encrypt` token."""

    url: str = field(repr=False)
    secret_encrypted: str | None = field(default=None, repr=False)
    events: list[WebhookEvent] = field(default_factory=lambda: ["call.completed"])
    description: str | None = None
    enabled: bool = True


webhook_endpoints = sa.Table(
    "webhook_endpoints",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    *columns_of(WebhookEndpointFields),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""Addresses that get the events of all calls of an organization."""

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), nullable=False),
    sa.Column("event", sa.String, nullable=False),
    sa.Column("unique_key", sa.String, nullable=False),
    sa.Column("endpoint_id", Id, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE")),
    sa.Column("url", sa.String, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("secret_encrypted", sa.String),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.UniqueConstraint("call_id", "unique_key"),
    sa.Index(None, "organization_id"),
    partial_index("ix_webhook_deliveries_endpoint_id", "endpoint_id", where="endpoint_id IS NOT NULL"),
)
"""The outbox: one row per event and receiver. `unique_key`: `storage.webhooks.deliveries.unique_key`; without an
`endpoint_id` the receiver is the agent's."""

webhook_attempts = sa.Table(
    "webhook_attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("delivery_id", Id, sa.ForeignKey("webhook_deliveries.id", ondelete="CASCADE"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("response_status", sa.Integer),
    sa.Column("response_body", sa.String),
    sa.Column("error", sa.String),
    sa.Column("duration_ms", sa.Integer),
    sa.Column("manual", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("next_attempt_at", UtcTime),
    sa.Column("destination", sa.String, nullable=False),
    sa.Column("claimed_by", sa.String),
    sa.Column("claimed_until", UtcTime),
    sa.Index(None, "delivery_id", "attempt"),
    partial_index(
        "ix_webhook_attempts_due",
        "destination",
        "manual",
        "next_attempt_at",
        where="status = 'pending' AND claimed_by IS NULL",
    ),
    partial_index("ix_webhook_attempts_claimed", "claimed_until", where="claimed_by IS NOT NULL"),
)
"""Delivery attempts, completed or pending. `claimed_by`: the sender that makes it now. `destination` is
the `storage.webhooks.deliveries.destination_key` of the event; "" for attempts of older versions."""
