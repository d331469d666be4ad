"""Quotas of organizations, and their usage. Triggers update the usage in the transaction of each change, so that
reading it is one index look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from config.errors import BytesQuotaExceeded, QuotaExceeded
from storage import tables

COUNTS: Final = ("agents", "tools", "documents", "sounds", "phone_numbers", "api_keys")
BYTES: Final = ("document_bytes", "sound_bytes", "idempotent_answer_bytes", "recording_bytes")
QUOTAS: Final = (*COUNTS, *BYTES)
IDEMPOTENT_RESPONSES: Final = "idempotent_answer_bytes"
RECORDINGS: Final = "recording_bytes"
"""Exceeding it logs a warning; recording goes on."""

_t = tables.quota_usage
_sizes = tables.recording_sizes
_USED: Final = sa.select(_t.c.quota, _t.c.used).where(_t.c.organization_id == sa.bindparam("owner"))
_OWN: Final = sa.select(tables.organizations.c.quotas).where(tables.organizations.c.id == sa.bindparam("owner"))


@dataclass(frozen=True)
class QuotaUsage:
    """The usage of a quota, and its limit."""

    quota: str
    used: int
    allowed: int


def usage(conn: sa.Connection, organization_id: str, defaults: Mapping[str, int]) -> dict[str, QuotaUsage]:
    """The usage of every quota of an organization, by name."""
    used = {row.quota: row.used for row in conn.execute(_USED, {"owner": organization_id})}
    own: Mapping[str, int] = conn.execute(_OWN, {"owner": organization_id}).scalar_one_or_none() or {}
    return {each: QuotaUsage(each, used.get(each, 0), own.get(each, defaults[each])) for each in QUOTAS}


def usage_of_all(conn: sa.Connection, defaults: Mapping[str, int]) -> dict[str, dict[str, QuotaUsage]]:
    """The usage above zero of every organization, by its id and by quota."""
    organizations = tables.organizations.c
    own = {owner: quotas or {} for owner, quotas in conn.execute(sa.select(organizations.id, organizations.quotas))}
    found: dict[str, dict[str, QuotaUsage]] = {}
    for owner, quota, used in conn.execute(sa.select(_t.c.organization_id, _t.c.quota, _t.c.used)):
        if used and owner in own and quota in defaults:
            allowed = own[owner].get(quota, defaults[quota])
            found.setdefault(owner, {})[quota] = QuotaUsage(quota, used, allowed)
    return found


def require_available(usages: Mapping[str, QuotaUsage], quotas: Iterable[str]) -> None:
    """Raises `QuotaExceeded` when one of these quotas is used up."""
    for quota in quotas:
        if usages[quota].used >= usages[quota].allowed:
            raise quota_error(usages[quota])


def require_within_quota(
    before: Mapping[str, QuotaUsage], after: Mapping[str, QuotaUsage], quotas: Iterable[str]
) -> None:
    """Raises `QuotaExceeded`, so that the transaction is rolled back, when its changes exceed one of these quotas. A
    change that does not increase the usage is allowed, whatever the usage is."""
    for quota in quotas:
        if before[quota].used < after[quota].used > after[quota].allowed:
            raise quota_error(before[quota])


def quota_error(usage: QuotaUsage) -> QuotaExceeded:
    """Returns the error for a quota."""
    kind = BytesQuotaExceeded if usage.quota in BYTES else QuotaExceeded
    return kind(usage.quota, usage.used, usage.allowed)


def recordings_without_size(
    conn: sa.Connection, *, limit: int, on_this_node: bool = False
) -> list[tuple[str, datetime]]:
    """Ids and times of creation of calls whose recordings have no stored size yet. `on_this_node`: only those whose
    files are on this node's disk."""
    calls = tables.calls
    query = sa.select(calls.c.id, calls.c.created_at).join(_sizes, _sizes.c.call_id == calls.c.id)
    query = query.where(_sizes.c.bytes.is_(None)).limit(limit)
    own = conn.info.get("node") if on_this_node and conn.dialect.name != "sqlite" else None
    if own is not None:
        query = query.where(tables.recording_node == own)
    return [tuple(row) for row in conn.execute(query)]


def set_recording_sizes(conn: sa.Connection, sizes: Mapping[str, int]) -> None:
    """Store the sizes of recordings, by call."""
    for call_id, size in sizes.items():
        conn.execute(sa.update(_sizes).where(_sizes.c.call_id == call_id).values(bytes=size))
