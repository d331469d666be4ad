"""Versions of agents: each save that changes a field stores the fields as they are then."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.tables.agent_fields import AgentFields
from storage.tables.row_mapping import ResultPage

MAX_VERSIONS: Final = 200
"""The newest versions of an agent that are kept."""
FASTEST: Final = 1
"""Level of compression."""
FIELDS: Final = tuple(field.name for field in fields(AgentFields))


@dataclass(frozen=True)
class StoredVersion:
    """A version of an agent. `author` is the name of who saved it; None: not known. `changes` are names of
    `AgentFields`, none in version 1."""

    version: int
    author: str | None
    created_at: datetime
    changes: list[str]


@dataclass(frozen=True)
class VersionWithFields(StoredVersion):
    """A version with the agent's fields; its secret is a `Secrets.encrypt` token."""

    fields: AgentFields


_t = tables.agent_versions
_COLUMNS: Final = (_t.c.version, _t.c.author, _t.c.created_at, _t.c.changes)
_OF_AGENT: Final = _t.c.agent_id == sa.bindparam("agent")
_INSERT: Final = sa.insert(_t)
_PRUNE: Final = sa.delete(_t).where(_OF_AGENT, _t.c.version <= sa.bindparam("oldest", type_=sa.Integer))
_GET: Final = sa.select(*_COLUMNS, _t.c.fields).where(_OF_AGENT, _t.c.version == sa.bindparam("number"))
_COUNT: Final = sa.select(sa.func.count()).select_from(_t).where(_OF_AGENT)
_PAGE: Final = (
    sa.select(*_COLUMNS)
    .where(_OF_AGENT)
    .order_by(_t.c.version.desc())
    .limit(sa.bindparam("most"))
    .offset(sa.bindparam("skip"))
)


def differing(before: AgentFields, after: AgentFields) -> list[str]:
    """The names of the fields whose values differ."""
    return [name for name in FIELDS if getattr(before, name) != getattr(after, name)]


def add(
    conn: sa.Connection,
    agent_id: str,
    version: int,
    stored: AgentFields,
    *,
    author: str | None,
    at: datetime,
    changes: Sequence[str],
) -> None:
    """Store the fields of an agent as its version, and delete those that are too many."""
    values: Mapping[str, Any] = {
        "agent_id": agent_id,
        "version": version,
        "author": author,
        "created_at": at,
        "changes": list(changes),
        "fields": _compressed(stored),
    }
    conn.execute(_INSERT, values)
    if version > MAX_VERSIONS:
        conn.execute(_PRUNE, {"agent": agent_id, "oldest": version - MAX_VERSIONS})


def _compressed(stored: AgentFields) -> bytes:
    """The fields as they are stored: 200 versions of the largest agents would fill a disk otherwise."""
    return zlib.compress(json.dumps({name: getattr(stored, name) for name in FIELDS}).encode(), FASTEST)


def page(conn: sa.Connection, agent_id: str, *, limit: int, offset: int) -> ResultPage[StoredVersion]:
    """A page of the versions of an agent, newest first."""
    rows = conn.execute(_PAGE, {"agent": agent_id, "most": limit, "skip": offset})
    return ResultPage([StoredVersion(*row) for row in rows], conn.execute(_COUNT, {"agent": agent_id}).scalar_one())


def get(conn: sa.Connection, agent_id: str, version: int) -> VersionWithFields | None:
    """A version with its fields; a field that was added to agents later has its default."""
    row = conn.execute(_GET, {"agent": agent_id, "number": version}).one_or_none()
    if row is None:
        return None
    values = json.loads(zlib.decompress(row.fields))
    stored = AgentFields(**{name: value for name, value in values.items() if name in FIELDS})
    return VersionWithFields(row.version, row.author, row.created_at, row.changes, stored)
