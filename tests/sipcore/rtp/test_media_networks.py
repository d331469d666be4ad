"""Media addresses in SDP: the peer's own address, those of trunks and `media_networks` are allowed, others get nothing
before they have sent RTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_network

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from config.settings_values import PRIVATE_NETWORKS
from config.special_addresses import non_host_networks
from sipcore import _native
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.rtp.test_media_limits import THIRD, drained, first_speech, offer_to_third_party, third_party
from tests.sipcore.tones import mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, media_networks=(ip_network("127.0.77.0/24"),))
NO_HOSTS = (
    "224.0.0.251", "239.1.2.3", "255.255.255.255", "240.0.0.1", "0.0.0.1", "0.1.2.3", "169.254.169.254",
    "100.100.100.200",
)  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.set_sources(["127.0.0.1"])
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


def log_lines(phone: Phone) -> list[tuple[str, str, str, int]]:
    """The log lines about SDP: (event, source, address, count)."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    assert all("hint" in line for line in logs)
    return [(line["event"], line["source"], line["address"], line["count"]) for line in logs]


def offer_with_address(raw: RawPhone, address: str, *attributes: str) -> str:
    """An offer with this media address."""
    return raw.offer("0", *attributes).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {address}")


@pytest.mark.parametrize("address", NO_HOSTS)
async def test_offer_with_a_forbidden_media_address_gets_488(phone: Phone, raw: RawPhone, address: str) -> None:
    raw.invite(raw.dialog(), offer_with_address(raw, address))
    refusal = await raw.final_response("INVITE")
    assert refusal.status == 488
    assert refusal.header("Warning") == f'399 trunkline "The SDP names {address}, where no media may be sent"'
    raw.invite(raw.dialog(), raw.offer("0", f"rtcp:5000 IN IP4 {address}"))
    assert (await raw.final_response("INVITE")).status == 488
    assert phone.incoming.empty()
    assert log_lines(phone) == [("sip.media_refused", "127.0.0.1", address, 2)]


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_reinvite_with_a_forbidden_media_address_gets_488_and_changes_nothing(
    phone: Phone, raw: RawPhone, method: str
) -> None:
    call = await LiveCall.make(phone, raw)
    refusal = await call.send_offer(offer_with_address(raw, NO_HOSTS[0]), method)
    assert (refusal.status, refusal.header("Warning").split()[0]) == (488, "399")
    await assert_audio_flows(phone, raw, call.media)
    await call.end()
    log_lines(phone)


async def test_callees_answer_with_a_forbidden_media_address_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.answer(offer_with_address(raw, NO_HOSTS[0]))
    await callee.expect_bye()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(leg.wait_connected(), 5)
    assert log_lines(phone) == [("sip.media_refused", "127.0.0.1", NO_HOSTS[0], 1)]


async def test_callers_answer_with_a_forbidden_media_address_ends_the_call(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    dialog.update_target(await raw.final_response("INVITE"))
    raw.send(raw.request("ACK", dialog, body=offer_with_address(raw, NO_HOSTS[0])))
    raw.reply(await raw.next_request("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)
    log_lines(phone)


async def test_unlisted_media_address_gets_no_rtp_before_it_has_sent(phone: Phone, raw: RawPhone) -> None:
    """Even in an acknowledged call; speech waits meanwhile."""
    async with third_party() as (rtp, rtcp):
        call = await LiveCall.make(phone, raw, offer_to_third_party(raw, rtp))
        phone.pump.write(call.media.slot, tone(8000, 600, 4.0))
        await phone.audio.ticks(30)
        assert drained(rtp) == drained(rtcp) == []
        assert phone.pump.sent_position(call.media.slot) == 0
        assert raw._rtp_target
        rtp.transport.sendto(Rtp(0, 1, 160, mulaw(tone(8000, 440, 0.02))).pack(), raw._rtp_target)
        await first_speech(rtp)
        await call.end()
    assert log_lines(phone) == [("sip.media_elsewhere", "127.0.0.1", THIRD, 1)]


async def test_rtp_is_sent_to_the_signalling_address_after_rtp_from_it(phone: Phone, raw: RawPhone) -> None:
    """A peer behind NAT whose SDP has a private address: our RTP is sent to the source of its own."""
    call = await LiveCall.make(phone, raw, offer_with_address(raw, "198.51.100.7"))
    phone.pump.write(call.media.slot, tone(8000, 600, 4.0))
    for number in range(30):
        raw.send_rtp(Rtp(0, number, number * 160, mulaw(tone(8000, 440, 0.02))))
        await phone.audio.tick()
    await first_speech(raw.rtp)
    await call.end()
    assert log_lines(phone) == [("sip.media_elsewhere", "127.0.0.1", "198.51.100.7", 1)]


async def test_unlisted_media_address_gets_no_rtcp(phone: Phone, raw: RawPhone) -> None:
    async with third_party() as (rtp, _):
        call = await LiveCall.make(phone, raw, raw.offer("0", f"rtcp:{rtp.port} IN IP4 {THIRD}"))
        await assert_audio_flows(phone, raw, call.media)
        await call.end()  # which sends RTCP BYE
        assert drained(rtp) == []
    assert log_lines(phone) == [("sip.media_elsewhere", "127.0.0.1", THIRD, 1)]


@pytest.mark.parametrize("known", [["127.0.0.1", THIRD], ["127.0.0.0/24"]])
async def test_addresses_of_trunks_are_allowed(phone: Phone, raw: RawPhone, known: list[str]) -> None:
    phone.endpoint.set_sources(known)
    async with third_party() as (rtp, _):
        call = await LiveCall.make(phone, raw, offer_to_third_party(raw, rtp))
        phone.pump.write(call.media.slot, tone(8000, 600, 2.0))
        await first_speech(rtp)
        await call.end()
    assert log_lines(phone) == []


async def test_media_networks_are_allowed(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, "127.0.77.3") as inside:
        call = await LiveCall.make(
            phone, raw, re.sub(r"m=audio \d+", f"m=audio {inside.rtp.port}", offer_with_address(raw, inside.host))
        )
        phone.pump.write(call.media.slot, tone(8000, 600, 2.0))
        await first_speech(inside.rtp)
        await call.end()
    assert log_lines(phone) == []


async def test_loopback_is_allowed_for_peers_on_loopback_only(phone: Phone) -> None:
    """Other private networks are allowed for all peers."""

    def place(address: str, peer: str) -> str:
        return _native.media_address_class(address, peer)

    _native.media_networks(tuple(map(str, PRIVATE_NETWORKS)), tuple(map(str, non_host_networks())))
    try:
        assert place("127.0.0.9", "127.0.0.1") == place("::1", "127.0.0.1") == "allowed"
        for address in ("127.0.0.9", "::1", "::ffff:127.0.0.9", "198.51.100.7", "2001:db8::7"):
            assert place(address, "192.0.2.1") == place(address, "10.0.0.1") == "unlisted"
        for address in ("10.1.2.3", "192.168.7.7", "100.64.1.1", "fd00::7", "::ffff:10.1.2.3"):
            assert place(address, "192.0.2.1") == "allowed"
        assert place("192.0.2.1", "192.0.2.1") == place("::ffff:192.0.2.1", "192.0.2.1") == "signalling"
        assert place("0.0.0.0", "192.0.2.1") == place("::", "192.0.2.1") == "held"
        for address in (*NO_HOSTS, "ff02::1", "::ffff:224.0.0.1", "64:ff9b::e000:1", "2002:e000:1::1", "fd00:ec2::254"):
            assert place(address, "192.0.2.1") == place(address, address) == "forbidden"
    finally:
        _native.media_networks(tuple(map(str, SETTINGS.media_networks)), tuple(map(str, non_host_networks())))


async def test_networks_without_hosts_contain_no_ordinary_address() -> None:
    for address in (
        "127.0.0.1",
        "10.0.0.1",
        "1.0.0.1",
        "223.255.255.255",
        "169.254.1.1",
        "2001:db8::1",
        "fe80::1",
        "::1",
    ):
        assert not any(ip_address(address) in network for network in non_host_networks())
