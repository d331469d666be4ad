"""API keys. The text of a key is shown once, when it is created; only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.row_mapping import RowMapping


@dataclass(frozen=True)
class ApiKey:
    """A stored key. `prefix` is the first part of its text; `requests_per_minute` None: that of the settings."""

    id: str
    organization_id: str
    prefix: str
    name: str | None
    requests_per_minute: int | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


_KEY = RowMapping(ApiKey, tables.api_keys)
_FIND: Final = sa.select(*_KEY.columns).where(
    tables.api_keys.c.sha256 == sa.bindparam("given"), tables.api_keys.c.revoked_at.is_(None)
)


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def create(
    conn: sa.Connection, organization_id: str, *, name: str | None = None, requests_per_minute: int | None = None
) -> tuple[ApiKey, str]:
    """Store a new key; returns it with its secret text, `tk_<8 hex digits>_<32 random bytes>`, which cannot be read
    again."""
    prefix = f"tk_{secrets.token_hex(4)}"
    text = f"{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey(str(uuid4()), organization_id, prefix, name, requests_per_minute, utc_now(), None, None)
    conn.execute(sa.insert(tables.api_keys).values(**key.__dict__, sha256=_sha256(text)))
    return key, text


def find(conn: sa.Connection, key: str) -> ApiKey | None:
    """Returns the key of a request, None when it is unknown or revoked."""
    row = conn.execute(_FIND, {"given": _sha256(key)}).one_or_none()
    return None if row is None else _KEY.build(row)


def is_revoked(conn: sa.Connection, key_id: str) -> bool:
    """True if the key is revoked or unknown."""
    valid = sa.select(tables.api_keys.c.id).where(
        tables.api_keys.c.id == key_id, tables.api_keys.c.revoked_at.is_(None)
    )
    return conn.execute(valid).first() is None


def valid_of(conn: sa.Connection, key_ids: Collection[str]) -> set[str]:
    """Those of these keys that are not revoked."""
    keys = tables.api_keys.c
    query = sa.select(keys.id).where(keys.id.in_(key_ids), keys.revoked_at.is_(None))
    return set(conn.execute(query).scalars()) if key_ids else set()


def all_of(conn: sa.Connection, organization_id: str | None = None) -> list[ApiKey]:
    """The keys of one organization, or of all, revoked ones included, oldest first."""
    query = sa.select(*_KEY.columns).order_by(tables.api_keys.c.created_at, tables.api_keys.c.id)
    if organization_id is not None:
        query = query.where(tables.api_keys.c.organization_id == organization_id)
    return [_KEY.build(row) for row in conn.execute(query)]


def revoke(conn: sa.Connection, prefix_or_id: str) -> ApiKey | None:
    """Revoke a key by its prefix (`tk_1a2b3c4d`) or id; returns None when there is no valid one."""
    keys = tables.api_keys.c
    change = (
        sa.update(tables.api_keys)
        .where(sa.or_(keys.id == prefix_or_id, keys.prefix == prefix_or_id), keys.revoked_at.is_(None))
        .values(revoked_at=utc_now())
        .returning(*_KEY.columns)
    )
    row = conn.execute(change).one_or_none()
    return None if row is None else _KEY.build(row)


def revoke_of(conn: sa.Connection, organization_id: str, key_id: str) -> ApiKey | None:
    """Revoke a key of an organization by its id; returns None when it has no such valid one."""
    keys = tables.api_keys.c
    change = (
        sa.update(tables.api_keys)
        .where(keys.id == key_id, keys.organization_id == organization_id, keys.revoked_at.is_(None))
        .values(revoked_at=utc_now())
        .returning(*_KEY.columns)
    )
    row = conn.execute(change).one_or_none()
    return None if row is None else _KEY.build(row)


def by_prefix_or_id(conn: sa.Connection, prefix_or_id: str) -> ApiKey | None:
    """Returns a key, revoked or not, by its prefix (`tk_1a2b3c4d`) or id."""
    keys = tables.api_keys.c
    query = sa.select(*_KEY.columns).where(sa.or_(keys.id == prefix_or_id, keys.prefix == prefix_or_id))
    row = conn.execute(query.order_by(keys.created_at.desc())).first()
    return None if row is None else _KEY.build(row)


def rename(conn: sa.Connection, key_id: str, name: str) -> None:
    """Set the purpose of a key."""
    conn.execute(sa.update(tables.api_keys).where(tables.api_keys.c.id == key_id).values(name=name))


def delete(conn: sa.Connection, key_id: str) -> None:
    """Delete a key, which stops working at once. The audit log keeps its prefix."""
    conn.execute(sa.delete(tables.api_keys).where(tables.api_keys.c.id == key_id))


def set_last_used(conn: sa.Connection, last_used: Mapping[str, datetime]) -> None:
    """Store when keys (by id) were last used."""
    for key_id, at in last_used.items():
        conn.execute(sa.update(tables.api_keys).where(tables.api_keys.c.id == key_id).values(last_used_at=at))
