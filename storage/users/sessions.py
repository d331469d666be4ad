"""Sessions of users. The text of a session's cookie is known to the browser alone; its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.users import users
from storage.users.users import Role, User

USE_STORED_EVERY: Final = timedelta(minutes=1)
"""The time of last use is written at most this often, so that a request rarely causes a write."""
_t = tables.user_sessions


@dataclass(frozen=True)
class SessionLifetime:
    """A session ends `idle` after its last use, and `absolute` after signing in."""

    idle: timedelta
    absolute: timedelta


@dataclass(frozen=True)
class Session:
    """A valid session of a user who is not disabled."""

    sha256: str
    user: User
    created_at: datetime
    last_used_at: datetime


def token_hash(token: str) -> str:
    """Returns the SHA-256 in hex under which a cookie or link is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def create(conn: sa.Connection, user_id: str, now: datetime) -> str:
    """Store a new session; returns the text of its cookie, 32 random bytes in URL-safe base64."""
    token = secrets.token_urlsafe(32)
    conn.execute(sa.insert(_t).values(sha256=token_hash(token), user_id=user_id, created_at=now, last_used_at=now))
    return token


def find(conn: sa.Connection, token: str, now: datetime, lifetime: SessionLifetime) -> Session | None:
    """Returns the session of a cookie; None if it is unknown or over, or its user is disabled."""
    row = conn.execute(sa.select(_t).where(_t.c.sha256 == token_hash(token))).one_or_none()
    if row is None or now >= min(row.last_used_at + lifetime.idle, row.created_at + lifetime.absolute):
        return None
    user = users.get(conn, row.user_id)
    if user is None or user.disabled_at is not None:
        return None
    return Session(row.sha256, user, row.created_at, row.last_used_at)


def roles_of(conn: sa.Connection, hashes: Collection[str], now: datetime, lifetime: SessionLifetime) -> dict[str, Role]:
    """The role of the user of each of these sessions that is valid, by its SHA-256."""
    if not hashes:
        return {}
    user = tables.users.c
    query = sa.select(_t.c.sha256, user.role).join(tables.users, user.id == _t.c.user_id)
    is_valid = (_t.c.last_used_at > now - lifetime.idle, _t.c.created_at > now - lifetime.absolute)
    found = conn.execute(query.where(_t.c.sha256.in_(hashes), user.disabled_at.is_(None), *is_valid))
    return {row.sha256: row.role for row in found}


def set_last_used(conn: sa.Connection, sha256: str, at: datetime) -> None:
    """Store when a session was last used."""
    conn.execute(sa.update(_t).where(_t.c.sha256 == sha256, _t.c.last_used_at < at).values(last_used_at=at))


def end(conn: sa.Connection, sha256: str) -> None:
    """End one session."""
    conn.execute(sa.delete(_t).where(_t.c.sha256 == sha256))


def end_all(conn: sa.Connection, user_id: str) -> int:
    """End all sessions of a user; returns their number."""
    return conn.execute(sa.delete(_t).where(_t.c.user_id == user_id)).rowcount


def delete_ended(conn: sa.Connection, now: datetime, lifetime: SessionLifetime) -> int:
    """Delete the sessions that are over; returns their number."""
    over = sa.or_(_t.c.last_used_at <= now - lifetime.idle, _t.c.created_at <= now - lifetime.absolute)
    return conn.execute(sa.delete(_t).where(over)).rowcount
