"""Calls, their transfers and SIP traces, and the audit log of outbound calls."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column, partial_index

calls = sa.Table(
    "calls",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("agent_id", Id),
    sa.Column("agent_version", sa.Integer),
    sa.Column("phone_number_id", Id),
    sa.Column("call_sid", sa.String),
    sa.Column("provider", sa.String),
    sa.Column("direction", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("customer_number", sa.String, nullable=False),
    sa.Column("called_number", sa.String),
    sa.Column("duration_seconds", sa.Integer),
    sa.Column("cost", sa.Float),
    sa.Column("usage", sa.JSON(none_as_null=True)),
    sa.Column("recorded", sa.Boolean, nullable=False),
    sa.Column("turn_count", sa.Integer, nullable=False),
    sa.Column("transcript", sa.JSON, nullable=False),
    sa.Column("analysis", sa.JSON(none_as_null=True)),
    sa.Column("timeline", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("ended_reason", sa.String),
    sa.Column("context_variables", sa.JSON, nullable=False),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("parent_call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE")),
    sa.Column("transfer_type", sa.String),
    sa.Column("transfer_status", sa.String),
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("media_quality", sa.JSON(none_as_null=True)),
    sa.Column("sip_end", sa.JSON(none_as_null=True)),
    sa.Column("ending", sa.JSON(none_as_null=True)),
    sa.Column("talk_removed_at", UtcTime),
    sa.Column("recording_removed_at", UtcTime),
    sa.Column("recording_absent_reason", sa.String),
    sa.Column("kept_agent", sa.JSON(none_as_null=True)),
    sa.Column("test", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("deliver_webhook", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"),
    sa.Column("response_gaps", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("longest_gap_ms", sa.Integer),
    sa.Column("node", sa.String),
    sa.Column("recording_node", sa.String),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "organization_id", "agent_id", "created_at"),
    sa.Index(None, "parent_call_id"),
    partial_index("ix_calls_live", "status", where="ended_at IS NULL"),
    partial_index("ix_calls_live_node", "node", where="ended_at IS NULL"),
    sa.Index(
        "ix_calls_with_recording",
        "organization_id",
        "ended_at",
        sqlite_where=sa.text("recorded = 1"),
        postgresql_where=sa.text("recorded"),
    ),
    partial_index(
        "ix_calls_with_talk", "organization_id", "ended_at", where="talk_removed_at IS NULL AND ended_at IS NOT NULL"
    ),
)
"""`node`: the name of the node that has or had the call. `recording_node`: of the one whose disk has or had its
recording, if that is another one. `talk_removed_at`, `recording_removed_at`: when the
transcript, and the recording, were deleted. `kept_agent`: the snapshot of an agent that was deleted during the call.
`interruptions`, `response_gaps` (ms of each turn that has one) and `longest_gap_ms` are those of the timeline of an
ended call, and outlive it. Triggers list files to remove in `recording_removals`, and keep `statistics`."""

recording_node = sa.func.coalesce(calls.c.recording_node, calls.c.node)
"""The name of the node whose disk has or had the recording of a call; NULL: not known."""

transfers = sa.Table(
    "transfers",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("parent_call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), nullable=False),
    sa.Column("mode", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("target_name", sa.String, nullable=False),
    sa.Column("number", sa.String, nullable=False),
    sa.Column("reason", sa.String),
    sa.Column("summary", sa.String),
    sa.Column("requested_by", sa.String, nullable=False),
    sa.Column("sip_status", sa.Integer),
    sa.Column("decline_reason", sa.String),
    sa.Column("attempts", sa.JSON, nullable=False),
    sa.Column("states", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("answered_at", UtcTime),
    sa.Column("connected_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Index(None, "organization_id"),
    sa.Index(None, "parent_call_id"),
    partial_index("ix_transfers_open", "status", where="ended_at IS NULL"),
)
"""Transfers of calls; a child call has the id of its transfer."""

recording_removals = sa.Table(
    "recording_removals",
    metadata,
    sa.Column("call_id", Id, primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("node", sa.String),
    sa.Index(None, "node"),
)
"""Calls whose recording's file, if there is one, is to be removed; its path follows from these columns. `node`: the one
whose disk it is on; NULL: not known."""

call_sip = sa.Table(
    "call_sip",
    metadata,
    sa.Column("call_id", Id, sa.ForeignKey("calls.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("messages", sa.JSON, nullable=False),
    sa.Column("left_out", sa.Integer, nullable=False),
)
"""SIP traces of ended calls, without secrets; `left_out` counts the messages that did not fit."""

outbound_attempts = sa.Table(
    "outbound_attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("api_key_id", Id),
    sa.Column("api_key_prefix", sa.String),
    sa.Column("client", sa.String),
    sa.Column("phone_number_id", Id),
    sa.Column("number", sa.String),
    sa.Column("call_id", Id),
    sa.Column("destination", sa.String, nullable=False),
    sa.Column("verdict", sa.String, nullable=False),
    sa.Column("detail", sa.String),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "phone_number_id", "created_at"),
    sa.Index(None, "call_id"),
)
"""Audit log of outbound calls. Rows are never updated; they contain the key's prefix and the number beside their ids,
because both may be deleted before the row."""
