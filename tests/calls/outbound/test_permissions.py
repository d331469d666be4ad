"""Dial permissions: allowed destinations."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from calls.outbound.permissions import allowed_destination
from storage.accounts.organizations import Organization
from storage.phone_numbers.phone_numbers import PhoneNumber

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def _number(prefixes: list[str] | None) -> PhoneNumber:
    return PhoneNumber(
        number="+4930100",
        provider="sip",
        outbound_prefixes=prefixes,
        id="n",
        organization_id="o",
        source=None,
        created_at=NOW,
        updated_at=NOW,
    )


def _organization(prefixes: list[str] | None) -> Organization:
    return Organization("o", "default", "free", Decimal(0), None, NOW, prefixes)


@pytest.mark.parametrize(
    ("organization", "number", "destination", "allowed"),
    [
        (None, None, "+18005550100", True),
        (None, None, "100", True),
        (["+49", "+43"], None, "+4366012345", True),
        (["+49", "+43"], None, "+18005550100", False),
        (None, ["+49"], "+4930200", True),
        (None, ["+49"], "+4330200", False),
        (["+49", "+43"], ["+4930", "+1"], "+4930200", True),
        (["+49", "+43"], ["+4930", "+1"], "+4940200", False),
        (["+49", "+43"], ["+4930", "+1"], "+18005550100", False),
        (["+"], ["+"], "+18005550100", True),
        (["+"], None, "100", False),
        (["1"], None, "100", True),
        (["1"], None, "+100200300", False),
        (["+49"], None, "004930200", False),
        (["+49"], None, "4930200", False),
        ([], None, "+4930200", False),
        (None, [], "100", False),
    ],
)
def test_prefixes_of_organization_and_number_must_both_match(
    organization: list[str] | None, number: list[str] | None, destination: str, allowed: bool
) -> None:
    dialled = allowed_destination(_number(number), _organization(organization), destination)
    assert dialled == (destination if allowed else None)


@pytest.mark.parametrize(
    "destination",
    [
        "",
        "+",
        "1",
        "+0123",
        "+49 30 200",
        "+49-30-200",
        "+4930200;phone-context=x",
        "+4930200@elsewhere.example",
        "alice",
        "*21*100#",
        "+4930200\n",
        "1234567890123456",
        "+1234567890123456",
        "١٢٣",
    ],
)
def test_only_e164_numbers_and_extensions_are_dialled(destination: str) -> None:
    assert allowed_destination(_number(None), _organization(None), destination) is None
