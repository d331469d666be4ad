"""Agents with their versions, and their tools."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.agent_fields import AgentFields
from storage.tables.columns import Id, UtcTime, columns_of, metadata, organization_column, partial_index

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    *columns_of(AgentFields),
    sa.Column("name_folded", sa.String, nullable=False),
    sa.Column("hold_music_id", Id),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
    partial_index("ix_agents_hold_music_id", "hold_music_id", where="hold_music_id IS NOT NULL"),
)
"""`hold_music_id`: the file of `hold_music` that was fetched from `hold_music_url`."""

agent_versions = sa.Table(
    "agent_versions",
    metadata,
    sa.Column("agent_id", Id, sa.ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("author", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("changes", sa.JSON, nullable=False),
    sa.Column("fields", sa.LargeBinary, nullable=False),
)
"""`fields` are those of `AgentFields` as JSON, compressed by zlib, with the secret as the agent's `Secrets.encrypt`
token; `changes` the names of those that differ from the version before."""

tools = sa.Table(
    "tools",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("description", sa.String),
    sa.Column("type", sa.String, nullable=False),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "organization_id", "created_at", "id"),
)
"""Header values in `config` may be credentials: they are stored as `Secrets.encrypt` tokens."""
