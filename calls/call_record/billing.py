"""Billing of calls on paid plans: the rate card, and one debit in the transaction that ends the call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Final, Self

import sqlalchemy as sa

from calls import metrics
from calls.call_record.metering import CallUsage
from config.settings_tables import BillingSettings
from storage.accounts import balances, organizations
from storage.accounts.organizations import Organization
from storage.calls import statistics
from storage.calls.calls import Call
from storage.tables.columns import rounded_money

MADE_BY_SERVER: Final = "server"
"""`made_by` of the balance changes that calls make."""
_ONE_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class RateCard:
    """Prices in the currency of the balances: of a connected minute, of 1,000 tokens, of a minute of transcribed audio,
    and of 1,000 synthesized characters."""

    telephony: Decimal = Decimal(0)
    tokens: Decimal = Decimal(0)
    speech_to_text: Decimal = Decimal(0)
    text_to_speech: Decimal = Decimal(0)

    @classmethod
    def from_settings(cls, settings: BillingSettings) -> Self:
        """Returns the prices of the settings, exact to the digit."""
        prices = (
            settings.telephony_per_minute,
            settings.inference_per_1000_tokens,
            settings.speech_to_text_per_minute,
            settings.text_to_speech_per_1000_characters,
        )
        return cls(*(Decimal(str(price)) for price in prices))

    def cost_of(self, usage: CallUsage) -> Decimal:
        """Returns the cost, computed exactly, then rounded once, to the millionth. Nothing is rounded up to whole
        minutes or thousands."""
        minutes = self.telephony * _ms(usage.telephony_s) + self.speech_to_text * _ms(usage.heard_s)
        thousands = self.tokens * usage.tokens + self.text_to_speech * usage.spoken_characters
        return rounded_money((minutes + 60 * thousands) / 60_000)


FREE: Final = RateCard()
"""All prices are 0."""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def is_balance_exhausted(organization: Organization) -> bool:
    """True if a paid plan's balance is used up. Active calls go on all the same."""
    return organization.plan == "paid" and organization.balance <= 0


def charge(
    conn: sa.Connection, call: Call, usage: CallUsage, card: RateCard, charged_before: float | None = None
) -> float | None:
    """Store the usage of an ended call and debit its cost, in the transaction that ends the call. Returns the cost;
    None on the free plan and for a test call. Telephony counts from the stored answer to the stored end.
    `charged_before`: the cost of an end that this one replaces; the balance changes by the difference."""
    usage = replace(usage, telephony_s=_connected_s(call))
    before = None if charged_before is None else rounded_money(charged_before)
    organization = organizations.get(conn, call.organization_id)
    is_billed = organization is not None and organization.plan == "paid" and not call.is_free
    cost = card.cost_of(usage) if is_billed else before
    balances.store_bill(conn, call.id, usage.to_json(), cost)
    if cost is None:
        return None
    statistics.add_cost(conn, call, cost)
    if before is None and cost:
        balances.change(
            conn, call.organization_id, -cost, made_by=MADE_BY_SERVER, call_id=call.id, note=_note(call, usage)
        )
    elif before is not None and cost != before:
        note = f"correction of call {call.id}, which was charged {before}: {_note(call, usage)}"
        balances.change(
            conn, call.organization_id, before - cost, made_by=MADE_BY_SERVER, corrects_call=True, note=note
        )
    return float(cost)


def observe_usage(call: Call, usage: CallUsage) -> None:
    """Update the metrics of a call that was charged, once that is stored."""
    metrics.USED_SECONDS.labels(what="telephony").inc(_connected_s(call))
    metrics.USED_SECONDS.labels(what="hearing").inc(usage.heard_s)
    metrics.USED_TOKENS.labels(what="read").inc(usage.prompt_tokens)
    metrics.USED_TOKENS.labels(what="written").inc(usage.completion_tokens)
    metrics.USED_CHARACTERS.inc(usage.spoken_characters)
    metrics.CHARGED.inc(call.cost or 0.0)


def _connected_s(call: Call) -> float:
    if call.started_at is None or call.ended_at is None:
        return 0.0
    return max((call.ended_at - call.started_at) // _ONE_MS, 0) / 1000


def _note(call: Call, usage: CallUsage) -> str:
    """Returns the note of a balance change. It outlives the call, so it has no personal data."""
    return (
        f"{call.direction} call: {usage.telephony_s} s connected, {usage.tokens} tokens, "
        f"{usage.heard_s} s heard, {usage.spoken_characters} characters spoken"
    )
