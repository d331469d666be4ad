"""Agents. The fields have the defaults of the API; secrets are `Secrets.encrypt` tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.agents import versions
from storage.tables.agent_fields import AgentFields
from storage.tables.row_mapping import ResultPage, RowMapping
from storage.tables.sql_functions import position_of


@dataclass(frozen=True, kw_only=True)
class Agent(AgentFields):
    """A stored agent. `hold_music_id`: the file fetched from `hold_music_url`; None: none, which means the built-in
    music. `version` counts the saves that changed a field, from 1."""

    id: str
    organization_id: str
    created_at: datetime
    updated_at: datetime
    hold_music_id: str | None = None
    version: int = 1


class AgentState(NamedTuple):
    """An agent's id and time of change (ms since 1970): agents in the same state are equal in every field."""

    id: str
    updated_at_ms: int


class AgentLanguage(NamedTuple):
    """How many agents have this language and this chosen voice."""

    language_hint: str | None
    voice_id: str | None
    agents: int


AGENT = RowMapping(Agent, tables.agents)
_t = tables.agents
_UPDATED_AT_MS: Final = sa.type_coerce(_t.c.updated_at, sa.BigInteger)
_OWN: Final = _t.c.organization_id == sa.bindparam("owner")
_NEWEST_FIRST: Final = (_t.c.created_at.desc(), _t.c.id)
_CALLS: Final = tables.calls
_SNAPSHOT_FIELDS: Final = (
    "name",
    "slm_model_id",
    "language_hint",
    "post_call_summary_enabled",
    "post_call_extraction_schema",
    "post_call_webhook_url",
    "post_call_webhook_secret_encrypted",
    "post_call_webhook_events",
)
"""Fields that are needed after a call."""
_STORE_SNAPSHOT: Final = (
    sa.update(_CALLS)
    .where(_CALLS.c.ended_at.is_(None), sa.func.coalesce(_CALLS.c.agent_id, "") == sa.bindparam("agent"))
    .values(kept_agent=sa.bindparam("kept"))
)
"""Uses the index of calls that have not ended, because an agent may have many ended ones."""
_SNAPSHOT_OF_CALL: Final = sa.select(_CALLS.c.kept_agent).where(_CALLS.c.id == sa.bindparam("call"))
_DROP_SNAPSHOT: Final = sa.update(_CALLS).where(_CALLS.c.id == sa.bindparam("call")).values(kept_agent=None)
_CREATE: Final = sa.insert(_t)
_GET: Final = sa.select(*AGENT.columns).where(_t.c.id == sa.bindparam("agent"), _OWN)
_SET_VERSION: Final = sa.update(_t).where(_t.c.id == sa.bindparam("agent")).values(version=sa.bindparam("number"))
_GET_SOME: Final = sa.select(*AGENT.columns).where(_t.c.id.in_(sa.bindparam("agents", expanding=True)), _OWN)


def _page_in_one_row(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """A query for the total and for a page, with a line of text for each agent. Python's sqlite3 releases the GIL for
    every row that it fetches: beside other threads, fifty rows would wait for it fifty times."""
    total = sa.select(sa.func.count()).select_from(_t).where(_OWN, *where).scalar_subquery()
    created_at_ms = sa.type_coerce(_t.c.created_at, sa.BigInteger).label("created")
    some = (
        sa.select(created_at_ms, _t.c.id, _UPDATED_AT_MS.label("updated"))
        .where(_OWN, *where)
        .order_by(*_NEWEST_FIRST)
        .limit(sa.bindparam("most"))
        .offset(sa.bindparam("skip"))
        .subquery()
    )
    line = sa.cast(some.c.created, sa.String) + " " + some.c.id + " " + sa.cast(some.c.updated, sa.String)
    return sa.select(total, sa.func.aggregate_strings(line, "\n"))


_PAGE: Final = _page_in_one_row()


def create(
    conn: sa.Connection,
    organization_id: str,
    fields: AgentFields,
    hold_music_id: str | None = None,
    *,
    author: str | None = None,
) -> Agent:
    """Store a new agent as its version 1. `hold_music_id`: the stored file of its `hold_music_url`; `author`: the name
    of who saves it."""
    at = utc_now()
    agent = Agent(
        **fields.__dict__,
        id=str(uuid4()),
        organization_id=organization_id,
        created_at=at,
        updated_at=at,
        hold_music_id=hold_music_id,
    )
    conn.execute(_CREATE, {**agent.__dict__, "name_folded": agent.name.casefold()})
    versions.add(conn, agent.id, agent.version, agent, author=author, at=at, changes=[])
    return agent


def get(conn: sa.Connection, organization_id: str, agent_id: str) -> Agent | None:
    """By id, within the organization."""
    row = conn.execute(_GET, {"agent": agent_id, "owner": organization_id}).one_or_none()
    return None if row is None else AGENT.build(row)


def at_version(conn: sa.Connection, agent: Agent, version: int) -> Agent | None:
    """The agent as it was in a version, with its present webhook secret, which may have been replaced because others
    know it. None if there is no such version (any more)."""
    if version == agent.version:
        return agent
    found = versions.get(conn, agent.id, version)
    if found is None:
        return None
    has_music = found.fields.hold_music_url == agent.hold_music_url
    fields = {name: getattr(found.fields, name) for name in versions.FIELDS}
    fields["post_call_webhook_secret_encrypted"] = agent.post_call_webhook_secret_encrypted
    return replace(
        agent,
        **fields,
        hold_music_id=agent.hold_music_id if has_music else None,
        version=version,
    )


def get_many(conn: sa.Connection, organization_id: str, agent_ids: Sequence[str]) -> list[Agent]:
    """The agents of these ids that the organization has, in no order."""
    rows = conn.execute(_GET_SOME, {"agents": agent_ids, "owner": organization_id})
    return [AGENT.build(row) for row in rows]


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, search: str | None = None
) -> ResultPage[AgentState]:
    """A page, newest first; `search` is a part of the name in any letter case."""
    query = _PAGE
    if search:
        # Not LIKE, whose pattern ends at a NUL.
        query = _page_in_one_row(position_of(_t.c.name_folded, search.casefold()) > 0)
    row = conn.execute(query, {"owner": organization_id, "most": limit, "skip": offset}).one()
    # Sorted again, because SQL does not define the order of aggregation.
    states = sorted((-int(created), agent_id, int(updated)) for created, agent_id, updated in _fields(row[1]))
    return ResultPage([AgentState(agent_id, updated) for _, agent_id, updated in states], row[0])


def _fields(lines: str | None) -> Iterator[list[str]]:
    return (line.split(" ") for line in (lines or "").splitlines())


def update(
    conn: sa.Connection,
    organization_id: str,
    agent_id: str,
    changes: Mapping[str, Any],
    *,
    author: str | None = None,
) -> Agent | None:
    """Set the fields in `changes` (names as in `Agent`); None when there is no such agent. A field that differs
    afterwards makes a version, by `author`."""
    before = get(conn, organization_id, agent_id)
    if before is None:
        return None
    values = {**changes, "updated_at": _later_than_before()}
    if "name" in changes:
        values["name_folded"] = changes["name"].casefold()
    change = (
        sa.update(_t)
        .where(_t.c.id == agent_id, _t.c.organization_id == organization_id)
        .values(**values)
        .returning(*AGENT.columns)
    )
    agent = AGENT.build(conn.execute(change).one())
    changed = versions.differing(before, agent)
    return _with_next_version(conn, agent, changed, author) if changed else agent


def _with_next_version(conn: sa.Connection, agent: Agent, changed: Sequence[str], author: str | None) -> Agent:
    agent = replace(agent, version=agent.version + 1)
    conn.execute(_SET_VERSION, {"agent": agent.id, "number": agent.version})
    versions.add(conn, agent.id, agent.version, agent, author=author, at=agent.updated_at, changes=changed)
    return agent


def _later_than_before() -> sa.ColumnElement[int]:
    """The time now, but at least 1 ms after the last change, so that the version differs from the one before."""
    now = sa.type_coerce(utc_now(), tables.UtcTime)
    return sa.case((_t.c.updated_at >= now, _UPDATED_AT_MS + 1), else_=sa.type_coerce(now, sa.BigInteger))


def delete(conn: sa.Connection, organization_id: str, agent_id: str) -> bool:
    """Delete the agent. Its phone numbers lose it (foreign key), its calls keep its id; calls that have not ended keep
    a snapshot of the fields that their end needs. False when there is no such agent."""
    deletion = sa.delete(_t).where(_t.c.id == agent_id, _t.c.organization_id == organization_id)
    row = conn.execute(deletion.returning(*AGENT.columns)).one_or_none()
    if row is None:
        return False
    agent = AGENT.build(row)
    conn.execute(
        _STORE_SNAPSHOT, {"agent": agent.id, "kept": {name: getattr(agent, name) for name in _SNAPSHOT_FIELDS}}
    )
    return True


def names(conn: sa.Connection, organization_id: str) -> dict[str, str]:
    """The names of the organization's agents, by their ids."""
    rows = conn.execute(sa.select(_t.c.id, _t.c.name).where(_t.c.organization_id == organization_id))
    return {row[0]: row[1] for row in rows}


def languages(conn: sa.Connection) -> list[AgentLanguage]:
    """The languages and chosen voices of the agents of all organizations, with the number of such agents."""
    columns = _t.c.language_hint, _t.c.voice_id
    rows = conn.execute(sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns))
    return [AgentLanguage(*row) for row in rows]


def snapshot_of_call(conn: sa.Connection, organization_id: str, agent_id: str, call_id: str) -> Agent | None:
    """Returns the stored snapshot of an agent that was deleted during the call, with defaults for other fields. None
    when it was not deleted."""
    snapshot: Mapping[str, Any] | None = conn.execute(_SNAPSHOT_OF_CALL, {"call": call_id}).scalar_one_or_none()
    if snapshot is None:
        return None
    at = utc_now()
    return Agent(**snapshot, id=agent_id, organization_id=organization_id, created_at=at, updated_at=at)


def drop_snapshot(conn: sa.Connection, call_id: str) -> None:
    """Delete the snapshot, because the call has ended and has used it."""
    conn.execute(_DROP_SNAPSHOT, {"call": call_id})


def count_with_model(conn: sa.Connection, language_model: str, voices: Collection[str]) -> int:
    """How many agents of all organizations have chosen a language model or one of some voices, by their ids."""
    chosen = sa.or_(_t.c.slm_model_id == language_model, _t.c.voice_id.in_(list(voices)))
    return conn.execute(sa.select(sa.func.count()).select_from(_t).where(chosen)).scalar_one()
