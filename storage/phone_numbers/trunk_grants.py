"""Storage of trunk grants: the trunks that the operator has granted to organizations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import NotFound
from storage import tables
from storage.accounts import audit_log
from storage.accounts.audit_log import Actor
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber, named_trunks
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules, TrunkGrant, TrunkPermission, TrunkPolicy
from storage.tables.row_mapping import RowMapping

DEMO_ORGANIZATION: Final = "demo_organization"
"""The name of the fact whose value is the organization of `trunkline demo`, which does not count."""

_GRANT: Final = RowMapping(TrunkGrant, tables.trunk_grants)
_t = tables.trunk_grants
_n = tables.phone_numbers


@dataclass(frozen=True)
class RevokedGrants:
    """The revoked grants, and the numbers that lost a trunk that they had taken over."""

    grants: Sequence[TrunkGrant]
    numbers: Sequence[PhoneNumber]


@dataclass(frozen=True)
class TrunkUse:
    """A trunk that numbers of an organization name, and why they may use it; None: they may not."""

    organization_id: str
    trunk: str
    permission: TrunkPermission | None
    numbers: Sequence[PhoneNumber]


def is_enforced(conn: sa.Connection, policy: TrunkPolicy) -> bool:
    """True if trunks must be granted."""
    return policy == "approved" or (policy == "auto" and count_organizations(conn) > 1)


def count_organizations(conn: sa.Connection) -> int:
    """The number of organizations, without the demo's."""
    organizations, facts = tables.organizations, tables.facts
    demo = sa.select(facts.c.value).where(facts.c.name == DEMO_ORGANIZATION)
    query = sa.select(sa.func.count()).select_from(organizations).where(organizations.c.id.not_in(demo))
    return int(conn.execute(query).scalar_one())


def demo_organization(conn: sa.Connection) -> str | None:
    """The id of the demo's organization, which may have been deleted; None if there was no demo."""
    facts = tables.facts
    return conn.execute(sa.select(facts.c.value).where(facts.c.name == DEMO_ORGANIZATION)).scalar()


def set_demo_organization(conn: sa.Connection, organization_id: str) -> None:
    """Store which organization is the demo's."""
    facts = tables.facts
    conn.execute(sa.delete(facts).where(facts.c.name == DEMO_ORGANIZATION))
    conn.execute(sa.insert(facts).values(name=DEMO_ORGANIZATION, value=organization_id))


def current_access_rules(conn: sa.Connection, policy: TrunkPolicy) -> TrunkAccessRules:
    """The rules that apply now."""
    return TrunkAccessRules(is_enforced(conn, policy), all_of(conn))


def current_access_rules_and_numbers(
    conn: sa.Connection, policy: TrunkPolicy
) -> tuple[TrunkAccessRules, list[PhoneNumber]]:
    """The rules with the trunks that organizations hold, and all numbers that have a trunk."""
    numbers = phone_numbers.numbers_with_trunk(conn)
    held_trunks: dict[str, set[str]] = {}
    for number in numbers:
        held_trunks.setdefault(number.organization_id, set()).update(number.trunks_taken_over)
    return replace(current_access_rules(conn, policy), held_trunks=held_trunks), numbers


def all_of(conn: sa.Connection, organization_id: str | None = None) -> list[TrunkGrant]:
    """All grants, or those of an organization, oldest first."""
    query = sa.select(*_GRANT.columns).order_by(_t.c.created_at, _t.c.organization_id, _t.c.trunk, _t.c.number_pattern)
    if organization_id is not None:
        query = query.where(_t.c.organization_id == organization_id)
    return [_GRANT.build(row) for row in conn.execute(query)]


def allow(conn: sa.Connection, organization_id: str, trunk: str, number_pattern: str, *, actor: str) -> TrunkGrant:
    """Grant a trunk, in normal form. An existing grant stays as it is."""
    for each in all_of(conn, organization_id):
        if (each.trunk, each.number_pattern) == (trunk, number_pattern):
            return each
    grant = TrunkGrant(
        organization_id=organization_id, trunk=trunk, number_pattern=number_pattern, created_at=utc_now()
    )
    conn.execute(sa.insert(_t), asdict(grant))
    detail = f"{trunk} for numbers {number_pattern}"
    audit_log.record(conn, organization_id, actor=Actor("command", actor), action="trunk.allow", detail=detail)
    return grant


def deny(
    conn: sa.Connection, organization_id: str, trunk: str, number_pattern: str | None, *, actor: str
) -> RevokedGrants:
    """Revoke the grants of a trunk and of trunks within it, with this number pattern or (None) with any; also from
    numbers that had taken it over. Raises `NotFound` when there is nothing to revoke."""
    revoked = TrunkGrant(
        organization_id=organization_id, trunk=trunk, number_pattern=number_pattern or "*", created_at=utc_now()
    )
    grants = [
        each
        for each in all_of(conn, organization_id)
        if revoked.covers(each.trunk) and number_pattern in (None, each.number_pattern)
    ]
    for each in grants:
        of_grant = _t.c.organization_id == organization_id, _t.c.trunk == each.trunk
        conn.execute(sa.delete(_t).where(*of_grant, _t.c.number_pattern == each.number_pattern))
    numbers = _revoke_taken_over(conn, revoked)
    if not grants and not numbers:
        raise NotFound(f"{trunk} was not granted to this organization: see `trunkline trunk list`")
    for detail in (
        *(f"{each.trunk} for numbers {each.number_pattern}" for each in grants),
        *(f"{trunk} for {each.number}, which had it before" for each in numbers),
    ):
        audit_log.record(conn, organization_id, actor=Actor("command", actor), action="trunk.deny", detail=detail)
    return RevokedGrants(grants, numbers)


def _revoke_taken_over(conn: sa.Connection, revoked: TrunkGrant) -> list[PhoneNumber]:
    """Revoke taken over trunks within `revoked`; returns the numbers that lost one."""
    changed = []
    query = sa.select(*NUMBER.columns).where(_n.c.organization_id == revoked.organization_id).order_by(_n.c.created_at)
    for number in [NUMBER.build(row) for row in conn.execute(query)]:
        kept = [each for each in number.trunks_taken_over if not revoked.covers(each)]
        if kept != number.trunks_taken_over and revoked.matches_number(number.number):
            conn.execute(sa.update(_n).where(_n.c.id == number.id).values(trunks_taken_over=kept))
            changed.append(number)
    return changed


def trunk_uses(conn: sa.Connection, current: TrunkAccessRules) -> list[TrunkUse]:
    """Every trunk that numbers name, by organization and permission."""
    found: dict[tuple[str, str, TrunkPermission | None], list[PhoneNumber]] = {}
    query = sa.select(*NUMBER.columns).order_by(_n.c.organization_id, _n.c.created_at, _n.c.id)
    for number in [NUMBER.build(row) for row in conn.execute(query)]:
        for trunk in dict.fromkeys(named_trunks(number).values()):
            key = number.organization_id, trunk, current.permission(number, trunk)
            found.setdefault(key, []).append(number)
    return [TrunkUse(*key, numbers) for key, numbers in found.items()]


def usable_sources(conn: sa.Connection, current: TrunkAccessRules) -> Collection[str]:
    """The sources of all numbers, as in `phone_numbers.sources`, without those that no number may use."""
    if not current.enforced:
        return phone_numbers.all_sources(conn)
    return {
        source
        for number in phone_numbers.numbers_with_trunk(conn)
        for source in phone_numbers.sources_of(number)
        if current.permission(number, source) is not None
    }
