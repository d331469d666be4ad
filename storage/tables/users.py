"""Users of the dashboard, their sessions and the links that set their passwords."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(nullable=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("password_hash", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("last_sign_in_at", UtcTime),
    sa.Column("disabled_at", UtcTime),
    sa.Index(None, "organization_id", "name"),
)
"""Only operators have no organization. `password_hash` is NULL until a link has set a password."""


def _user_column() -> sa.Column[str]:
    return sa.Column("user_id", Id, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False)


user_sessions = sa.Table(
    "user_sessions",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    _user_column(),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("last_used_at", UtcTime, nullable=False),
    sa.Index(None, "user_id"),
)
"""`sha256` is the hash of the cookie's text."""

password_links = sa.Table(
    "password_links",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    _user_column(),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Index(None, "user_id"),
)
"""Links that are not used yet. `sha256` is the hash of the token in the link."""
