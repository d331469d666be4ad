"""How much an organization may store, and how much it does. What is used is kept by triggers, in the transaction of
each change: to look it up takes a step in an index, however much there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import BytesQuotaExceeded, QuotaExceeded
from storage import tables

COUNTS: Final = ("agents", "tools", "documents", "sounds", "phone_numbers", "api_keys")
BYTES: Final = ("document_bytes", "sound_bytes", "idempotent_answer_bytes", "recording_bytes")
QUOTAS: Final = (*COUNTS, *BYTES)
IDEMPOTENT_RESPONSES: Final = "idempotent_answer_bytes"
RECORDINGS: Final = "recording_bytes"
"""Warned of, not cut."""

_t = tables.quota_usage
_sizes = tables.recording_sizes
_USED: Final = sa.select(_t.c.quota, _t.c.used).where(_t.c.organization_id == sa.bindparam("owner"))
_OWN: Final = sa.select(tables.organizations.c.quotas).where(tables.organizations.c.id == sa.bindparam("owner"))


@dataclass(frozen=True)
class QuotaUsage:
    """How much of a quota is used, and how much may be."""

    quota: str
    used: int
    allowed: int


def usage(conn: sa.Connection, organization_id: str, defaults: Mapping[str, int]) -> dict[str, QuotaUsage]:
    """Every quota of an organization, by name."""
    used = {row.quota: row.used for row in conn.execute(_USED, {"owner": organization_id})}
    own: Mapping[str, int] = conn.execute(_OWN, {"owner": organization_id}).scalar_one_or_none() or {}
    return {each: QuotaUsage(each, used.get(each, 0), own.get(each, defaults[each])) for each in QUOTAS}


def usage_of_all(conn: sa.Connection, defaults: Mapping[str, int]) -> dict[str, dict[str, QuotaUsage]]:
    """Of every organization, by id: the quotas of which anything is used."""
    organizations = tables.organizations.c
    own = {owner: given or {} for owner, given in conn.execute(sa.select(organizations.id, organizations.quotas))}
    found: dict[str, dict[str, QuotaUsage]] = {}
    for owner, quota, used in conn.execute(sa.select(_t.c.organization_id, _t.c.quota, _t.c.used)):
        if used and owner in own and quota in defaults:
            allowed = own[owner].get(quota, defaults[quota])
            found.setdefault(owner, {})[quota] = QuotaUsage(quota, used, allowed)
    return found


def check_not_used_up(now: Mapping[str, QuotaUsage], quotas: Iterable[str]) -> None:
    """Whether there is any room left in each of these quotas. Raises `QuotaExceeded`."""
    for quota in quotas:
        if now[quota].used >= now[quota].allowed:
            raise exceeded(now[quota])


def check(before: Mapping[str, QuotaUsage], after: Mapping[str, QuotaUsage], quotas: Iterable[str]) -> None:
    """Whether a change, which has been made in this transaction, kept to these quotas; one that takes no more than
    there was does, whatever that is. Raises `QuotaExceeded`, so that nothing of it stays."""
    for quota in quotas:
        if before[quota].used < after[quota].used > after[quota].allowed:
            raise exceeded(before[quota])


def exceeded(usage: QuotaUsage) -> QuotaExceeded:
    """The refusal that tells of it."""
    kind = BytesQuotaExceeded if usage.quota in BYTES else QuotaExceeded
    return kind(usage.quota, usage.used, usage.allowed)


def recordings_without_size(conn: sa.Connection, *, most: int) -> list[tuple[str, datetime]]:
    """Ids and creation of calls whose recordings nobody has measured yet."""
    calls = tables.calls
    query = sa.select(calls.c.id, calls.c.created_at).join(_sizes, _sizes.c.call_id == calls.c.id)
    return [tuple(row) for row in conn.execute(query.where(_sizes.c.bytes.is_(None)).limit(most))]


def set_recording_sizes(conn: sa.Connection, sizes: Mapping[str, int]) -> None:
    """Note how large recordings are, by their calls."""
    for call_id, size in sizes.items():
        conn.execute(sa.update(_sizes).where(_sizes.c.call_id == call_id).values(bytes=size))


def failed_document_files(conn: sa.Connection, before: datetime, *, most: int) -> list[str]:
    """Contents whose documents have all failed `before` then, and whose files are still there."""
    documents = tables.knowledge_documents
    query = (
        sa.select(documents.c.content_id)
        .where(documents.c.status == "failed", documents.c.updated_at < before, documents.c.file_removed_at.is_(None))
        .distinct()
    )
    return list(conn.execute(query.limit(most)).scalars())


def failed_document_files_removed(conn: sa.Connection, content_ids: Iterable[str]) -> None:
    """These files are gone; their documents stay, and tell why they failed."""
    documents = tables.knowledge_documents
    values: dict[str, Any] = {"file_removed_at": utc_now()}
    conn.execute(sa.update(documents).where(documents.c.content_id.in_(list(content_ids))).values(values))
