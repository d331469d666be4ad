"""Hold music of agents: fetched files, each stored once for an organization, at the paths of background sounds.
Triggers delete the rows that no agent uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables

_t = tables.hold_music
_agents = tables.agents


@dataclass(frozen=True, kw_only=True)
class HoldMusicFile:
    """A stored file. `content_sha256` is that of the fetched one (hex), `stored_bytes` the size of the stored one."""

    id: str
    content_sha256: str
    duration_ms: int
    stored_bytes: int


@dataclass(frozen=True)
class AgentHoldMusic:
    """The URL of an agent's hold music, and the id of the file that was fetched from it; None: none was fetched."""

    url: str | None
    id: str | None


def of_agent(conn: sa.Connection, organization_id: str, agent_id: str) -> AgentHoldMusic | None:
    """The hold music of an agent; None when the organization has no such agent."""
    query = sa.select(_agents.c.hold_music_url, _agents.c.hold_music_id)
    row = conn.execute(query.where(_agents.c.id == agent_id, _agents.c.organization_id == organization_id))
    found = row.one_or_none()
    return None if found is None else AgentHoldMusic(*found)


def store(conn: sa.Connection, organization_id: str, file: HoldMusicFile) -> str:
    """Store a file, or find the one with the same content; returns its id. An agent must get it in the same
    transaction. If the id is not that of `file`, remove this file after the commit."""
    same = sa.select(_t.c.id).where(_t.c.organization_id == organization_id, _t.c.content_sha256 == file.content_sha256)
    known: str | None = conn.execute(same).scalar_one_or_none()
    if known is not None:
        return known
    conn.execute(sa.insert(_t).values(**asdict(file), organization_id=organization_id, created_at=utc_now()))
    return file.id


def exists(conn: sa.Connection, music_id: str) -> bool:
    """True while an agent uses the file."""
    return conn.execute(sa.select(_t.c.id).where(_t.c.id == music_id)).one_or_none() is not None
