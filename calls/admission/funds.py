"""Funds: inbound calls are rejected while the organization's balance is used up."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from calls.admission.rejection import CallRejected
from calls.call_record.billing import is_balance_exhausted
from config.settings_tables import BillingSettings
from storage.accounts import organizations


def require_balance(conn: sa.Connection, organization_id: str) -> None:
    """Raises `CallRejected` (480, as for a number without an agent) if the organization has no funds."""
    organization = organizations.get(conn, organization_id)
    if organization is not None and is_balance_exhausted(organization):
        raise CallRejected(480, "the organization has no funds")


def inbound_balance_check(settings: BillingSettings) -> Callable[[sa.Connection, str], None]:
    """The check that the setting `inbound_when_empty` asks for."""
    return require_balance if settings.inbound_when_empty == "refuse" else lambda *_: None
