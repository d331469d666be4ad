"""Calls whose callee points to somebody else (RFC 3261 8.1.3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, LegEnd
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """Whom we call."""
    async with RawPhone(phone.target) as raw:
        yield raw


class Guide:
    """Follows to the users that it knows, and notes whom it was asked for; `gate` keeps it thinking."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.asked: list[Contact] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.thinks = asyncio.Event()

    async def __call__(self, contact: Contact) -> str | None:
        self.asked.append(contact)
        self.thinks.set()
        await self.gate.wait()
        return contact.user if contact.user in self.known else None


async def placed(phone: Phone, raw: RawPhone, guide: Guide) -> tuple[Leg, RawCallee]:
    """A call that may go on."""
    uri = f"sip:100@127.0.0.1:{raw.sip.port}"
    leg = await phone.endpoint.call(uri, caller=NameAddr("55", "Z"), headers=[("X-A", "b")], follow=guide)
    return leg, await RawCallee.called(raw)


async def end_of(leg: Leg) -> LegEnd:
    """Wait for the leg's end and give its slot back."""
    end = await asyncio.wait_for(leg.ended, 5)
    leg.release()
    return end


def moved(callee: RawCallee, *users: str) -> None:
    """302 to these users; nothing of the URI but the user counts."""
    contacts = ", ".join(f"<sip:{user}@elsewhere.example:9;transport=tcp?Subject=x>" for user in users)
    callee.refuses("302 Moved Temporarily", f"Contact: {contacts}")


async def test_a_redirect_is_followed_to_the_first_who_may_be_called_and_nowhere_else(
    phone: Phone, raw: RawPhone
) -> None:
    guide = Guide("300", "400")
    leg, callee = await placed(phone, raw, guide)
    moved(callee, "200", "300", "400")
    await callee.gets("ACK")
    second = await RawCallee.called(raw)
    assert second.invite.first_line == f"INVITE sip:300@127.0.0.1:{raw.sip.port} SIP/2.0"
    assert second.invite.header("Call-ID") == callee.invite.header("Call-ID") == leg.sip_call_id
    assert second.invite.header("From").startswith('"Z" <sip:55@')
    assert (second.invite.header("X-A"), second.invite.header("Subject")) == ("b", "")
    assert guide.asked == [Contact(user, "elsewhere.example", "127.0.0.1") for user in ("200", "300")]
    second.answers()
    await asyncio.wait_for(leg.connected(), 5)
    assert not leg.ended.done()
    await second.hangs_up()
    assert (await end_of(leg)).by_peer


async def test_what_was_heard_before_the_redirect_does_not_keep_a_slot(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw, Guide("200"))
    callee.rings(raw.offer("0"), "183 Session Progress")
    await asyncio.wait_for(leg.ringing, 5)
    await phone.ears.ticks(3)
    before = leg.media.slot
    moved(callee, "200")
    second = await RawCallee.called(raw)
    second.answers()
    media = await asyncio.wait_for(leg.connected(), 5)
    assert media.slot != before
    with pytest.raises(KeyError):
        phone.pump.rate(before)
    await leg.hangup()
    await second.is_hung_up_on()
    await end_of(leg)


async def test_three_redirects_are_followed_and_a_fourth_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw, Guide("200"))
    for _ in range(3):
        moved(callee, "200")
        callee = await RawCallee.called(raw)
    moved(callee, "200")
    end = await end_of(leg)
    assert (end.code, end.by_peer) == (302, True)
    assert phone.endpoint.live_legs == 0


async def test_who_may_not_be_called_is_not(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw, Guide())
    moved(callee, "200")
    assert (await end_of(leg)).code == 302
    await callee.gets("ACK")
    await raw.options()
    assert raw.sip.received.empty()


async def test_the_refusal_of_who_was_pointed_to_is_the_end_s(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw, Guide("200", "300"))
    moved(callee, "200", "300")
    (await RawCallee.called(raw)).refuses("486 Busy Here")
    assert (await end_of(leg)).code == 486


async def test_a_call_that_is_hung_up_while_it_is_decided_goes_nowhere(phone: Phone, raw: RawPhone) -> None:
    guide = Guide("200")
    guide.gate.clear()
    leg, callee = await placed(phone, raw, guide)
    moved(callee, "200")
    await asyncio.wait_for(guide.thinks.wait(), 5)
    await leg.hangup()
    guide.gate.set()
    assert not (await end_of(leg)).by_peer
    await callee.gets("ACK")
    await raw.options()
    assert raw.sip.received.empty()
    assert phone.endpoint.live_legs == 0


async def test_a_guide_that_fails_ends_the_leg(phone: Phone, raw: RawPhone) -> None:
    async def fails(_: Contact) -> str | None:
        raise ValueError("broken")

    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}", follow=fails)
    moved(await RawCallee.called(raw), "200")
    assert (await end_of(leg)).code == 302
