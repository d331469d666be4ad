"""Funds: inbound calls are rejected while the organization's balance is used up."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from calls.admission.rejection import Refused
from calls.call_record.billing import has_no_funds
from config.sections import BillingSettings
from storage.accounts import organizations


def refuse_without_funds(conn: sa.Connection, organization_id: str) -> None:
    """For callers, where they are not to be answered then. Raises `Refused`: 480, as for a number without an agent."""
    organization = organizations.get(conn, organization_id)
    if organization is not None and has_no_funds(organization):
        raise Refused(480, "the organization has no funds")


def caller_check(settings: BillingSettings) -> Callable[[sa.Connection, str], None]:
    """What `inbound_when_empty` asks for."""
    return refuse_without_funds if settings.inbound_when_empty == "refuse" else lambda *_: None
