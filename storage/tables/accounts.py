"""Organizations and their keys, and facts about the installation."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, Money, UtcTime, metadata, organization_column

facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
"""Facts about the installation, for example the proof of the secret key."""

organizations = sa.Table(
    "organizations",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("plan", sa.String, nullable=False),
    sa.Column("balance", Money, nullable=False, server_default="0"),
    sa.Column("max_calls", sa.Integer),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("outbound_prefixes", sa.JSON(none_as_null=True)),
    sa.Column("outbound_per_minute", sa.Integer),
    *(sa.Column(f"keep_{what}_days", sa.Integer) for what in ("recordings", "transcripts", "calls")),
    *(sa.Column(name, sa.Boolean, nullable=False, server_default="0") for name in ("redact", "redact_dialled")),
    sa.Column("quotas", sa.JSON(none_as_null=True)),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("prefix", sa.String, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("name", sa.String),
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("last_used_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
    sa.Index(None, "organization_id", "created_at"),
)

idempotent_answers = sa.Table(
    "idempotent_answers",
    metadata,
    organization_column(primary_key=True),
    sa.Column("method", sa.String, primary_key=True),
    sa.Column("path", sa.String, primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Index(None, "created_at"),
)

balance_changes = sa.Table(
    "balance_changes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    organization_column(),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("amount", Money, nullable=False),
    sa.Column("balance_after", Money, nullable=False),
    sa.Column("made_by", sa.String, nullable=False),
    sa.Column("call_id", Id, unique=True),
    sa.Column("note", sa.String),
    sa.Index(None, "organization_id", "id"),
)
"""Every change of a balance. Rows are never updated. A call is billed once, and its row stays when the call is
deleted."""

audit_entries = sa.Table(
    "audit_entries",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(nullable=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("actor", sa.String, nullable=False),
    sa.Column("actor_type", sa.String),
    sa.Column("actor_id", Id),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("object_type", sa.String),
    sa.Column("object_id", Id),
    sa.Column("object_name", sa.String),
    sa.Column("fields", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("client", sa.String),
    sa.Column("detail", sa.String),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
)
"""Audit log of changes. Those of the whole installation have no organization. The ids of actors and objects are no
foreign keys: entries stay when these are deleted."""
