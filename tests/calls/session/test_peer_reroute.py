"""Redirects and REFER transfers: permissions, placed legs, and the audit log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.outbound import peer_reroute_permissions
from sipcore.dialogs.invite_error import InviteError
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from sipcore.messages.refer import ReferRequest, parse_refer
from storage import tables
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, ended, queue, stored
from tests.fakes.fake_leg import SOURCE, Phone


def verdicts(conn: sa.Connection) -> list[tuple[str, str]]:
    """Returns the audit log: destinations and verdicts."""
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
        ({"sip_allow_redirect": True}, Contact("200", SOURCE, SOURCE, secure=True), None),
        ({"sip_allow_redirect": True, "sip_protocol": "tcp"}, Contact("200", SOURCE, SOURCE, secure=True), None),
        ({"sip_allow_redirect": True, "sip_protocol": "tls"}, Contact("200", SOURCE, SOURCE, secure=True), "200"),
        ({"sip_allow_redirect": True, "sip_protocol": "tls"}, Contact("200", SOURCE, SOURCE), "200"),
        ({"sip_allow_redirect": True}, Contact("ann", SOURCE, SOURCE), None),
        ({"sip_allow_refer": True}, Contact("200", SOURCE, SOURCE), None),
    ],
)
async def test_a_permitted_redirect_is_followed_within_the_trunk(
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
    if contact.secure and user is None:
        destination = f"sips:200@{contact.host}"
    assert log == [(destination, "redirected" if user else "redirect_refused")]


async def test_withdrawn_permissions_count_at_once(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        allowed = await harness.database.write(lambda c: phone_numbers.replace(c, number, {"sip_allow_redirect": True}))
        call = await queue(harness, (allowed, agent))
        there = await callee(harness)
        assert there.follow is not None
        await harness.database.write(lambda c: phone_numbers.replace(c, allowed, {"sip_allow_redirect": False}))
        assert await there.follow(Contact("200", SOURCE, SOURCE)) is None
        assert (await stored(harness, call)).ended_at is None


async def test_replaces_is_accepted_from_the_addresses_of_the_numbers_trunk_alone(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number()
        more = {"sip_sources": ["198.51.100.0/24", "sbc.example"]}
        await harness.database.write(lambda conn: phone_numbers.replace(conn, number, more))
        names = {"198.51.100.7": {"198.51.100.0/24"}, "203.0.113.9": {"sbc.example", "203.0.113.9"}}
        harness.aliases.update(names)
        phone = harness.invite()
        await until(lambda: phone.leg.may_be_replaced_by)
        may = phone.leg.may_be_replaced_by
        assert may is not None
        assert [may(each) for each in (SOURCE, *names)] == [True, True, True]
        assert not may("203.0.113.10")


async def active_call(harness: CallServiceHarness, **rights: Any) -> Phone:
    """Returns an active call of a number with these permissions."""
    number, _ = await harness.create_number()
    await harness.database.write(lambda conn: phone_numbers.replace(conn, number, rights))
    phone = harness.invite()
    await until(lambda: phone.leg.on_digit is not None)
    return phone


def refer_request(user: str = "200", host: str = SOURCE, replaces: str = "") -> ReferRequest:
    """Returns a REFER request."""
    return ReferRequest(Contact(user, host, SOURCE), replaces, 2, False)


class SentRefer:
    """The peer's REFER in an active call: `answer` is its result."""

    def __init__(self, phone: Phone, referral: ReferRequest) -> None:
        self.accepted = asyncio.Event()
        assert phone.leg.on_refer is not None
        self.answer = asyncio.ensure_future(phone.leg.on_refer(referral, self._accept))

    async def _accept(self) -> None:
        self.accepted.set()


async def assert_declined(phone: Phone, referral: ReferRequest) -> None:
    """Check that the REFER is declined with 603, and was not accepted."""
    asked = SentRefer(phone, referral)
    assert await asked.answer == 603
    assert not asked.accepted.is_set()


@pytest.mark.parametrize(
    ("to", "destination"),
    [
        (refer_request(), "200"),
        (refer_request(host="192.0.2.99"), "200@192.0.2.99"),
        (parse_refer("2 1 192.0.2.10 <tel:+49301>"), "tel:+49301"),
        (parse_refer("2 1 192.0.2.10 <sips:+49301@192.0.2.10>"), "sips:+49301@192.0.2.10"),
        (parse_refer(f"2 1 192.0.2.10 <tel:{'1' * 800}>"), ("tel:" + "1" * 800)[:128]),
    ],
)
async def test_every_refused_reroute_is_in_the_audit_log(tmp_path: Path, to: ReferRequest, destination: str) -> None:
    async with call_service(tmp_path) as harness:
        await assert_declined(await active_call(harness), to)
        assert harness.callees.dialled == []
        assert await harness.database.read(verdicts) == [(destination, "refer_refused")]


async def test_changed_permissions_count_in_active_calls(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness)
        await assert_declined(phone, refer_request())
        await change_number(harness, sip_allow_refer=True)
        asked = SentRefer(phone, refer_request())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486
        await change_number(harness, sip_allow_refer=False)
        await assert_declined(phone, refer_request())
        entries = await harness.database.read(verdicts)
        assert [verdict for _, verdict in entries] == ["refer_refused", "referred", "refer_refused"]


async def change_number(harness: CallServiceHarness, **fields: Any) -> PhoneNumber:
    """Change the only number as PATCH does."""

    def work(conn: sa.Connection) -> PhoneNumber:
        (number,) = phone_numbers.numbers_with_trunk(conn)
        return phone_numbers.replace(conn, number, fields)

    return await harness.database.write(work)


async def test_the_transfer_target_is_called_through_the_trunk(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        asked = SentRefer(phone, refer_request(replaces="a@b;to-tag=1;from-tag=2"))
        there = await callee(harness)
        assert asked.accepted.is_set()
        assert (there.uri, there.caller) == (f"sip:200@{SOURCE}", NameAddr("+4930100", ""))
        assert list(there.headers) == [("Replaces", "a@b;to-tag=1;from-tag=2")]
        there.rings()
        there.answers()
        assert await asked.answer is there.leg
        assert await harness.database.read(verdicts) == [("200", "referred")]


async def test_a_transfer_uses_the_trunk_that_the_number_has_now(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        await change_number(harness, sip_ip="192.0.2.77", sip_port=5099, name="New", outbound_prefixes=["2"])
        await assert_declined(phone, refer_request())  # at the former trunk
        await assert_declined(phone, refer_request("300", "192.0.2.77"))
        asked = SentRefer(phone, refer_request(host="192.0.2.77"))
        there = await callee(harness)
        assert (harness.callees.trunk_ports, there.caller) == ([5099], NameAddr("+4930100", "New"))
        there.ends(486)
        assert await asked.answer == 486


async def test_a_redirect_from_a_former_trunk_is_not_followed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        await change_number(harness, sip_allow_redirect=True)
        await queue(harness, (number, agent))
        there = await callee(harness)
        assert there.follow is not None
        assert await there.follow(Contact("200", SOURCE, SOURCE)) == "200"
        await change_number(harness, sip_ip="192.0.2.77")
        for host in (SOURCE, "192.0.2.77"):
            assert await there.follow(Contact("200", host, SOURCE)) is None


@pytest.mark.parametrize("to", [refer_request("+881"), refer_request(host="192.0.2.99"), refer_request("ann")])
async def test_a_refused_refer_places_no_call(tmp_path: Path, to: ReferRequest) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True, outbound_prefixes=["+49", "200"])
        await assert_declined(phone, to)
        assert harness.callees.dialled == []
        assert [verdict for _, verdict in await harness.database.read(verdicts)] == ["refer_refused"]


async def test_a_transfer_needs_funds(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        organizations_ = tables.organizations
        for balance, answer in ((0, 603), (1, 486)):
            broke = sa.update(organizations_).values(plan="paid", balance=balance)
            await harness.database.write(lambda conn: conn.execute(broke))  # noqa: B023 - awaited
            asked = SentRefer(phone, refer_request())
            if answer == 486:
                (await callee(harness)).ends(486)
            assert await asked.answer == answer
        entries = await harness.database.read(
            lambda conn: list(conn.execute(sa.select(tables.outbound_attempts.c.detail)))
        )
        assert [row[0] for row in entries] == ["the organization has no funds", None]


@pytest.mark.parametrize("limits", [ConcurrencyLimits(organization=2), ConcurrencyLimits(process=2)])
async def test_a_transfer_leg_counts_while_both_legs_exist(tmp_path: Path, limits: ConcurrencyLimits) -> None:
    async with call_service(tmp_path, limits=limits) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        asked = SentRefer(phone, refer_request())
        there = await callee(harness)
        late = harness.invite()
        await until(late.leg.ended.done)
        assert late.sent in ([486], [503])
        assert harness.service.is_full == (limits.process == 2)
        there.ends(486)
        assert await asked.answer == 486
        second = harness.invite()
        await until(lambda: 200 in second.sent)
        assert harness.service.is_full == (limits.process == 2)
        await assert_declined(phone, refer_request())
        assert len(harness.callees.dialled) == 1
        second.hangs_up()
        await harness.ended_call(second)
        asked = SentRefer(phone, refer_request())
        (await callee(harness, 1)).answers()
        assert await asked.answer is harness.callees.dialled[1].leg
        assert not harness.service.is_full


async def test_a_transfer_that_is_not_stored_reserves_no_leg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(organization=2)) as harness:
        phone = await active_call(harness, sip_allow_refer=True)

        def full(*_: object, **__: object) -> None:
            raise StorageUnavailable("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(peer_reroute_permissions, "log_attempt", full)
            await assert_declined(phone, refer_request())
        asked = SentRefer(phone, refer_request())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486


async def test_a_targets_final_status_is_reported_to_the_transferor(tmp_path: Path) -> None:
    async with call_service(tmp_path, ring_timeout_s=0.1) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        asked = SentRefer(phone, refer_request())
        (await callee(harness)).ends(486)
        assert await asked.answer == 486
        assert await SentRefer(phone, refer_request()).answer == 408
        assert (await callee(harness, 1)).sent == [-1]
        harness.callees.error = InviteError("rejected_locally", "no")
        assert await SentRefer(phone, refer_request()).answer == 503


async def test_a_transfer_of_an_ended_call_is_not_placed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        asked = SentRefer(phone, refer_request())
        there = await callee(harness)
        await harness.service.hangup((await harness.stored_call(phone)).id)
        assert await asked.answer == 408
        assert there.sent == [-1]


async def test_a_transfer_that_waits_for_the_pacer_ends_with_its_call(tmp_path: Path) -> None:
    """The rate is one call in 1000 s, and the first was placed: only the end of the call ends the wait."""
    async with call_service(tmp_path, per_second=0.001) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        number, agent = await harness.create_number("+4930200")
        await queue(harness, (number, agent))
        await callee(harness)
        asked = SentRefer(phone, refer_request())
        await asked.accepted.wait()
        await harness.service.hangup((await harness.stored_call(phone)).id)
        assert await asked.answer == 503
        assert len(harness.callees.dialled) == 1


async def test_a_transfer_whose_call_ends_while_its_trunk_is_resolved_is_not_placed(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        harness.callees.trunk_found.clear()
        asked = SentRefer(phone, refer_request())
        await harness.callees.trunk_requested.wait()
        await harness.service.hangup((await harness.stored_call(phone)).id)
        harness.callees.trunk_found.set()
        assert await asked.answer == 503
        assert harness.callees.dialled == []


@pytest.mark.parametrize("change_", [{"sip_allow_refer": False}, {"outbound_prefixes": ["+49"]}])
async def test_permissions_withdrawn_while_a_transfer_waits_count(tmp_path: Path, change_: dict[str, Any]) -> None:
    async with call_service(tmp_path) as harness:
        phone = await active_call(harness, sip_allow_refer=True)
        dialer = harness.service._dialer
        assert dialer is not None
        async with dialer.pacer._queue:  # another call waits for the pacer
            asked = SentRefer(phone, refer_request())
            await asked.accepted.wait()
            await change_number(harness, **change_)
        assert await asked.answer == 503
        assert harness.callees.dialled == []
