"""Phone numbers, and where their calls come from."""

from __future__ import annotations

import sqlalchemy as sa

from storage.tables.columns import Id, UtcTime, metadata, organization

phone_numbers = sa.Table(
    "phone_numbers",
    metadata,
    sa.Column("id", Id, primary_key=True),
    organization(),
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
    sa.Column("trunks_taken_over", sa.JSON, nullable=False, server_default="[]"),
    sa.UniqueConstraint("organization_id", "number"),
    sa.Index(None, "number"),
    sa.Index(None, "organization_id", "created_at", "id"),
    sa.Index(None, "agent_id"),
)
"""`source` is where its calls go, and where most come from: the normal form of `sip_ip`, or of the registrar's host;
None while unset. `trunks_taken_over`: the hosts and networks that it named while any organization could name any."""

phone_number_sources = sa.Table(
    "phone_number_sources",
    metadata,
    sa.Column("phone_number_id", Id, sa.ForeignKey("phone_numbers.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("source", sa.String, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
    sa.Index(None, "source"),
)
"""Everywhere that a number's calls come from, in normal form: addresses, networks (CIDR) and host names. `since`: when
it was first stored for this number as it is written."""

trunk_grants = sa.Table(
    "trunk_grants",
    metadata,
    organization(primary_key=True),
    sa.Column("trunk", sa.String, primary_key=True),
    sa.Column("number_pattern", sa.String, primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False),
)
"""Trunks that the operator has given to organizations."""
