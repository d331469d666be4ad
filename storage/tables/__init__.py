"""Tables of the database. Column names equal the attributes of the dataclasses of the resources.

Ids are UUIDs as lower-case text, times whole milliseconds since 1970 UTC (`UtcTime`). Calls keep the ids of deleted
agents and numbers, therefore these two columns are no foreign keys.
"""

from __future__ import annotations

from storage.tables.accounts import api_keys, audit_entries, balance_changes, facts, idempotent_answers, organizations
from storage.tables.agents import agent_versions, agents, tools
from storage.tables.background_sounds import background_sound_removals, background_sounds
from storage.tables.calls import call_sip, calls, outbound_attempts, recording_node, recording_removals, transfers
from storage.tables.columns import UtcTime, metadata
from storage.tables.hold_music import hold_music
from storage.tables.knowledge import (
    knowledge_chunks,
    knowledge_contents,
    knowledge_documents,
    knowledge_removals,
    knowledge_vectors,
)
from storage.tables.nodes import leases, nodes, shared_limits, trunk_statuses
from storage.tables.phone_numbers import phone_number_sources, phone_numbers, trunk_grants
from storage.tables.quotas import quota_usage, recording_sizes
from storage.tables.remote_models import remote_models
from storage.tables.statistics import statistics, statistics_scopes
from storage.tables.users import password_links, user_sessions, users
from storage.tables.webhooks import webhook_attempts, webhook_deliveries, webhook_endpoints

__all__ = [
    "UtcTime",
    "agent_versions",
    "agents",
    "api_keys",
    "audit_entries",
    "background_sound_removals",
    "background_sounds",
    "balance_changes",
    "call_sip",
    "calls",
    "facts",
    "hold_music",
    "idempotent_answers",
    "knowledge_chunks",
    "knowledge_contents",
    "knowledge_documents",
    "knowledge_removals",
    "knowledge_vectors",
    "leases",
    "metadata",
    "nodes",
    "organizations",
    "outbound_attempts",
    "password_links",
    "phone_number_sources",
    "phone_numbers",
    "quota_usage",
    "recording_node",
    "recording_removals",
    "recording_sizes",
    "remote_models",
    "shared_limits",
    "statistics",
    "statistics_scopes",
    "tools",
    "transfers",
    "trunk_grants",
    "trunk_statuses",
    "user_sessions",
    "users",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_endpoints",
]
