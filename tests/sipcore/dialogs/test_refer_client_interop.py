"""Outbound REFER to other SIP stacks: sipp, Debian's baresip, a Kamailio in between, and Asterisk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, ReferTarget
from sipcore.dialogs.refer_client import ReferDomain, ReferResult
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.baresip import Baresip
from tests.peers.kamailio import Kamailio
from tests.peers.sipp import Sipp
from tests.sipcore.live_call import wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import loudest_hz

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20)
DESK = ReferTarget("200")


async def refer(leg: Leg, target: ReferTarget = DESK) -> ReferResult:
    """Send REFER; returns its result."""
    return await asyncio.wait_for(leg.refer(target, 8), 10)


async def hang_up(leg: Leg) -> None:
    """End the leg from our side."""
    await leg.hangup()
    await wait_ended(leg)


# ---- sipp ----


@pytest.mark.parametrize("transport", ["u1", "t1"])
@pytest.mark.parametrize(
    ("final", "result"),
    [
        ("200 OK", ReferResult("completed", 200)),
        ("486 Busy Here", ReferResult("target_failed", 486)),
        ("603 Decline", ReferResult("target_failed", 603)),
    ],
)
async def test_sipp_reports_the_target_after_a_challenge(
    phone: Phone, final: str, result: ReferResult, transport: str
) -> None:
    async with Sipp("referred_caller", phone.target, keys={"final": final}, transport=transport) as sipp:
        leg = await phone.next_leg()
        leg.refer_domain = ReferDomain("pbx.example", Credentials("ann", "secret"))
        await leg.answer()
        assert await refer(leg) == result
        assert not leg.ended.done()
        await hang_up(leg)
        await sipp.finished()


async def test_sipp_sends_bye_in_place_of_notify(phone: Phone) -> None:
    async with Sipp("referred_caller_bye", phone.target) as sipp:
        leg = await phone.next_leg()
        await leg.answer()
        assert await refer(leg) == ReferResult("completed", 202)
        assert (await wait_ended(leg)).by_peer
        await sipp.finished()


# ---- baresip ----


async def test_baresip_is_transferred_to_another_phone(phone: Phone) -> None:
    async with Baresip("PCMU/8000/1") as first, Baresip("PCMU/8000/1", user="second") as second:
        leg = await phone.endpoint.call(first.uri)
        leg.refer_domain = ReferDomain(f"127.0.0.1:{second.port}")
        await asyncio.wait_for(leg.wait_connected(), 5)
        await first.event("CALL_ESTABLISHED")
        assert await refer(leg, ReferTarget("second")) == ReferResult("completed", 200)
        await second.event("CALL_ESTABLISHED")
        await hang_up(leg)


# ---- Kamailio ----


async def test_refer_follows_the_route_that_kamailio_recorded(phone: Phone) -> None:
    async with Kamailio({"ann": "s3cret"}) as kamailio, RawPhone(kamailio.target) as desk:
        await kamailio.set_route("+41445550100", f"sip:{desk.host}:{desk.sip.port}")
        trunk = Trunk(
            key="ann", host=kamailio.host, port=kamailio.port, transport="udp", outbound_proxy=None, user="ann",
            credentials=Credentials("ann", "s3cret"), registers=False, follow_redirects=False, accept_refer=False,
            qualify_s=0, number="+49401234",
        )  # fmt: skip
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call("+41445550100", trunk=trunk)
        callee = await RawCallee.wait_for_invite(desk)
        callee.answer()
        await asyncio.wait_for(leg.wait_connected(), 5)
        task = asyncio.create_task(refer(leg))
        request = await callee.next_request("REFER")
        assert request.header("Refer-To") == f"<sip:200@{kamailio.target}>"
        assert len(request.headers("Via")) == 2
        desk.reply(request, "202 Accepted")
        headers = ("Event: refer", "Subscription-State: terminated;reason=noresource")
        notify = callee.request("NOTIFY", "SIP/2.0 200 OK\r\n", headers)
        desk.send(notify.replace(b"application/sdp", b"message/sipfrag"))
        assert await task == ReferResult("completed", 200)
        assert (await desk.final_response("NOTIFY")).status == 200
        await leg.hangup()
        await callee.expect_bye()
        await wait_ended(leg)
        await phone.endpoint.set_trunks([])


# ---- Asterisk ----

PJSIP = """
[transport-udp]
type=transport
protocol=udp
bind=127.0.0.1:{port}

[trunkline]
type=endpoint
context=internal
disallow=all
allow=ulaw
aors=trunkline
direct_media=no

[trunkline]
type=aor
contact=sip:{phone}

[trunkline]
type=identify
endpoint=trunkline
match=127.0.0.1
"""
EXTENSIONS = """
[internal]
exten => talk,1,Answer()
same => n,Milliwatt()
exten => agent,1,Dial(PJSIP/trunkline)
exten => desk,1,Answer()
same => n,Milliwatt()
exten => busy,1,Busy(5)
exten => rings,1,Ringing()
same => n,Wait(3)
same => n,Answer()
same => n,Milliwatt()
exten => consult,1,Answer()
same => n,Wait(30)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asterisk(phone: Phone) -> AsyncIterator[Asterisk]:
    """The PBX, whose extension `agent` calls us."""
    files = {"pjsip.conf": PJSIP, "extensions.conf": EXTENSIONS}
    async with Asterisk(files, phone=phone.target) as asterisk:
        yield asterisk


async def caller_of(phone: Phone, asterisk: Asterisk) -> Leg:
    """An answered call of a caller of the PBX."""
    await asterisk.originate("agent", context="internal")
    leg = await phone.next_leg()
    leg.refer_domain = ReferDomain(f"127.0.0.1:{asterisk.port}")
    media = await asyncio.wait_for(leg.answer(), 5)
    track = phone.audio.follow(media.slot)
    await phone.audio.ticks(25)
    assert loudest_hz(track.received, 8000) == pytest.approx(1000, abs=10)
    return leg


@needs_root
async def test_asterisk_takes_a_blind_transfer(phone: Phone, asterisk: Asterisk) -> None:
    leg = await caller_of(phone, asterisk)
    assert await refer(leg, ReferTarget("desk")) == ReferResult("completed", 200)
    await hang_up(leg)
    assert "!internal!desk!" in await asterisk.cli("core show channels concise")
    await asterisk.cli("channel request hangup all")


@needs_root
async def test_asterisk_rings_the_target_longer_than_a_refer_may_take(phone: Phone, asterisk: Asterisk) -> None:
    leg = await caller_of(phone, asterisk)
    assert await asyncio.wait_for(leg.refer(ReferTarget("rings"), 2, 10), 13) == ReferResult("completed", 200)
    await hang_up(leg)
    await asterisk.cli("channel request hangup all")


@needs_root
async def test_asterisk_refuses_an_unknown_extension_and_the_call_goes_on(phone: Phone, asterisk: Asterisk) -> None:
    leg = await caller_of(phone, asterisk)
    assert await refer(leg, ReferTarget("nobody")) == ReferResult("target_failed", 404)
    assert leg.media is not None
    track = phone.audio.follow(leg.media.slot)
    await phone.audio.ticks(25)
    assert loudest_hz(track.received, 8000) == pytest.approx(1000, abs=10)
    await hang_up(leg)


@needs_root
async def test_asterisk_takes_both_legs_of_an_attended_transfer(phone: Phone, asterisk: Asterisk) -> None:
    leg = await caller_of(phone, asterisk)
    consultation = await phone.endpoint.call(f"sip:consult@127.0.0.1:{asterisk.port}")
    await asyncio.wait_for(consultation.wait_connected(), 5)
    assert await refer(leg, ReferTarget("consult", replaces=consultation)) == ReferResult("completed", 200)
    assert (await wait_ended(consultation)).by_peer
    await hang_up(leg)
    assert "!internal!consult!" in await asterisk.cli("core show channels concise")
    await asterisk.cli("channel request hangup all")
