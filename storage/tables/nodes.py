"""Nodes: the servers that use the database at the same time."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("instance", Id, nullable=False),
    sa.Column("url", sa.String),
    sa.Column("version", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("capacity", sa.Integer, nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("last_seen_at", UtcTime, nullable=False),
    sa.Column("report", sa.JSON),
)
"""`instance`: a new id for each start of a node. `last_seen_at`: its last heartbeat, by the database's clock. `report`:
why it rejects calls, the load of its models, and what is wrong."""

trunk_statuses = sa.Table(
    "trunk_statuses",
    metadata,
    sa.Column("trunk", sa.String, primary_key=True),
    sa.Column("node", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("detail", sa.String),
    sa.Column("since", UtcTime),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Index(None, "updated_at"),
)
"""The statuses of registrations, by the keys of their trunks, from the nodes that register them."""

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("instance", Id, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Index(None, "instance"),
)
"""Work that one node does for all. A lease holds as long as the heartbeats of its instance; `epoch` grows with each new
holder."""

shared_limits = sa.Table(
    "shared_limits",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("used", sa.Integer, nullable=False),
    sa.Column("drawn", sa.Integer, nullable=False),
)
"""Limits that nodes share. `at_us`: the beginning of a window, or the next start of an outbound call, in microseconds
since 1970 by the database's clock; `used`: what was drawn of the window; `drawn`: by the last draw."""
