"""Organizations, which own all other resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict
from storage import tables
from storage.tables.columns import rounded_money
from storage.tables.row_mapping import RowMapping

Plan = Literal["free", "paid"]
DEFAULT_NAME: Final = "default"


@dataclass(frozen=True)
class Organization:
    """A stored organization. `balance` counts only on the paid plan; `max_calls` None: that of the settings.
    `outbound_prefixes` None: any destination; `outbound_per_minute` None: the server's rate. `keep_..._days` count from
    the end of a call, None: for ever. `redact`: card and personal numbers are redacted in stored calls;
    `redact_dialled`: also all DTMF digits of callers."""

    id: str
    name: str
    plan: Plan
    balance: Decimal
    max_calls: int | None
    created_at: datetime
    outbound_prefixes: list[str] | None = None
    outbound_per_minute: int | None = None
    keep_recordings_days: int | None = None
    keep_transcripts_days: int | None = None
    keep_calls_days: int | None = None
    redact: bool = False
    redact_dialled: bool = False
    quotas: dict[str, int] | None = None
    """Its own quotas, by name (`storage.accounts.quotas.QUOTAS`); the others are those of the settings."""


_ORGANIZATION = RowMapping(Organization, tables.organizations)


def create(
    conn: sa.Connection, name: str, *, plan: Plan = "free", balance: Decimal | float = 0, max_calls: int | None = None
) -> Organization:
    """Store a new organization; `Conflict` when the name is taken."""
    if by_name(conn, name) is not None:
        raise Conflict(f"Organization {name!r} already exists")
    organization = Organization(str(uuid4()), name, plan, rounded_money(balance), max_calls, utc_now())
    conn.execute(sa.insert(tables.organizations).values(**organization.__dict__))
    return organization


def change(conn: sa.Connection, stored: Organization, changes: Mapping[str, Any]) -> Organization:
    """Set the fields in `changes` of an organization that was read in this transaction."""
    result = replace(stored, **changes)
    conn.execute(sa.update(tables.organizations).where(tables.organizations.c.id == stored.id).values(asdict(result)))
    return result


def rename(conn: sa.Connection, stored: Organization, name: str) -> Organization:
    """Give an organization another name; `Conflict` when it is taken."""
    other = by_name(conn, name)
    if other is not None and other.id != stored.id:
        raise Conflict(f"Organization {name!r} already exists")
    return change(conn, stored, {"name": name})


def delete(conn: sa.Connection, stored: Organization) -> None:
    """Delete an organization with everything that it owns, its audit log included; triggers list the files to remove.
    Raises `Conflict` while one of its calls has not ended."""
    require_no_open_calls(conn, stored)
    conn.execute(sa.delete(tables.organizations).where(tables.organizations.c.id == stored.id))


def require_no_open_calls(conn: sa.Connection, stored: Organization) -> None:
    """Raises `Conflict` if a call of the organization has not ended."""
    of_call = tables.calls.c
    query = sa.select(sa.func.count()).where(of_call.organization_id == stored.id, of_call.ended_at.is_(None))
    if count := conn.execute(query).scalar_one():
        calls = "a call that has" if count == 1 else f"{count} calls that have"
        raise Conflict(f"{stored.name} has {calls} not ended: `trunkline call list` and `trunkline call hangup`")


def all_of(conn: sa.Connection) -> list[Organization]:
    """Every organization, oldest first."""
    query = sa.select(*_ORGANIZATION.columns).order_by(tables.organizations.c.created_at, tables.organizations.c.name)
    return [_ORGANIZATION.build(row) for row in conn.execute(query)]


def get(conn: sa.Connection, organization_id: str) -> Organization | None:
    """By id."""
    query = sa.select(*_ORGANIZATION.columns).where(tables.organizations.c.id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else _ORGANIZATION.build(row)


def by_name(conn: sa.Connection, name: str) -> Organization | None:
    """By its exact name."""
    query = sa.select(*_ORGANIZATION.columns).where(tables.organizations.c.name == name)
    row = conn.execute(query).one_or_none()
    return None if row is None else _ORGANIZATION.build(row)


def redaction_of_call(conn: sa.Connection, call_id: str) -> tuple[bool, bool]:
    """`redact` and `redact_dialled` of a call's organization; both False when there is no such call."""
    joined = tables.organizations.join(tables.calls, tables.calls.c.organization_id == tables.organizations.c.id)
    query = sa.select(tables.organizations.c.redact, tables.organizations.c.redact_dialled).select_from(joined)
    row = conn.execute(query.where(tables.calls.c.id == call_id)).one_or_none()
    return (False, False) if row is None else (row[0], row[1])
