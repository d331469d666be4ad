"""Trunks with a real registrar and proxy, Kamailio: inbound and outbound calls, and changes that leave others
unaffected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from sipcore import _native
from sipcore._native import MAX_ACCOUNTS
from sipcore.messages.headers import NameAddr
from sipcore.resolver.target import SipHostPort
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import NEVER_QUALIFIED, Trunk, TrunkStatus
from tests.peers.kamailio import Kamailio
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)
NUMBER, OUTSIDE = "+49401234", "+41445550100"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kamailio() -> AsyncIterator[Kamailio]:
    """With two users, each with a number."""
    passwords = {"ann": "s3cret", "bob": "swordfish"}
    async with Kamailio(passwords, numbers={NUMBER: "ann", "200": "bob"}) as kamailio:
        yield kamailio


@pytest_asyncio.fixture(loop_scope="module")
async def caller(kamailio: Kamailio) -> AsyncIterator[RawPhone]:
    """An outside phone, which calls our numbers through Kamailio, and is called through it."""
    async with RawPhone(kamailio.target) as caller:
        await kamailio.set_route(OUTSIDE, f"sip:{caller.host}:{caller.sip.port}")
        yield caller


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def without_trunks(phone: Phone, kamailio: Kamailio) -> AsyncIterator[None]:
    """Each test ends without bindings."""
    yield
    await phone.endpoint.set_trunks([])
    await kamailio.wait_for_contacts("ann", 0)
    await kamailio.wait_for_contacts("bob", 0)


def ann(kamailio: Kamailio, **changes: Any) -> Trunk:
    trunk = Trunk(
        key="ann", host=kamailio.host, port=kamailio.port, transport="udp", outbound_proxy=None, user="ann",
        credentials=Credentials("ann", "s3cret"), registers=True, follow_redirects=False, accept_refer=False,
        qualify_s=0, number=NUMBER,
    )  # fmt: skip
    return replace(trunk, **changes)


def bob(kamailio: Kamailio) -> Trunk:
    return ann(kamailio, key="bob", user="bob", credentials=Credentials("bob", "swordfish"), number="200")


async def until(phone: Phone, key: str, state: str) -> TrunkStatus:
    """Wait until a trunk is in that state."""
    news = asyncio.Event()
    phone.endpoint.on_trunk_status = lambda *_: news.set()
    async with asyncio.timeout(8):
        while phone.endpoint.trunk_status(key).state != state:
            news.clear()
            await news.wait()
    return phone.endpoint.trunk_status(key)


async def test_trunks_above_the_account_limit_fail_until_accounts_are_free(phone: Phone) -> None:
    """They have passwords, so that each needs an account, and do not register. The first test: the calls of others keep
    their accounts for a while."""
    one = Trunk(
        key="", host="192.0.2.1", port=5060, transport="udp", outbound_proxy=None, user="1",
        credentials=Credentials("ann", "s3cret"), registers=False, follow_redirects=False, accept_refer=False,
        qualify_s=0, number="1",
    )  # fmt: skip
    trunks = [replace(one, key=str(each)) for each in range(MAX_ACCOUNTS + 5)]
    await phone.endpoint.set_trunks(trunks)
    states = [phone.endpoint.trunk_status(trunk.key).state for trunk in trunks]
    assert states == ["listening"] * (MAX_ACCOUNTS - 1) + ["failed"] * 6
    assert "1023 trunks" in str(phone.endpoint.trunk_status(trunks[-1].key).detail)
    await phone.endpoint.set_trunks([])
    async with asyncio.timeout(8):
        while phone.endpoint.trunk_status(trunks[-1].key).state != "listening":
            await phone.endpoint.set_trunks(trunks[-6:])


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_inbound_call_uses_the_registration(
    phone: Phone, kamailio: Kamailio, caller: RawPhone, transport: Any
) -> None:
    await phone.endpoint.set_trunks([ann(kamailio, transport=transport)])
    [contact] = await kamailio.wait_for_contacts("ann")
    assert contact.startswith(f"sip:{NUMBER}@127.0.0.1:")
    dialog = caller.dialog()
    dialog.target = f"sip:{NUMBER}@{kamailio.target}"
    caller.invite(dialog, caller.offer())
    leg = await phone.next_leg()
    assert (leg.facts.source, leg.facts.request_user) == (kamailio.host, NUMBER)
    await leg.answer()
    answer = await caller.final_response("INVITE")
    assert answer.status == 200
    await leg.hangup()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_outbound_call_answers_the_proxys_challenge_and_has_user_and_number(
    phone: Phone, kamailio: Kamailio, caller: RawPhone, transport: Any
) -> None:
    trunk = ann(kamailio, transport=transport)
    await phone.endpoint.set_trunks([trunk])
    await until(phone, "ann", "registered")
    leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, "Ann"))
    callee = await RawCallee.wait_for_invite(caller)
    assert callee.number == OUTSIDE
    assert callee.invite.header("From").startswith('"Ann" <sip:ann@127.0.0.1>;tag=')
    assert callee.invite.header("P-Asserted-Identity") == f'"Ann" <sip:{NUMBER}@127.0.0.1>'
    assert f"<sip:{NUMBER}@127.0.0.1:" in callee.invite.header("Contact")
    assert not callee.invite.header("Proxy-Authorization")
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    await leg.hangup()
    await callee.expect_bye()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_an_allowlist_trunk_with_a_password_answers_the_challenge_too(
    phone: Phone, kamailio: Kamailio, caller: RawPhone
) -> None:
    trunk = ann(kamailio, registers=False, user=NUMBER)
    await phone.endpoint.set_trunks([trunk])
    assert phone.endpoint.trunk_status("ann") == TrunkStatus("listening", NEVER_QUALIFIED)
    leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
    callee = await RawCallee.wait_for_invite(caller)
    assert callee.invite.header("From").startswith(f"<sip:{NUMBER}@127.0.0.1>;tag=")
    callee.reject("486 Busy Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 486
    assert await kamailio.contacts("ann") == []


async def test_without_a_password_a_challenge_ends_the_call(phone: Phone, kamailio: Kamailio) -> None:
    trunk = ann(kamailio, registers=False, credentials=None)
    await phone.endpoint.set_trunks([trunk])
    leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
    assert (await asyncio.wait_for(leg.ended, 5)).code == 407


async def test_with_a_wrong_password_a_challenge_ends_the_call(phone: Phone, kamailio: Kamailio) -> None:
    trunk = ann(kamailio, registers=False, credentials=Credentials("ann", "guess"))
    await phone.endpoint.set_trunks([trunk])
    leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
    assert (await asyncio.wait_for(leg.ended, 5)).code == 407


async def test_registrations_and_calls_use_the_outbound_proxy(
    phone: Phone, kamailio: Kamailio, caller: RawPhone
) -> None:
    """The registrar's own address is unreachable."""
    proxy = SipHostPort(kamailio.host, kamailio.port, "udp")
    trunk = ann(kamailio, host="pbx.example.net", port=None, outbound_proxy=proxy)
    await phone.endpoint.set_trunks([trunk])
    await until(phone, "ann", "registered")
    leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
    callee = await RawCallee.wait_for_invite(caller)
    assert callee.invite.header("From").startswith("<sip:ann@pbx.example.net>;tag=")
    callee.reject("486 Busy Here")
    await asyncio.wait_for(leg.ended, 5)


async def test_changing_and_removing_trunks_does_not_affect_others_and_live_calls(
    phone: Phone, kamailio: Kamailio, caller: RawPhone
) -> None:
    await phone.endpoint.set_trunks([ann(kamailio), bob(kamailio)])
    [bound] = await kamailio.wait_for_contacts("bob")
    await until(phone, "ann", "registered")
    leg = await phone.endpoint.call(OUTSIDE, trunk=ann(kamailio), caller=NameAddr(NUMBER, ""))
    callee = await RawCallee.wait_for_invite(caller)
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    await callee.next_request("ACK")

    wrong = ann(kamailio, credentials=Credentials("ann", "guess"))
    await phone.endpoint.set_trunks([wrong, bob(kamailio)])
    status = await until(phone, "ann", "failed")
    assert status.detail == "401 Unauthorized from 127.0.0.1: the user name or the password is wrong"
    await kamailio.wait_for_contacts("ann", 0)
    await phone.endpoint.set_trunks([bob(kamailio)])
    assert phone.endpoint.trunk_status("ann").state == "unregistered"

    assert not leg.ended.done()
    while not caller.rtp.received.empty():
        caller.rtp.received.get_nowait()
    for _ in range(5):
        await caller.next_rtp()
    assert await kamailio.contacts("bob") == [bound]
    await callee.hang_up()
    assert (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()


async def test_invalid_route_is_rejected_and_the_former_one_stays(phone: Phone, kamailio: Kamailio) -> None:
    async with RawPhone(phone.target) as proxy:
        trunk = ann(
            kamailio, registers=False, outbound_proxy=SipHostPort(proxy.host, proxy.sip.port, "udp"), host="192.0.2.1"
        )
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
        callee = await RawCallee.wait_for_invite(proxy)
        assert phone.endpoint._trunk_accounts is not None
        number = phone.endpoint._trunk_accounts._entries["ann"].account_id
        for _ in range(2):
            with pytest.raises(OSError, match="header"):
                await phone.endpoint._pjsip_thread.run(
                    _native.account_set_route, number, "<sip:192.0.2.9;lr>", "<no route"
                )
        callee.reject("486 Busy Here")
        await leg.ended
        again = await phone.endpoint.call(OUTSIDE, trunk=trunk, caller=NameAddr(NUMBER, ""))
        (await RawCallee.wait_for_invite(proxy)).reject("486 Busy Here")
        await again.ended
