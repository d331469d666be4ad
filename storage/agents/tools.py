"""Tools: HTTP requests that agents can make. Header values may be credentials: they are `Secrets.encrypt` tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import FieldProblem, Invalid
from storage import tables
from storage.agents import agents
from storage.tables.row_mapping import LazyResultPage, RowMapping

ToolType = Literal["http"]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
ParameterType = Literal["string", "number", "integer", "boolean", "object", "array"]


class Header(TypedDict):
    """A header of the request; the decrypted value may contain `{{variables}}`."""

    key: str
    value_encrypted: str


class Parameter(TypedDict):
    """A parameter that the language model fills in."""

    name: str
    type: ParameterType
    description: str
    required: bool


class ToolConfig(TypedDict):
    """The request. `url` may contain `{{variables}}`; `timeout` in ms. `allow_variable_host`: the URL's host may
    contain variables whose values come from callers; False when absent."""

    url: str
    method: Method
    timeout: int
    headers: list[Header]
    body: list[Parameter]
    allow_variable_host: NotRequired[bool]


@dataclass(frozen=True, kw_only=True)
class ToolFields:
    """Fields that a client sets."""

    name: str
    description: str | None = None
    type: ToolType = "http"
    config: ToolConfig = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class StoredTool(ToolFields):
    """A stored tool."""

    id: str
    organization_id: str
    created_at: datetime
    updated_at: datetime


TOOL: Final = RowMapping(StoredTool, tables.tools)
_t = tables.tools
_agents = tables.agents


def create(conn: sa.Connection, organization_id: str, fields: ToolFields) -> StoredTool:
    """Store a new tool."""
    at = utc_now()
    tool = StoredTool(**asdict(fields), id=str(uuid4()), organization_id=organization_id, created_at=at, updated_at=at)
    conn.execute(sa.insert(_t).values(**asdict(tool)))
    return tool


def require_free_name(conn: sa.Connection, organization_id: str, name: str) -> None:
    """Raises `Invalid` if a tool of the organization has this name, by which language models and `trunkline` know it.
    Databases may have such tools from before. Call it in the transaction that stores the name: write transactions run
    one after another."""
    taken = sa.select(sa.exists().where(_t.c.organization_id == organization_id, _t.c.name == name))
    if conn.execute(taken).scalar_one():
        raise Invalid([FieldProblem("name", "This organization already has a tool with this name")])


def get(conn: sa.Connection, organization_id: str, tool_id: str) -> StoredTool | None:
    """By id, within the organization."""
    query = sa.select(*TOOL.columns).where(_t.c.id == tool_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else TOOL.build(row)


def page(conn: sa.Connection, organization_id: str, *, limit: int, offset: int) -> LazyResultPage[StoredTool]:
    """A page, newest first."""
    where = _t.c.organization_id == organization_id
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(_t.c.id).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    ids = conn.execute(query.limit(limit).offset(offset)).scalars().all()
    return LazyResultPage(TOOL.iter_by_ids(conn, ids), total)


_NO_LIMIT: Final = (1 << 31) - 1
_ALL: Final = (
    sa.select(*TOOL.columns)
    .where(_t.c.organization_id == sa.bindparam("owner"))
    .order_by(_t.c.created_at, _t.c.id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_NAMED: Final = _ALL.where(_t.c.id.in_(sa.bindparam("ids", expanding=True)))


def of_agent(
    conn: sa.Connection, organization_id: str, tool_ids: Collection[str] | None, *, limit: int | None = None
) -> list[StoredTool]:
    """The tools of an agent with these `tool_ids`, oldest first and at most `limit`; None: every tool of the
    organization. Ids of unknown tools are ignored."""
    parameters = {"owner": organization_id, "most": _NO_LIMIT if limit is None else limit}
    if tool_ids is None:
        return [TOOL.build(row) for row in conn.execute(_ALL, parameters)]
    return [TOOL.build(row) for row in conn.execute(_NAMED, {**parameters, "ids": sorted(set(tool_ids))})]


def update(conn: sa.Connection, stored: StoredTool, changes: Mapping[str, Any]) -> StoredTool:
    """Set the fields in `changes` (names as in `ToolFields`) of a tool that was read in this transaction. Keys in
    `config` replace the stored ones, the others stay."""
    config = {**stored.config, **changes.get("config", {})}
    change = (
        sa.update(_t)
        .where(_t.c.id == stored.id)
        .values(**{**changes, "config": config, "updated_at": utc_now()})
        .returning(*TOOL.columns)
    )
    return TOOL.build(conn.execute(change).one())


def delete(conn: sa.Connection, organization_id: str, tool_id: str, *, author: str | None = None) -> bool:
    """Delete the tool, also from the agents that name it, which get a version by `author`. False when there is none."""
    deleted = conn.execute(sa.delete(_t).where(_t.c.id == tool_id, _t.c.organization_id == organization_id))
    if deleted.rowcount == 0:
        return False
    agents_with_tool = sa.select(_agents.c.id, _agents.c.tool_ids).where(
        _agents.c.organization_id == organization_id, sa.cast(_agents.c.tool_ids, sa.String).contains(tool_id)
    )
    for agent_id, tool_ids in conn.execute(agents_with_tool).all():
        kept = [each for each in tool_ids if each != tool_id]
        agents.update(conn, organization_id, agent_id, {"tool_ids": kept}, author=author)
    return True
