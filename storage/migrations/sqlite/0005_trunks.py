"""Trunks: several sources, permissions of peers and of destinations, the audit log of outbound calls; SIP traces and
media quality of calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.migrations.sip_source_normalization import normal_host

revision = "0005"
down_revision = "0004"

_ID = sa.String(length=36)


def upgrade() -> None:
    """Existing numbers keep their sources."""
    _widen()
    _create_sources()
    _create_attempts()
    op.create_table(
        "call_sip",
        sa.Column("call_id", _ID, nullable=False),
        sa.Column("messages", sa.JSON(), nullable=False),
        sa.Column("left_out", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["calls.id"], name="fk_call_sip_call_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("call_id", name="pk_call_sip"),
    )


def _widen() -> None:
    for table in ("organizations", "phone_numbers"):
        op.add_column(table, sa.Column("outbound_prefixes", sa.JSON()))
        op.add_column(table, sa.Column("outbound_per_minute", sa.Integer()))
    op.add_column("phone_numbers", sa.Column("sip_sources", sa.JSON(), nullable=False, server_default="[]"))
    for name in ("sip_inbound_auth", "sip_allow_redirect", "sip_allow_refer"):
        op.add_column("phone_numbers", sa.Column(name, sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("phone_numbers", sa.Column("sip_qualify_seconds", sa.Integer(), nullable=False, server_default="60"))
    for name in ("media_quality", "sip_end"):
        op.add_column("calls", sa.Column(name, sa.JSON()))


def _create_sources() -> None:
    op.create_table(
        "phone_number_sources",
        sa.Column("phone_number_id", _ID, nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["phone_number_id"],
            ["phone_numbers.id"],
            name="fk_phone_number_sources_phone_number_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("phone_number_id", "source", name="pk_phone_number_sources"),
    )
    op.create_index("ix_phone_number_sources_source", "phone_number_sources", ["source"])
    op.execute(
        "INSERT INTO phone_number_sources(phone_number_id, source, since) "
        "SELECT id, source, created_at FROM phone_numbers WHERE source IS NOT NULL"
    )
    _add_outbound_proxies()


def _add_outbound_proxies() -> None:
    """Calls of a registration come from its outbound proxy, too."""
    conn = op.get_bind()
    proxies = conn.execute(
        sa.text(
            "SELECT id, sip_outbound_proxy, created_at FROM phone_numbers "
            "WHERE sip_mode = 'registration' AND source IS NOT NULL AND sip_outbound_proxy IS NOT NULL"
        )
    ).all()
    for number_id, proxy, since in proxies:
        conn.execute(
            sa.text(
                "INSERT OR IGNORE INTO phone_number_sources(phone_number_id, source, since) "
                "VALUES (:number, :source, :since)"
            ),
            {"number": number_id, "source": normal_host(proxy), "since": since},
        )


def _create_attempts() -> None:
    op.create_table(
        "outbound_attempts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("api_key_id", _ID),
        sa.Column("api_key_prefix", sa.String()),
        sa.Column("client", sa.String()),
        sa.Column("phone_number_id", _ID),
        sa.Column("number", sa.String()),
        sa.Column("call_id", _ID),
        sa.Column("destination", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("detail", sa.String()),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_outbound_attempts_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_outbound_attempts"),
    )
    op.create_index(
        "ix_outbound_attempts_organization_id_created_at_id",
        "outbound_attempts",
        ["organization_id", "created_at", "id"],
    )
    op.create_index(
        "ix_outbound_attempts_phone_number_id_created_at", "outbound_attempts", ["phone_number_id", "created_at"]
    )
    op.create_index("ix_outbound_attempts_call_id", "outbound_attempts", ["call_id"])
