"""Audit log: who changed what, in organizations and in the whole installation. Entries have the names of changed fields
and never their values. They are never updated, and are deleted when they are old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.row_mapping import ResultPage, RowMapping

ActorType = Literal["user", "operator", "api_key", "command", "unknown"]
FAILED_SIGN_IN: Final = "user.sign-in-failed"
FAILED_SIGN_INS_PER_HOUR: Final = 60
"""Entries of failed sign-ins for one user, and for all unknown names together: guesses do not fill the log."""
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class Actor:
    """Who makes a change: a user of an organization, an operator, an API key, or a command, whose `name` is the user of
    the operating system. `id` is the user's or the key's. `unknown`: someone who did not sign in."""

    type: ActorType
    name: str
    id: str | None = None


UNKNOWN: Final = Actor("unknown", "")


@dataclass(frozen=True)
class AuditObject:
    """What an action is about; `type` is the part before the dot of most actions, `name` its name at that time."""

    type: str
    id: str | None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """`organization_id` is None for what belongs to the whole installation. `actor` is the name of the actor; the other
    two are those of `Actor`, None in entries from before they were stored. `action`: for example `agent.update`.
    `fields`: names of the changed fields, as the API spells them. `client`: address of the HTTP client."""

    id: str
    organization_id: str | None
    created_at: datetime
    actor: str
    actor_type: ActorType | None = None
    actor_id: str | None = None
    action: str
    object_type: str | None = None
    object_id: str | None = None
    object_name: str | None = None
    fields: list[str] = field(default_factory=list)
    client: str | None = None
    detail: str | None = None

    @property
    def call_id(self) -> str | None:
        """The call that the action is about."""
        return self.object_id if self.object_type == "call" else None


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Filter of a list of entries; the times bound `created_at`, both ends included. `actor` is a name or an id."""

    actor: str | None = None
    action: str | None = None
    object_type: str | None = None
    object_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


_ENTRY: Final = RowMapping(AuditEntry, tables.audit_entries)
_t = tables.audit_entries
_INSERT: Final = sa.insert(_t)
_NAMES: Final[dict[str, tuple[sa.Column[str], sa.ColumnElement[str]]]] = {
    "agent": (tables.agents.c.id, tables.agents.c.name),
    "number": (tables.phone_numbers.c.id, tables.phone_numbers.c.number),
    "tool": (tables.tools.c.id, tables.tools.c.name),
    "document": (tables.knowledge_documents.c.id, tables.knowledge_documents.c.name),
    "sound": (tables.background_sounds.c.id, tables.background_sounds.c.name),
    "organization": (tables.organizations.c.id, tables.organizations.c.name),
    "user": (tables.users.c.id, tables.users.c.name),
    "key": (
        tables.api_keys.c.id,
        tables.api_keys.c.prefix + sa.func.coalesce(" " + tables.api_keys.c.name, ""),
    ),
}
"""The id and the name of each type of object that has one. A call has none: its number is the caller's, and goes with
the call. Nor has a webhook's receiver, whose URL may have a secret in it."""
_NAME_QUERIES: Final = {
    object_type: sa.select(name).where(id_column == sa.bindparam("id"))
    for object_type, (id_column, name) in _NAMES.items()
}


def record(
    conn: sa.Connection,
    organization_id: str | None,
    *,
    actor: Actor,
    action: str,
    about: AuditObject | None = None,
    fields: Sequence[str] = (),
    client: str | None = None,
    detail: str | None = None,
) -> AuditEntry:
    """Store an entry, in the transaction that makes the change."""
    entry = AuditEntry(
        id=str(uuid4()),
        organization_id=organization_id,
        created_at=utc_now(),
        actor=actor.name,
        actor_type=actor.type,
        actor_id=actor.id,
        action=action,
        object_type=None if about is None else about.type,
        object_id=None if about is None else about.id,
        object_name=None if about is None else about.name,
        fields=list(fields),
        client=client,
        detail=detail,
    )
    conn.execute(_INSERT, asdict(entry))
    return entry


def record_failed_sign_in(
    conn: sa.Connection, organization_id: str | None, user: AuditObject | None, client: str
) -> None:
    """Store that someone could not sign in as this user, or (None) with a name that no user has, which is not stored:
    it may be a password. Stores nothing more after `FAILED_SIGN_INS_PER_HOUR`."""
    recent = sa.select(sa.func.count()).where(
        _t.c.organization_id == organization_id,
        _t.c.created_at > utc_now() - _HOUR,
        _t.c.action == FAILED_SIGN_IN,
        _t.c.object_id == (None if user is None else user.id),
    )
    if conn.execute(recent).scalar_one() < FAILED_SIGN_INS_PER_HOUR:
        record(conn, organization_id, actor=UNKNOWN, action=FAILED_SIGN_IN, about=user, client=client or None)


def object_with_name(conn: sa.Connection, object_type: str, object_id: str | None) -> AuditObject:
    """Returns the object with its present name; None if objects of this type have no name, or it does not exist."""
    query = None if object_id is None else _NAME_QUERIES.get(object_type)
    name = None if query is None else conn.execute(query, {"id": object_id}).scalar_one_or_none()
    return AuditObject(object_type, object_id, name)


def page(
    conn: sa.Connection, organization_id: str | None, *, limit: int, offset: int, entry_filter: AuditFilter
) -> ResultPage[AuditEntry]:
    """A page of an organization's entries, or with None of all entries of the installation, newest first."""
    where = _conditions(entry_filter)
    if organization_id is not None:
        where.append(_t.c.organization_id == organization_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(*where)).scalar_one()
    query = sa.select(*_ENTRY.columns).where(*where).order_by(_t.c.created_at.desc(), _t.c.id)
    return ResultPage([_ENTRY.build(row) for row in conn.execute(query.limit(limit).offset(offset))], total)


def _conditions(only: AuditFilter) -> list[sa.ColumnElement[bool]]:
    equal = ("action", "object_type", "object_id")
    where: list[sa.ColumnElement[bool]] = [
        _t.c[name] == getattr(only, name) for name in equal if getattr(only, name) is not None
    ]
    if only.actor is not None:
        where.append(sa.or_(_t.c.actor == only.actor, _t.c.actor_id == only.actor.lower()))
    if only.since is not None:
        where.append(_t.c.created_at >= only.since)
    if only.until is not None:
        where.append(_t.c.created_at <= only.until)
    return where


def entries_since(
    conn: sa.Connection, organization_id: str | None, at: datetime, *, last_id: str = "", limit: int | None = None
) -> list[AuditEntry]:
    """An organization's entries, or with None those of the whole installation alone, from `at` on, oldest first; those
    of that very time after `last_id`."""
    query = sa.select(*_ENTRY.columns).where(
        _t.c.organization_id == organization_id,
        sa.tuple_(_t.c.created_at, _t.c.id) > sa.tuple_(sa.literal(at, tables.UtcTime), sa.literal(last_id)),
    )
    return [_ENTRY.build(row) for row in conn.execute(query.order_by(_t.c.created_at, _t.c.id).limit(limit))]


def delete_before(conn: sa.Connection, before: datetime, limit: int) -> int:
    """Delete at most `limit` entries from before that time; returns their number."""
    old = sa.select(_t.c.id).where(_t.c.created_at < before).order_by(_t.c.created_at, _t.c.id).limit(limit)
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(old))).rowcount
