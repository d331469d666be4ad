"""The organization of a request in bodies and responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from api.schemas.base import Body, IdView, Instant, View, without_defaults
from config.settings import Settings
from storage.accounts.organizations import Organization as StoredOrganization
from storage.accounts.quotas import QuotaUsage

MAX_DAYS = 36_500
Days = Annotated[int, Field(ge=0, le=MAX_DAYS)] | None


class OrganizationUpdate(Body):
    """Changes to the retention and redaction of the organization's calls: an absent field stays as it is."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    keep_recordings_days: Days = Field(
        None, description="Days from a call's end until its recording is deleted; null: never"
    )
    keep_transcripts_days: Days = Field(
        None,
        description="Days from a call's end until its transcript, timeline, summary, context variables, SIP messages "
        "and webhooks are deleted; null: never",
    )
    keep_calls_days: Days = Field(
        None, description="Days from a call's end until it is deleted with everything stored about it; null: never"
    )
    redact: bool = Field(
        False, description="true: card, account and identity numbers are redacted in calls before they are stored"
    )
    redact_dialled: bool = Field(False, description="true: so are all DTMF digits of callers")


class OrganizationQuota(View):
    """The usage of a quota."""

    name: str = Field(description="Name of the quota")
    used: int = Field(description="What counts against the quota now")
    allowed: int = Field(description="The most that it may be")


class Organization(View):
    """The organization of the API key or of the user. What OrganizationUpdate does not have, the operator sets."""

    id: IdView
    name: str = Field(description="Name of the organization")
    plan: Literal["free", "paid"] = Field(description="`paid`: calls cost something, and need a balance above zero")
    balance: float | None = Field(description="Balance of a paid plan; null on the free plan")
    max_calls: int = Field(description="Most calls at a time: queued, inbound and outbound")
    outbound_per_minute: int | None = Field(
        description="Most outbound calls in 60 seconds; null: the server's pace alone"
    )
    outbound_prefixes: list[str] | None = Field(
        description="Prefixes of the destinations that may be called; null: any destination"
    )
    keep_recordings_days: int | None
    keep_transcripts_days: int | None
    keep_calls_days: int | None
    redact: bool
    redact_dialled: bool
    listening: bool = Field(description="Whether live calls may be listened in to, by the role editor")
    quotas: list[OrganizationQuota] = Field(description="Every quota and its usage")
    created_at: Instant

    @classmethod
    def of(cls, stored: StoredOrganization, quotas: Iterable[QuotaUsage], settings: Settings) -> Self:
        """Returns the view of a stored organization."""
        values: dict[str, Any] = {
            **stored.__dict__,
            "balance": float(stored.balance) if stored.plan == "paid" else None,
            "max_calls": stored.max_calls or settings.limits.max_calls_per_organization,
            "listening": settings.dashboard.listen,
            "quotas": [{"name": each.quota, "used": each.used, "allowed": each.allowed} for each in quotas],
        }
        return cls.model_validate(values)
