"""Trunks that change during calls: PJSUA reuses the number of a deleted account for the next one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from sipcore.security.digest import Credentials
from sipcore.trunks.trunk import Trunk
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHALLENGE = 'WWW-Authenticate: Digest realm="pbx", nonce="abc", algorithm=MD5'


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def without_trunks(phone: Phone) -> None:
    await remove_trunks(phone)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def other(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as other:
        yield other


def trunk(raw: RawPhone, key: str, user: str) -> Trunk:
    return Trunk(
        key=key, host=raw.host, port=raw.sip.port, transport="udp", outbound_proxy=None, user="100",
        credentials=Credentials(user, f"{user}'s"), registers=False, follow_redirects=True, accept_refer=False,
        qualify_s=0, number="100",
    )  # fmt: skip


def number_of(phone: Phone, key: str) -> int:
    """PJSUA's number of the trunk's account."""
    trunks = phone.endpoint._trunk_accounts
    assert trunks
    return trunks._entries[key].account_id


async def remove_trunks(phone: Phone) -> None:
    """Remove all trunks; their accounts are deleted when the last call is over."""
    trunks = phone.endpoint._trunk_accounts
    assert trunks
    await phone.endpoint.set_trunks([])
    async with asyncio.timeout(10):
        while trunks._removed:
            await asyncio.wait(trunks._removals, timeout=1)


async def challenge_response_of(leg: Leg, peer: RawPhone) -> str:
    """The credentials with which the call's INVITE answers a challenge; then it is rejected."""
    callee = await RawCallee.wait_for_invite(peer)
    callee.reject("401 Unauthorized", CHALLENGE)
    await callee.next_request("ACK")
    callee = await RawCallee.wait_for_invite(peer)
    callee.reject("486 Busy Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 486
    return callee.invite.header("Authorization").split('username="')[1].split('"')[0]


async def redirect_call(phone: Phone, raw: RawPhone, after: Trunk) -> Leg:
    """A call through ann's trunk, which its peer redirects; before that is followed `after` takes the trunk's place,
    and its account's number."""
    before = trunk(raw, "ann", "ann")
    exchanged = asyncio.Event()

    async def follow(contact: Contact) -> str:
        await remove_trunks(phone)
        await phone.endpoint.set_trunks([after])
        exchanged.set()
        return contact.user

    await phone.endpoint.set_trunks([before])
    number = number_of(phone, "ann")
    leg = await phone.endpoint.call("900", trunk=before, caller=NameAddr("100", ""), follow=follow)
    callee = await RawCallee.wait_for_invite(raw)
    callee.reject("302 Moved Temporarily", "Contact: <sip:300@elsewhere.example>")
    await callee.next_request("ACK")
    await asyncio.wait_for(exchanged.wait(), 15)
    assert number_of(phone, after.key) == number
    return leg


async def test_redirect_through_a_removed_trunk_ends_the_call(phone: Phone, raw: RawPhone, other: RawPhone) -> None:
    leg = await redirect_call(phone, raw, trunk(other, "bob", "bob"))
    assert (await asyncio.wait_for(leg.ended, 5)).code == 302
    for peer in (raw, other):
        await peer.options()
        assert peer.sip.received.empty()


async def test_redirect_through_a_changed_trunk_uses_its_new_credentials(phone: Phone, raw: RawPhone) -> None:
    leg = await redirect_call(phone, raw, trunk(raw, "ann", "new"))
    assert await challenge_response_of(leg, raw) == "new"


async def test_account_object_of_a_removed_trunk_does_not_delete_the_next(
    phone: Phone, raw: RawPhone, other: RawPhone
) -> None:
    """Other objects of the call may still hold its pjsua2 object."""
    bob = trunk(other, "bob", "bob")
    leg = await redirect_call(phone, raw, bob)
    await asyncio.wait_for(leg.ended, 5)
    gc.collect()
    again = await phone.endpoint.call("900", trunk=bob, caller=NameAddr("100", ""))
    assert await challenge_response_of(again, other) == "bob"


async def test_call_through_a_removed_trunk_raises_invite_error(phone: Phone, raw: RawPhone) -> None:
    """Without its account it would send no password, or another trunk's."""
    await phone.endpoint.set_trunks([])
    with pytest.raises(InviteError, match="the trunk is not there") as caught:
        await phone.endpoint.call("900", trunk=trunk(raw, "ann", "ann"), caller=NameAddr("100", ""))
    assert caught.value.kind == "trunk_changed"
    await raw.options()
    assert raw.sip.received.empty()
