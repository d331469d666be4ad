"""Where the peer of a call may have it go on, and what the audit log tells of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from calls.admission.capacity import ConcurrencyLimits
from calls.outbound import transfer_permissions
from sipcore.dialogs.invite_error import InviteError
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from sipcore.messages.refer import ReferRequest, parse_refer
from storage import tables
from storage.database.database import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, ended, queue, stored
from tests.fakes.fake_leg import SOURCE, Phone


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
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        changed = await harness.database.write(lambda conn: phone_numbers.replace(conn, number, rights))
        call = await queue(harness, (changed, agent))
        there = await callee(harness)
        assert there.follow is not None
        assert await there.follow(contact) == user
        there.ends(302)
        end = await ended(harness, call)
        log = await harness.database.read(verdicts)
    assert end.ended_reason == "unreachable"
    destination = f"200@{contact.host}" if contact.host == "192.0.2.99" else contact.user
    assert log == [(destination, "redirected" if user else "redirect_refused")]


async def test_rights_that_were_taken_back_count_at_once(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        allowed = await harness.database.write(lambda c: phone_numbers.replace(c, number, {"sip_allow_redirect": True}))
        call = await queue(harness, (allowed, agent))
        there = await callee(harness)
        assert there.follow is not None
        await harness.database.write(lambda c: phone_numbers.replace(c, allowed, {"sip_allow_redirect": False}))
        assert await there.follow(Contact("200", SOURCE, SOURCE)) is None
        assert (await stored(harness, call)).ended_at is None


async def test_a_call_may_be_taken_over_from_every_address_of_its_number_and_from_no_other(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number()
        more = {"sip_sources": ["198.51.100.0/24", "sbc.example"]}
        await harness.database.write(lambda conn: phone_numbers.replace(conn, number, more))
        names = {"198.51.100.7": {"198.51.100.0/24"}, "203.0.113.9": {"sbc.example", "203.0.113.9"}}
        harness.aliases.update(names)
        phone = harness.rings()
        await until(lambda: phone.leg.may_be_replaced_by)
        may = phone.leg.may_be_replaced_by
        assert may is not None
        assert [may(each) for each in (SOURCE, *names)] == [True, True, True]
        assert not may("203.0.113.10")


async def referring(harness: CallServiceHarness, **rights: Any) -> Phone:
    """A talking call of a number that has these rights."""
    number, _ = await harness.create_number()
    await harness.database.write(lambda conn: phone_numbers.replace(conn, number, rights))
    phone = harness.rings()
    await until(lambda: phone.leg.on_digit is not None)
    return phone


def wish(user: str = "200", host: str = SOURCE, replaces: str = "") -> ReferRequest:
    """What the peer asks for."""
    return ReferRequest(Contact(user, host, SOURCE), replaces, 2, False)


class Asked:
    """The peer's REFER to a live call: `async with` sends it, `answer` is what comes of it in the end."""

    def __init__(self, phone: Phone, referral: ReferRequest) -> None:
        self.accepted = asyncio.Event()
        assert phone.leg.on_refer is not None
        self.answer = asyncio.ensure_future(phone.leg.on_refer(referral, self._accept))

    async def _accept(self) -> None:
        self.accepted.set()


async def refused(phone: Phone, referral: ReferRequest) -> None:
    """The wish is not granted, and nothing was accepted before."""
    asked = Asked(phone, referral)
    assert await asked.answer == 603
    assert not asked.accepted.is_set()


@pytest.mark.parametrize(
    ("to", "destination"),
    [
        (wish(), "200"),
        (wish(host="192.0.2.99"), "200@192.0.2.99"),
        (parse_refer("2 1 192.0.2.10 <tel:+49301>"), "tel:+49301"),
        (parse_refer("2 1 192.0.2.10 <sips:+49301@192.0.2.10>"), "sips:+49301@192.0.2.10"),
        (parse_refer(f"2 1 192.0.2.10 <tel:{'1' * 800}>"), ("tel:" + "1" * 800)[:128]),
    ],
)
async def test_every_wish_of_a_peer_that_may_not_wish_stands_in_the_audit_log(
    tmp_path: Path, to: ReferRequest, destination: str
) -> None:
    async with call_service(tmp_path) as harness:
        await refused(await referring(harness), to)
        assert harness.callees.dialled == []
        assert await harness.database.read(verdicts) == [(destination, "refer_refused")]


async def test_what_a_number_allows_now_counts_in_calls_that_live(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness)
        await refused(phone, wish())
        await change(harness, sip_allow_refer=True)
        asked = Asked(phone, wish())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486
        await change(harness, sip_allow_refer=False)
        await refused(phone, wish())
        told = await harness.database.read(verdicts)
        assert [verdict for _, verdict in told] == ["refer_refused", "referred", "refer_refused"]


async def change(harness: CallServiceHarness, **fields: Any) -> PhoneNumber:
    """What PATCH does to the only number."""

    def work(conn: sa.Connection) -> PhoneNumber:
        (number,) = phone_numbers.numbers_with_trunk(conn)
        return phone_numbers.replace(conn, number, fields)

    return await harness.database.write(work)


async def test_whom_the_peer_names_is_called_through_the_trunk(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        asked = Asked(phone, wish(replaces="a@b;to-tag=1;from-tag=2"))
        there = await callee(harness)
        assert asked.accepted.is_set()
        assert (there.uri, there.caller) == (f"sip:200@{SOURCE}", NameAddr("+4930100", ""))
        assert list(there.headers) == [("Replaces", "a@b;to-tag=1;from-tag=2")]
        there.rings()
        there.answers()
        assert await asked.answer is there.leg
        assert await harness.database.read(verdicts) == [("200", "referred")]


async def test_the_trunk_of_a_transfer_is_the_one_that_the_number_has_now(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        await change(harness, sip_ip="192.0.2.77", sip_port=5099, name="New", outbound_prefixes=["2"])
        await refused(phone, wish())  # at the former trunk
        await refused(phone, wish("300", "192.0.2.77"))
        asked = Asked(phone, wish(host="192.0.2.77"))
        there = await callee(harness)
        assert (harness.callees.trunk_ports, there.caller) == ([5099], NameAddr("+4930100", "New"))
        there.ends(486)
        assert await asked.answer == 486


async def test_a_redirect_from_a_trunk_that_the_number_has_no_more_is_not_followed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        await change(harness, sip_allow_redirect=True)
        await queue(harness, (number, agent))
        there = await callee(harness)
        assert there.follow is not None
        assert await there.follow(Contact("200", SOURCE, SOURCE)) == "200"
        await change(harness, sip_ip="192.0.2.77")
        for host in (SOURCE, "192.0.2.77"):
            assert await there.follow(Contact("200", host, SOURCE)) is None


@pytest.mark.parametrize("to", [wish("+881"), wish(host="192.0.2.99"), wish("ann")])
async def test_a_referral_beyond_the_rules_calls_nobody(tmp_path: Path, to: ReferRequest) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True, outbound_prefixes=["+49", "200"])
        await refused(phone, to)
        assert harness.callees.dialled == []
        assert [verdict for _, verdict in await harness.database.read(verdicts)] == ["refer_refused"]


async def test_a_transfer_costs_what_a_call_costs(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        organizations_ = tables.organizations
        for balance, answer in ((0, 603), (1, 486)):
            broke = sa.update(organizations_).values(plan="paid", balance=balance)
            await harness.database.write(lambda conn: conn.execute(broke))  # noqa: B023 - awaited
            asked = Asked(phone, wish())
            if answer == 486:
                (await callee(harness)).ends(486)
            assert await asked.answer == answer
        told = await harness.database.read(
            lambda conn: list(conn.execute(sa.select(tables.outbound_attempts.c.detail)))
        )
        assert [row[0] for row in told] == ["the organization has no funds", None]


@pytest.mark.parametrize("limits", [ConcurrencyLimits(organization=2), ConcurrencyLimits(process=2)])
async def test_a_transfer_has_a_place_of_its_own_while_both_sides_are_there(
    tmp_path: Path, limits: ConcurrencyLimits
) -> None:
    async with call_service(tmp_path, limits=limits) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        asked = Asked(phone, wish())
        there = await callee(harness)
        late = harness.rings()
        await until(late.leg.ended.done)
        assert late.sent in ([486], [503])
        assert harness.service.is_full == (limits.process == 2)
        there.ends(486)
        assert await asked.answer == 486
        second = harness.rings()
        await until(lambda: 200 in second.sent)
        assert harness.service.is_full == (limits.process == 2)
        await refused(phone, wish())
        assert len(harness.callees.dialled) == 1
        second.hangs_up()
        await harness.ended_call(second)
        asked = Asked(phone, wish())
        (await callee(harness, 1)).answers()
        assert await asked.answer is harness.callees.dialled[1].leg
        assert not harness.service.is_full


async def test_a_transfer_whose_granting_is_not_stored_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(organization=2)) as harness:
        phone = await referring(harness, sip_allow_refer=True)

        def full(*_: object, **__: object) -> None:
            raise StorageUnavailable("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(transfer_permissions, "log_attempt", full)
            await refused(phone, wish())
        asked = Asked(phone, wish())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486


async def test_who_does_not_take_the_call_is_told_by_the_status(tmp_path: Path) -> None:
    async with call_service(tmp_path, ring_timeout_s=0.1) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        asked = Asked(phone, wish())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486
        assert await Asked(phone, wish()).answer == 408
        assert (await callee(harness, 1)).sent == [-1]
        harness.callees.error = InviteError("rejected_locally", "no")
        assert await Asked(phone, wish()).answer == 503


async def test_a_call_that_ends_meanwhile_calls_nobody_any_more(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        asked = Asked(phone, wish())
        there = await callee(harness)
        await harness.service.hangup((await harness.stored_call(phone)).id)
        assert await asked.answer == 408
        assert there.sent == [-1]


async def test_a_transfer_that_waits_for_its_turn_ends_with_its_call(tmp_path: Path) -> None:
    """The pace is one call in 1000 s, and the first has gone: nothing but the end of the call ends the waiting."""
    async with call_service(tmp_path, per_second=0.001) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        number, agent = await harness.create_number("+4930200")
        await queue(harness, (number, agent))
        await callee(harness)
        asked = Asked(phone, wish())
        await asked.accepted.wait()
        await harness.service.hangup((await harness.stored_call(phone)).id)
        assert await asked.answer == 503
        assert len(harness.callees.dialled) == 1


async def test_a_transfer_whose_call_ends_while_its_trunk_is_looked_for_calls_nobody(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        harness.callees.trunk_found.clear()
        asked = Asked(phone, wish())
        await harness.callees.trunk_requested.wait()
        await harness.service.hangup((await harness.stored_call(phone)).id)
        harness.callees.trunk_found.set()
        assert await asked.answer == 503
        assert harness.callees.dialled == []


@pytest.mark.parametrize("change_", [{"sip_allow_refer": False}, {"outbound_prefixes": ["+49"]}])
async def test_rights_that_were_taken_back_while_a_transfer_waited_count(
    tmp_path: Path, change_: dict[str, Any]
) -> None:
    async with call_service(tmp_path) as harness:
        phone = await referring(harness, sip_allow_refer=True)
        dialer = harness.service._dialer
        assert dialer is not None
        async with dialer.pacer._first:  # somebody else's turn
            asked = Asked(phone, wish())
            await asked.accepted.wait()
            await change(harness, **change_)
        assert await asked.answer == 503
        assert harness.callees.dialled == []
