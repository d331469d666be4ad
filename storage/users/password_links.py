"""Links that set a password: each works once and for 24 hours. Only the SHA-256 of a link's token is stored."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.users import sessions, users
from storage.users.users import User

LIFETIME: Final = timedelta(hours=24)
_t = tables.password_links


def create(conn: sa.Connection, user_id: str, now: datetime) -> str:
    """Store a new link, which replaces the user's earlier one; returns its token, 32 random bytes in URL-safe
    base64."""
    revoke(conn, user_id)
    token = secrets.token_urlsafe(32)
    values = {"sha256": sessions.token_hash(token), "user_id": user_id, "expires_at": now + LIFETIME}
    conn.execute(sa.insert(_t).values(**values))
    return token


def find(conn: sa.Connection, token: str, now: datetime) -> User | None:
    """Returns the user whose password the link sets; None if the link is unknown, used or over, or the user is
    disabled."""
    query = sa.select(_t.c.user_id).where(_t.c.sha256 == sessions.token_hash(token), _t.c.expires_at > now)
    user_id = conn.execute(query).scalar_one_or_none()
    user = None if user_id is None else users.get(conn, user_id)
    return None if user is None or user.disabled_at is not None else user


def url(origin: str, token: str) -> str:
    """Returns the address of the page where the link's user sets the password."""
    return f"{origin}/welcome?token={token}"


def disable(conn: sa.Connection, user_id: str) -> None:
    """Disable a user, whose sessions and link end."""
    users.disable(conn, user_id)
    sessions.end_all(conn, user_id)
    revoke(conn, user_id)


def reset(conn: sa.Connection, user_id: str, now: datetime) -> str:
    """Enable a user whose password and sessions stop working; returns the token of a new link."""
    users.enable(conn, user_id)
    users.set_password_hash(conn, user_id, None)
    sessions.end_all(conn, user_id)
    return create(conn, user_id, now)


def set_password(conn: sa.Connection, token: str, password_hash: str, now: datetime) -> User | None:
    """Use a link: sets the password, and ends all sessions and links of the user. Returns None as `find`."""
    user = find(conn, token, now)
    if user is None:
        return None
    users.set_password_hash(conn, user.id, password_hash)
    sessions.end_all(conn, user.id)
    revoke(conn, user.id)
    return users.get(conn, user.id)


def revoke(conn: sa.Connection, user_id: str) -> None:
    """Make the user's link useless."""
    conn.execute(sa.delete(_t).where(_t.c.user_id == user_id))


def delete_expired(conn: sa.Connection, now: datetime) -> int:
    """Delete the links that are over; returns their number."""
    return conn.execute(sa.delete(_t).where(_t.c.expires_at <= now)).rowcount
