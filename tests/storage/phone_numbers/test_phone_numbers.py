"""Matching of dialled numbers, and uniqueness of numbers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from config.errors import Invalid
from storage.accounts import organizations
from storage.agents import agents
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import InboundMatch, PhoneNumber, PhoneNumberFields
from storage.tables.agent_fields import AgentFields


def _number(conn: sa.Connection, organization_id: str, number: str, **changes: Any) -> PhoneNumber:
    facts: dict[str, Any] = {"provider": "sip", "sip_mode": "ip_allowlist", "sip_ip": "192.0.2.1"}
    fields = PhoneNumberFields(number=number, **{**facts, **changes})
    return phone_numbers.create(conn, organization_id, fields)


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"sip_mode": "ip_allowlist", "sip_ip": "192.0.2.7"}, "192.0.2.7"),
        ({"sip_mode": "ip_allowlist", "sip_ip": "[2001:DB8:0::1]"}, "2001:db8::1"),
        ({"sip_mode": "ip_allowlist", "sip_ip": "2001:db8:0:0:0:0:0:1"}, "2001:db8::1"),
        ({"sip_mode": "ip_allowlist", "sip_ip": "PBX.example."}, "pbx.example"),
        ({"sip_mode": "registration", "sip_proxy": "sip.Carrier.example:5080"}, "sip.carrier.example"),
        ({"sip_mode": "registration", "sip_proxy": "sip:me@carrier.example:5080;transport=tcp"}, "carrier.example"),
        ({"sip_mode": "registration", "sip_proxy": "sips:[2001:db8::2]:5061"}, "2001:db8::2"),
        ({"sip_mode": "registration", "sip_ip": "192.0.2.7"}, None),
        ({"sip_ip": "192.0.2.7"}, None),
    ],
)
def test_a_source_has_one_normal_form(fields: dict[str, Any], source: str | None) -> None:
    assert phone_numbers.source_of(PhoneNumberFields(number="100", provider="sip", **fields)) == source


@pytest.mark.parametrize(
    ("dialled", "found"),
    [("+41", "+41"), ("41", "+41"), ("200", "200"), ("+200", "200"), ("300", "300"), ("+300", "+300"), ("9", None)],
)
async def test_a_dialled_number_matches_with_or_without_the_plus(
    database: Database, organization_id: str, dialled: str, found: str | None
) -> None:
    def find(conn: sa.Connection) -> InboundMatch | None:
        for number in ("+300", "+41", "200", "300"):
            _number(conn, organization_id, number)
        return phone_numbers.match_inbound(conn, ["192.0.2.1"], dialled)

    target = await database.write(find)
    assert (None if target is None else target.number.number) == found


async def test_two_organizations_that_create_the_same_number_at_once_get_it_one_after_the_other(
    database: Database, organization_id: str
) -> None:
    """PostgreSQL runs the transactions of two organizations beside each other: the second one waits for the first."""
    other = (await database.write(lambda conn: organizations.create(conn, "other"))).id
    created, released = threading.Event(), threading.Event()

    def create_slowly(conn: sa.Connection) -> None:
        _number(conn, organization_id, "100")
        created.set()
        assert released.wait(10)

    first = asyncio.create_task(database.write(create_slowly, lock=organization_id))
    await asyncio.to_thread(created.wait, 10)
    second = asyncio.create_task(database.write(lambda conn: _number(conn, other, "+100"), lock=other))
    await asyncio.wait((second,), timeout=0.1)
    assert not second.done()
    released.set()
    await first
    with pytest.raises(Invalid) as refused:
        await second
    assert [each.field for each in refused.value.problems] == ["number"]


async def test_a_number_matches_calls_from_its_own_sources_only(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other", max_calls=3)
        _number(conn, organization_id, "100")
        theirs = _number(conn, other.id, "100", sip_ip="192.0.2.2")
        target = phone_numbers.match_inbound(conn, ["192.0.2.2", "pbx.example"], "100")
        assert phone_numbers.match_inbound(conn, ["192.0.2.3"], "100") is None
        assert phone_numbers.all_sources(conn) == {"192.0.2.1", "192.0.2.2"}
        assert target is not None
        assert (target.number, target.agent, target.max_calls) == (theirs, None, 3)

    await database.write(check)


async def test_a_match_includes_the_agent_of_the_number(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        agent = agents.create(conn, organization_id, AgentFields(name="Anna"))
        number = _number(conn, organization_id, "100", agent_id=agent.id)
        target = phone_numbers.match_inbound(conn, ["192.0.2.1"], "100")
        assert target is not None
        assert target.agent == agent
        assert agents.delete(conn, organization_id, agent.id)
        after = phone_numbers.get(conn, organization_id, number.id)
        assert after is not None
        assert after.agent_id is None

    await database.write(check)


async def test_a_number_is_unique_in_its_organization_and_by_its_source(
    database: Database, organization_id: str
) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other")
        _number(conn, organization_id, "100")
        for owner, source in ((organization_id, "192.0.2.9"), (other.id, "192.0.2.1")):
            with pytest.raises(Invalid) as caught:
                _number(conn, owner, "100", sip_ip=source)
            assert [problem.field for problem in caught.value.problems] == ["number"]
        moving = _number(conn, other.id, "100", sip_ip="192.0.2.9")
        with pytest.raises(Invalid):
            phone_numbers.replace(conn, moving, {"sip_ip": "192.0.2.1"})
        _number(conn, other.id, "101", sip_ip="192.0.2.1")

    await database.write(check)


@pytest.mark.parametrize(("held", "wanted"), [("+49777", "49777"), ("49777", "+49777")])
async def test_a_number_of_the_same_source_is_taken_with_or_without_the_plus(
    database: Database, organization_id: str, held: str, wanted: str
) -> None:
    def check(conn: sa.Connection) -> None:
        other, third, fourth = (organizations.create(conn, name) for name in ("other", "third", "fourth"))
        number = _number(conn, organization_id, held)
        moving = _number(conn, other.id, wanted, sip_ip="192.0.2.9")
        renamed = _number(conn, third.id, "100")
        attempts: list[Callable[[], PhoneNumber]] = [
            lambda: _number(conn, fourth.id, wanted),
            lambda: phone_numbers.replace(conn, moving, {"sip_ip": "192.0.2.1"}),
            lambda: phone_numbers.replace(conn, renamed, {"number": wanted}),
        ]
        for attempt in attempts:
            with pytest.raises(Invalid) as caught:
                attempt()
            assert [problem.field for problem in caught.value.problems] == ["number"]
        for dialled in (held, wanted):
            target = phone_numbers.match_inbound(conn, ["192.0.2.1"], dialled)
            assert target is not None
            assert target.number == number

    await database.write(check)


async def test_an_organization_may_have_a_number_with_and_without_the_plus(
    database: Database, organization_id: str
) -> None:
    def check(conn: sa.Connection) -> None:
        numbers = [_number(conn, organization_id, number) for number in ("+49777", "49777")]
        for each in numbers:
            phone_numbers.replace(conn, each, {"name": "Desk"})
            target = phone_numbers.match_inbound(conn, ["192.0.2.1"], each.number)
            assert target is not None
            assert target.number.id == each.id

    await database.write(check)


async def test_numbers_without_a_trunk_do_not_conflict(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other")
        for owner in (organization_id, other.id):
            _number(conn, owner, "100", sip_mode=None, sip_ip=None)
        assert phone_numbers.numbers_with_trunk(conn) == []

    await database.write(check)
