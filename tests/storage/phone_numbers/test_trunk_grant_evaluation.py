"""Trunk rules: permissions by grants of the operator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.phone_numbers.trunk_grant_evaluation import OPEN_RULES, TrunkAccessRules, TrunkGrant, is_number_pattern

AT = datetime(2026, 11, 23, tzinfo=UTC)


@dataclass
class Number:
    number: str = "+4930123"
    organization_id: str = "a"
    trunks_taken_over: list[str] = field(default_factory=list)


def given(trunk: str, pattern: str = "*", organization: str = "a", hours: int = 0) -> TrunkGrant:
    at = AT + timedelta(hours=hours)
    return TrunkGrant(organization_id=organization, trunk=trunk, number_pattern=pattern, created_at=at)


def enforced(*grants: TrunkGrant, **more: object) -> TrunkAccessRules:
    return replace(TrunkAccessRules(enforced=True, grants=grants), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trunk", "asked", "covered"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.0/24", "192.0.2.1", True),
        ("192.0.2.0/24", "192.0.2.128/25", True),
        ("192.0.2.0/24", "192.0.2.0/23", False),
        ("192.0.2.0/24", "192.0.2.0/24", True),
        ("0.0.0.0/0", "198.51.100.7", True),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("2001:db8::/32", "2001:db8:1::/48", True),
        ("pbx.example", "pbx.example", True),
        ("pbx.example", "sbc.pbx.example", False),
        ("0.0.0.0/0", "pbx.example", False),
    ],
)
def test_a_granted_network_covers_its_addresses_and_subnets(trunk: str, asked: str, covered: bool) -> None:
    rules = enforced(given(trunk))
    assert rules.permission(Number(), asked) == ("granted" if covered else None)
    assert rules.permission(Number(organization_id="b"), asked) is None


@pytest.mark.parametrize(
    ("pattern", "numbers", "others"),
    [
        ("*", ("1", "+4930123"), ()),
        ("+4930*", ("+4930123", "4930123", "+4930"), ("+493", "+49311", "30123")),
        ("4930*", ("+4930123", "4930123"), ("+49311",)),
        ("+49301?3", ("+4930123", "4930193"), ("+493012", "+49301234")),
        ("100", ("100", "+100"), ("1001", "10")),
        ("1**2", ("12", "1992"), ("121",)),
    ],
)
def test_a_grant_applies_to_numbers_that_match_its_pattern(
    pattern: str, numbers: tuple[str, ...], others: tuple[str, ...]
) -> None:
    rules = enforced(given("192.0.2.1", pattern))
    assert is_number_pattern(pattern)
    assert {rules.permission(Number(each), "192.0.2.1") for each in numbers} == {"granted"}
    assert {rules.permission(Number(each), "192.0.2.1") for each in others} <= {None}


@pytest.mark.parametrize("text", ["", "+", "abc", "+49[0-9]", "+49 30*", "1" * 34, "*\n", "++1"])
def test_a_number_pattern_has_digits_and_wild_cards_only(text: str) -> None:
    assert not is_number_pattern(text)


def test_taken_over_trunks_stay_permitted_and_the_open_policy_permits_all() -> None:
    before = Number(trunks_taken_over=["192.0.2.1"])
    assert enforced().permission(before, "192.0.2.1") == "taken_over"
    assert enforced().permission(before, "192.0.2.2") is None
    assert enforced(given("192.0.2.1")).permission(before, "192.0.2.1") == "granted"
    assert OPEN_RULES.permission(Number(), "192.0.2.1") == "open"


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("198.51.100.7", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("10.1.2.3", False),
        ("192.168.1.1", False),
        ("fd00::1", False),
        ("169.254.1.1", False),
        ("::ffff:127.0.0.1", False),
        ("203.0.113.9", False),
        ("203.0.113.77", False),
        ("10.9.9.9", True),
    ],
)
def test_a_granted_host_name_must_not_resolve_to_internal_or_foreign_addresses(address: str, may: bool) -> None:
    grants = (given("pbx.example"), given("203.0.113.9", organization="b"), given("10.9.9.0/24"))
    rules = enforced(*grants, held_trunks={"b": {"203.0.113.77"}, "a": {"198.51.100.7"}})
    assert rules.may_resolve_to(Number(), "pbx.example", address) is may
    assert rules.may_resolve_to(Number(trunks_taken_over=["pbx.example"]), "pbx.example", address)
    assert rules.may_resolve_to(Number(), "10.9.9.1", "10.9.9.1")
    assert OPEN_RULES.may_resolve_to(Number(), "pbx.example", address)


LEADS = {"a.example": ["198.51.100.5", "198.51.100.6"], "b.example": ["198.51.100.5"], "gone.example": []}
A, B = Number(), Number(organization_id="b")


@pytest.mark.parametrize(("a_hours", "b_hours"), [(1, 0), (0, 1), (0, 0)])
def test_of_two_names_that_resolve_to_one_address_the_earlier_grant_wins(a_hours: int, b_hours: int) -> None:
    """Of two at the same time the one with the lower organization id; only while both resolve to the address."""
    grants = given("a.example", hours=a_hours), given("b.example", organization="b", hours=b_hours)
    rules = enforced(*grants, resolved_addresses=LEADS)
    a_has_it = a_hours <= b_hours
    assert rules.may_resolve_to(A, "a.example", "198.51.100.5") is a_has_it
    assert rules.may_resolve_to(B, "b.example", "198.51.100.5") is not a_has_it
    assert (rules.rank(A, "a.example", "198.51.100.5") is not None) is a_has_it
    assert rules.may_resolve_to(A, "a.example", "198.51.100.6")
    moved = replace(rules, resolved_addresses={"a.example": ["198.51.100.5"], "b.example": ["198.51.100.6"]})
    assert moved.may_resolve_to(A, "a.example", "198.51.100.5") and moved.may_resolve_to(B, "b.example", "198.51.100.6")


@pytest.mark.parametrize("more", ["198.51.100.5", "198.51.100.0/24", "b.example"])
def test_a_grant_of_the_address_or_of_the_same_name_shares_it(more: str) -> None:
    grants = given("b.example", organization="b"), given("a.example", hours=1)
    rules = enforced(*grants, given(more, hours=2), resolved_addresses=LEADS)
    assert rules.may_resolve_to(A, "a.example", "198.51.100.5")
    assert rules.may_resolve_to(B, "b.example", "198.51.100.5") is (more == "b.example")
    for_others = enforced(*grants, given(more, pattern="+43*", hours=2), resolved_addresses=LEADS)
    assert not for_others.may_resolve_to(A, "a.example", "198.51.100.5")


def test_a_taken_over_name_is_older_than_all_grants() -> None:
    rules = enforced(given("a.example"), held_trunks={"b": ["b.example"]}, resolved_addresses=LEADS)
    assert not rules.may_resolve_to(A, "a.example", "198.51.100.5")
    assert rules.may_resolve_to(A, "a.example", "198.51.100.6")
    assert rules.may_resolve_to(
        Number(organization_id="b", trunks_taken_over=["b.example"]), "b.example", "198.51.100.5"
    )


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("198.51.100.7", False),
        ("2001:db8::7", False),
        ("::ffff:198.51.100.7", False),
        ("64:ff9b::198.51.100.7", False),
        ("198.51.100.8", True),
        ("203.0.113.7", True),
    ],
)
def test_an_address_of_this_machine_is_internal(address: str, may: bool) -> None:
    own = frozenset({"198.51.100.7", "2001:db8::7", "203.0.113.7"})
    rules = enforced(given("pbx.example"), given("203.0.113.7"), own_addresses=own)
    assert rules.may_resolve_to(Number(), "pbx.example", address) is may


def test_rank_prefers_grants_then_narrower_sources() -> None:
    rules = enforced(given("192.0.2.0/24"), given("carrier.example"), given("198.51.100.7"))
    old = Number(trunks_taken_over=["192.0.2.1", "192.0.0.0/16", "old.example"], organization_id="b")
    at = "192.0.2.1"
    assert rules.rank(Number(), "203.0.113.0/24", at) is None
    granted, address, wide = (
        rules.rank(Number(), "192.0.2.0/24", at),
        rules.rank(old, at, at),
        rules.rank(old, "192.0.0.0/16", at),
    )
    name = rules.rank(old, "old.example", at)
    assert granted is not None and address is not None and wide is not None and name is not None
    assert granted > address > name > wide
    assert rules.rank(Number(), "carrier.example", at) > rules.rank(Number(), "192.0.2.0/24", at)  # type: ignore[operator]
