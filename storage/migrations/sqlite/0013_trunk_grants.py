"""Trunk grants, and the audit log of operators' changes."""

from __future__ import annotations

import json
from typing import Final

import sqlalchemy as sa
from alembic import op

from storage.migrations.sip_source_normalization import normal_host, normal_source

revision = "0013"
down_revision = "0012"

_ID: Final = sa.String(length=36)


def upgrade() -> None:
    """Every existing number takes over the trunks that it names. From this revision on, two organizations may have the
    same number and source; the grants decide between them."""
    op.create_table(
        "trunk_grants",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("trunk", sa.String(), nullable=False),
        sa.Column("number_pattern", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_trunk_grants_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organization_id", "trunk", "number_pattern", name="pk_trunk_grants"),
    )
    op.create_table(
        "audit_entries",
        sa.Column("id", _ID, nullable=False),
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("call_id", _ID),
        sa.Column("detail", sa.String()),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_audit_entries_organization_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entries"),
    )
    op.create_index(
        "ix_audit_entries_organization_id_created_at_id", "audit_entries", ["organization_id", "created_at", "id"]
    )
    op.add_column("phone_numbers", sa.Column("trunks_taken_over", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("phone_numbers") as phone_numbers:
        phone_numbers.drop_constraint("uq_phone_numbers_number_source", type_="unique")
    op.create_index("ix_phone_numbers_number", "phone_numbers", ["number"])
    _take_over()
    _note_demo()


def _take_over() -> None:
    conn = op.get_bind()
    numbers = conn.execute(
        sa.text("SELECT id, sip_ip, sip_proxy, sip_outbound_proxy, sip_sources FROM phone_numbers")
    ).all()
    for number_id, *hosts, sources in numbers:
        named = [normal_host(each) for each in hosts if each] + [normal_source(each) for each in json.loads(sources)]
        if named:
            conn.execute(
                sa.text("UPDATE phone_numbers SET trunks_taken_over = :named WHERE id = :id"),
                {"named": json.dumps(sorted(set(named))), "id": number_id},
            )


def _note_demo() -> None:
    """The organization that `trunkline demo` created is recognized by its API key."""
    op.execute(
        "INSERT INTO facts(name, value) SELECT 'demo_organization', organizations.id FROM organizations "
        "WHERE organizations.name = 'demo' AND EXISTS (SELECT 1 FROM api_keys WHERE organization_id = organizations.id "
        "AND api_keys.name = 'demo' AND requests_per_minute = 6000)"
    )
