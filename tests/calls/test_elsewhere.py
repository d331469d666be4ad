"""Where the peer of a call may have it go on, and what the audit log tells of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sipcore.contacts import Contact
from sipcore.headers import Party
from sipcore.referral import Referral
from storage import phone_numbers, tables
from tests.calls.house import House, open_house, until
from tests.calls.outbound import callee, ended, queue, stored
from tests.fakes_legs import SOURCE, Phone


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


async def referring(house: House, **rights: Any) -> Phone:
    """A talking call of a number that has these rights."""
    number, _ = await house.number()
    await house.database.write(lambda conn: phone_numbers.replace(conn, number, rights))
    phone = house.rings()
    await until(lambda: phone.leg.on_digit is not None)
    return phone


def wish(user: str = "200", host: str = SOURCE, replaces: str = "") -> Referral:
    """What the peer asks for."""
    return Referral(Contact(user, host, SOURCE), replaces, 2, False)


async def test_a_number_that_allows_no_refer_has_nobody_called(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        phone = await referring(house)
        assert phone.leg.on_refer is None


async def test_whom_the_peer_names_is_called_through_the_trunk(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        phone = await referring(house, sip_allow_refer=True)
        assert phone.leg.on_refer is not None
        going = asyncio.ensure_future(phone.leg.on_refer(wish(replaces="a@b;to-tag=1;from-tag=2")))
        there = await callee(house)
        assert (there.uri, there.caller) == (f"sip:200@{SOURCE}", Party("+4930100", ""))
        assert list(there.headers) == [("Replaces", "a@b;to-tag=1;from-tag=2")]
        there.rings()
        there.answers()
        assert await going is there.leg
        assert await house.database.read(verdicts) == [("200", "referred")]


@pytest.mark.parametrize("to", [wish("+881"), wish(host="192.0.2.99"), wish("ann")])
async def test_a_referral_beyond_the_rules_calls_nobody(tmp_path: Path, to: Referral) -> None:
    async with open_house(tmp_path) as house:
        phone = await referring(house, sip_allow_refer=True, outbound_prefixes=["+49", "200"])
        assert phone.leg.on_refer is not None
        assert await phone.leg.on_refer(to) == 603
        assert house.callees.called == []
        assert [verdict for _, verdict in await house.database.read(verdicts)] == ["refer_refused"]


async def test_who_does_not_take_the_call_is_told_by_the_status(tmp_path: Path) -> None:
    async with open_house(tmp_path, ring_timeout_s=0.1) as house:
        phone = await referring(house, sip_allow_refer=True)
        assert phone.leg.on_refer is not None
        going = asyncio.ensure_future(phone.leg.on_refer(wish()))
        (await callee(house)).ends(486)
        assert await going == 486
        assert await phone.leg.on_refer(wish()) == 408
        assert (await callee(house, 1)).sent == [-1]
        house.callees.error = ConnectionError("no")
        assert await phone.leg.on_refer(wish()) == 503


async def test_a_call_that_ends_meanwhile_calls_nobody_any_more(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        phone = await referring(house, sip_allow_refer=True)
        assert phone.leg.on_refer is not None
        going = asyncio.ensure_future(phone.leg.on_refer(wish()))
        there = await callee(house)
        await house.service.hangup((await house.stored(phone)).id)
        assert await going == 408
        assert there.sent == [-1]
