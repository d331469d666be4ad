"""Outbound calls that are redirected by a 3xx (RFC 3261 8.1.3.4)."""

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
    """The callee."""
    async with RawPhone(phone.target) as raw:
        yield raw


class RedirectPolicy:
    """Follows redirects to the users that it permits, and records the contacts; `gate` delays its decision."""

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


async def place_call(phone: Phone, raw: RawPhone, policy: RedirectPolicy) -> tuple[Leg, RawCallee]:
    """A call that follows redirects."""
    uri = f"sip:100@127.0.0.1:{raw.sip.port}"
    leg = await phone.endpoint.call(uri, caller=NameAddr("55", "Z"), headers=[("X-A", "b")], follow=policy)
    return leg, await RawCallee.wait_for_invite(raw)


async def wait_ended(leg: Leg) -> LegEnd:
    """Wait for the leg's end and release its slot."""
    end = await asyncio.wait_for(leg.ended, 5)
    leg.release()
    return end


def moved_to(callee: RawCallee, *users: str) -> None:
    """A 302 to these users; of the URI only the user counts."""
    contacts = ", ".join(f"<sip:{user}@elsewhere.example:9;transport=tcp?Subject=x>" for user in users)
    callee.reject("302 Moved Temporarily", f"Contact: {contacts}")


async def test_redirect_is_followed_to_the_first_permitted_contact_only(phone: Phone, raw: RawPhone) -> None:
    policy = RedirectPolicy("300", "400")
    leg, callee = await place_call(phone, raw, policy)
    moved_to(callee, "200", "300", "400")
    await callee.next_request("ACK")
    second = await RawCallee.wait_for_invite(raw)
    assert second.invite.first_line == f"INVITE sip:300@127.0.0.1:{raw.sip.port} SIP/2.0"
    assert second.invite.header("Call-ID") == callee.invite.header("Call-ID") == leg.sip_call_id
    assert second.invite.header("From").startswith('"Z" <sip:55@')
    assert (second.invite.header("X-A"), second.invite.header("Subject")) == ("b", "")
    assert policy.asked == [Contact(user, "elsewhere.example", "127.0.0.1") for user in ("200", "300")]
    second.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    assert not leg.ended.done()
    await second.hang_up()
    assert (await wait_ended(leg)).by_peer


async def test_early_media_before_a_redirect_releases_its_slot(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw, RedirectPolicy("200"))
    callee.ring(raw.offer("0"), "183 Session Progress")
    await asyncio.wait_for(leg.ringing, 5)
    await phone.audio.ticks(3)
    assert leg.media is not None
    before = leg.media.slot
    moved_to(callee, "200")
    second = await RawCallee.wait_for_invite(raw)
    second.answer()
    media = await asyncio.wait_for(leg.wait_connected(), 5)
    assert media.slot != before
    with pytest.raises(KeyError):
        phone.pump.rate(before)
    await leg.hangup()
    await second.expect_bye()
    await wait_ended(leg)


async def test_three_redirects_are_followed_and_a_fourth_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw, RedirectPolicy("200"))
    for _ in range(3):
        moved_to(callee, "200")
        callee = await RawCallee.wait_for_invite(raw)
    moved_to(callee, "200")
    end = await wait_ended(leg)
    assert (end.code, end.by_peer) == (302, True)
    assert phone.endpoint.live_legs == 0


async def test_redirect_to_unpermitted_contacts_is_not_followed(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw, RedirectPolicy())
    moved_to(callee, "200")
    assert (await wait_ended(leg)).code == 302
    await callee.next_request("ACK")
    await raw.options()
    assert raw.sip.received.empty()


async def test_leg_ends_with_the_refusal_of_the_redirect_target(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw, RedirectPolicy("200", "300"))
    moved_to(callee, "200", "300")
    (await RawCallee.wait_for_invite(raw)).reject("486 Busy Here")
    assert (await wait_ended(leg)).code == 486


async def test_redirect_is_not_followed_after_a_hangup(phone: Phone, raw: RawPhone) -> None:
    policy = RedirectPolicy("200")
    policy.gate.clear()
    leg, callee = await place_call(phone, raw, policy)
    moved_to(callee, "200")
    await asyncio.wait_for(policy.thinks.wait(), 5)
    await leg.hangup()
    policy.gate.set()
    assert not (await wait_ended(leg)).by_peer
    await callee.next_request("ACK")
    await raw.options()
    assert raw.sip.received.empty()
    assert phone.endpoint.live_legs == 0


async def test_error_in_follow_ends_the_leg(phone: Phone, raw: RawPhone) -> None:
    async def fails(_: Contact) -> str | None:
        raise ValueError("broken")

    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}", follow=fails)
    moved_to(await RawCallee.wait_for_invite(raw), "200")
    assert (await wait_ended(leg)).code == 302
