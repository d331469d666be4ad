"""Phone numbers, and the sources of their calls."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization_column

phone_numbers = sa.Table(
    "phone_numbers",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization_column(),
    sa.Column("name", sa.String),
    sa.Column("number", sa.String, nullable=False),
    sa.Column("provider", sa.String, nullable=False),
    sa.Column("sip_mode", sa.String),
    sa.Column("agent_id", Id, sa.ForeignKey("agents.id", ondelete="SET NULL")),
    sa.Column("carrier_credentials_encrypted", sa.JSON, nullable=False),
    sa.Column("sip_username", sa.String),
    sa.Column("sip_password_encrypted", sa.String),
    sa.Column("sip_proxy", sa.String),
    sa.Column("sip_outbound_proxy", sa.String),
    sa.Column("sip_auth_user", sa.String),
    sa.Column("sip_ip", sa.String),
    sa.Column("sip_port", sa.Integer),
    sa.Column("sip_protocol", sa.String),
    sa.Column("sip_register_transport", sa.String),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("source", sa.String),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("sip_sources", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("sip_inbound_auth", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_allow_redirect", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_allow_refer", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("sip_qualify_seconds", sa.Integer, nullable=False, server_default="60"),
    sa.Column("outbound_prefixes", sa.JSON(none_as_null=True)),
    sa.Column("outbound_per_minute", sa.Integer),
    sa.Column("sip_transfer_method", sa.String, nullable=False, server_default="auto"),
    sa.Column("sip_transfer_caller_id", sa.String, nullable=False, server_default="own"),
    sa.Column("trunks_taken_over", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("carrier_trunk", sa.JSON(none_as_null=True)),
    sa.UniqueConstraint("organization_id", "number"),
    sa.Index(None, "number"),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "agent_id"),
)
"""`source`: the trunk's host, the normal form of `sip_ip` or of the registrar's host; None while it is not set up.
`trunks_taken_over`: the hosts and networks that it named before grants were required.
`carrier_trunk`: the trunk of the number's provider, by the names of the columns that it replaces; null without one."""

phone_number_sources = sa.Table(
    "phone_number_sources",
    metadata,
    sa.Column("phone_number_id", Id, sa.ForeignKey("phone_numbers.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("source", sa.String, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
    sa.Index(None, "source"),
)
"""All sources of a number's calls, in normal form: addresses, networks (CIDR) and host names. `since`: when the source
was first stored for this spelling of the number."""

trunk_grants = sa.Table(
    "trunk_grants",
    metadata,
    organization_column(primary_key=True),
    sa.Column("trunk", sa.String, primary_key=True),
    sa.Column("number_pattern", sa.String, primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False),
)
"""Trunks that the operator has granted to organizations."""
