"""Where the peer of a call may have it go on, and what the audit log tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sipcore.contacts import Contact
from storage import phone_numbers, tables
from tests.calls.house import open_house, until
from tests.calls.outbound import callee, ended, queue, stored
from tests.fakes_legs import SOURCE


def verdicts(conn: sa.Connection) -> list[tuple[str, str]]:
    """The audit log: destination and verdict."""
    t = tables.outbound_attempts
    return [tuple(row) for row in conn.execute(sa.select(t.c.destination, t.c.verdict).order_by(t.c.created_at))]


@pytest.mark.parametrize(
    ("rights", "contact", "user"),
    [
        ({}, Contact("200", SOURCE, SOURCE), None),
        ({"sip_allow_redirect": True}, Contact("200", SOURCE, SOURCE), "200"),
        ({"sip_allow_redirect": True}, Contact("200", SOURCE, "192.0.2.99"), "200"),
        ({"sip_allow_redirect": True}, Contact("200", "192.0.2.99", SOURCE), None),
        ({"sip_allow_redirect": True, "sip_sources": ["sbc.example"]}, Contact("200", "sbc.example", SOURCE), "200"),
        ({"sip_allow_redirect": True, "outbound_prefixes": ["+49"]}, Contact("+491", SOURCE, SOURCE), "+491"),
        ({"sip_allow_redirect": True, "outbound_prefixes": ["+49"]}, Contact("+881", SOURCE, SOURCE), None),
        ({"sip_allow_redirect": True}, Contact("ann", SOURCE, SOURCE), None),
        ({"sip_allow_refer": True}, Contact("200", SOURCE, SOURCE), None),
    ],
)
async def test_a_redirect_is_followed_within_the_trunk_when_it_may_be(
    tmp_path: Path, rights: dict[str, Any], contact: Contact, user: str | None
) -> None:
    async with open_house(tmp_path) as house:
        number, agent = await house.number()
        changed = await house.database.write(lambda conn: phone_numbers.replace(conn, number, rights))
        call = await queue(house, (changed, agent))
        there = await callee(house)
        assert there.follow is not None
        assert await there.follow(contact) == user
        there.ends(302)
        end = await ended(house, call)
        log = await house.database.read(verdicts)
    assert end.ended_reason == "unreachable"
    destination = f"200@{contact.host}" if contact.host == "192.0.2.99" else contact.user
    assert log == [(destination, "redirected" if user else "redirect_refused")]


async def test_rights_that_were_taken_back_count_at_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, agent = await house.number()
        allowed = await house.database.write(lambda c: phone_numbers.replace(c, number, {"sip_allow_redirect": True}))
        call = await queue(house, (allowed, agent))
        there = await callee(house)
        assert there.follow is not None
        await house.database.write(lambda c: phone_numbers.replace(c, allowed, {"sip_allow_redirect": False}))
        assert await there.follow(Contact("200", SOURCE, SOURCE)) is None
        assert (await stored(house, call)).ended_at is None


async def test_a_call_may_be_taken_over_from_every_address_of_its_number_and_from_no_other(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, _ = await house.number()
        more = {"sip_sources": ["198.51.100.0/24", "sbc.example"]}
        await house.database.write(lambda conn: phone_numbers.replace(conn, number, more))
        names = {"198.51.100.7": {"198.51.100.0/24"}, "203.0.113.9": {"sbc.example", "203.0.113.9"}}
        house.names.update(names)
        phone = house.rings()
        await until(lambda: phone.leg.may_be_taken_over)
        may = phone.leg.may_be_taken_over
        assert may is not None
        assert [may(each) for each in (SOURCE, *names)] == [True, True, True]
        assert not may("203.0.113.10")
