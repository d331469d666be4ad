"""What the operator has given: trunks to organizations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import NotFound
from storage import tables
from storage.accounts import audit_log
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber, named_trunks
from storage.phone_numbers.trunk_rules import Policy, Standing, TrunkGrant, TrunkRules
from storage.tables.row_mapping import RowMapping

DEMO: Final = "demo_organization"
"""The fact that names the organization of `trunkline demo`, which is the operator's own and does not count."""

_GRANT: Final = RowMapping(TrunkGrant, tables.trunk_grants)
_t = tables.trunk_grants
_n = tables.phone_numbers


@dataclass(frozen=True)
class RevokedGrants:
    """What an organization has lost: what it was given, and numbers that had a trunk from before."""

    grants: Sequence[TrunkGrant]
    numbers: Sequence[PhoneNumber]


@dataclass(frozen=True)
class TrunkUse:
    """A trunk that numbers of an organization name; `standing` None: they may not use it."""

    organization_id: str
    trunk: str
    standing: Standing | None
    numbers: Sequence[PhoneNumber]


def is_enforced(conn: sa.Connection, policy: Policy) -> bool:
    """Whether trunks must have been given."""
    return policy == "approved" or (policy == "auto" and organizations_counted(conn) > 1)


def organizations_counted(conn: sa.Connection) -> int:
    """How many organizations there are, without the demo's."""
    organizations, facts = tables.organizations, tables.facts
    demo = sa.select(facts.c.value).where(facts.c.name == DEMO)
    query = sa.select(sa.func.count()).select_from(organizations).where(organizations.c.id.not_in(demo))
    return int(conn.execute(query).scalar_one())


def set_demo_organization(conn: sa.Connection, organization_id: str) -> None:
    """Remember which organization is the demo's."""
    facts = tables.facts
    conn.execute(sa.delete(facts).where(facts.c.name == DEMO))
    conn.execute(sa.insert(facts).values(name=DEMO, value=organization_id))


def rules(conn: sa.Connection, policy: Policy) -> TrunkRules:
    """What holds now."""
    return TrunkRules(is_enforced(conn, policy), all_of(conn))


def rules_and_numbers(conn: sa.Connection, policy: Policy) -> tuple[TrunkRules, list[PhoneNumber]]:
    """The same with what organizations hold, and all numbers that have a trunk."""
    numbers = phone_numbers.trunks(conn)
    held: dict[str, set[str]] = {}
    for number in numbers:
        held.setdefault(number.organization_id, set()).update(number.trunks_taken_over)
    return replace(rules(conn, policy), held=held), numbers


def all_of(conn: sa.Connection, organization_id: str | None = None) -> list[TrunkGrant]:
    """Every one, or those of an organization, oldest first."""
    query = sa.select(*_GRANT.columns).order_by(_t.c.created_at, _t.c.organization_id, _t.c.trunk, _t.c.number_pattern)
    if organization_id is not None:
        query = query.where(_t.c.organization_id == organization_id)
    return [_GRANT.build(row) for row in conn.execute(query)]


def allow(conn: sa.Connection, organization_id: str, trunk: str, number_pattern: str, *, actor: str) -> TrunkGrant:
    """Give a trunk, in normal form. What was given before stays as it is."""
    for each in all_of(conn, organization_id):
        if (each.trunk, each.number_pattern) == (trunk, number_pattern):
            return each
    made = TrunkGrant(organization_id=organization_id, trunk=trunk, number_pattern=number_pattern, created_at=utc_now())
    conn.execute(sa.insert(_t), asdict(made))
    detail = f"{trunk} for numbers {number_pattern}"
    audit_log.record(conn, organization_id, actor=actor, action="trunk.allow", detail=detail)
    return made


def deny(
    conn: sa.Connection, organization_id: str, trunk: str, number_pattern: str | None, *, actor: str
) -> RevokedGrants:
    """Take back what was given of a trunk, and what lies within it, by the very pattern or (None) by all; numbers that
    had it from before lose it too. `NotFound` when there is nothing."""
    place = TrunkGrant(
        organization_id=organization_id, trunk=trunk, number_pattern=number_pattern or "*", created_at=utc_now()
    )
    gone = [
        each
        for each in all_of(conn, organization_id)
        if place.covers(each.trunk) and number_pattern in (None, each.number_pattern)
    ]
    for each in gone:
        mine = _t.c.organization_id == organization_id, _t.c.trunk == each.trunk
        conn.execute(sa.delete(_t).where(*mine, _t.c.number_pattern == each.number_pattern))
    losers = _revoke_taken_over(conn, place)
    if not gone and not losers:
        raise NotFound(f"{trunk} was not given to this organization: see `trunkline trunk list`")
    for detail in (
        *(f"{each.trunk} for numbers {each.number_pattern}" for each in gone),
        *(f"{trunk} for {each.number}, which had it before" for each in losers),
    ):
        audit_log.record(conn, organization_id, actor=actor, action="trunk.deny", detail=detail)
    return RevokedGrants(gone, losers)


def _revoke_taken_over(conn: sa.Connection, place: TrunkGrant) -> list[PhoneNumber]:
    """The numbers that had what lies in `place` from before, and have it no more."""
    losers = []
    query = sa.select(*NUMBER.columns).where(_n.c.organization_id == place.organization_id).order_by(_n.c.created_at)
    for number in [NUMBER.build(row) for row in conn.execute(query)]:
        kept = [each for each in number.trunks_taken_over if not place.covers(each)]
        if kept != number.trunks_taken_over and place.is_for(number.number):
            conn.execute(sa.update(_n).where(_n.c.id == number.id).values(trunks_taken_over=kept))
            losers.append(number)
    return losers


def uses(conn: sa.Connection, held: TrunkRules) -> list[TrunkUse]:
    """Every trunk that numbers name, by organization and standing."""
    found: dict[tuple[str, str, Standing | None], list[PhoneNumber]] = {}
    query = sa.select(*NUMBER.columns).order_by(_n.c.organization_id, _n.c.created_at, _n.c.id)
    for number in [NUMBER.build(row) for row in conn.execute(query)]:
        for trunk in dict.fromkeys(named_trunks(number).values()):
            key = number.organization_id, trunk, held.standing(number, trunk)
            found.setdefault(key, []).append(number)
    return [TrunkUse(*key, numbers) for key, numbers in found.items()]


def usable_sources(conn: sa.Connection, held: TrunkRules) -> Collection[str]:
    """The sources of all numbers, as `phone_numbers.sources` gives them, without those that no number may use."""
    if not held.enforced:
        return phone_numbers.sources(conn)
    return {
        source
        for number in phone_numbers.trunks(conn)
        for source in phone_numbers.sources_of(number)
        if held.standing(number, source) is not None
    }
