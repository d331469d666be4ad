"""Where a peer's SDP may want sound to go: to its own address, to trunks', into `media_networks`, to no others."""

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
from tests.sipcore.live_call import LiveCall, assert_sound_flows, placed
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.rtp.test_media_limits import THIRD, drained, spoken, third_party, to_third
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


def lines_of(phone: Phone) -> list[tuple[str, str, str, int]]:
    """What the log says of SDP: (event, source, address, count)."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    assert all("hint" in line for line in logs)
    return [(line["event"], line["source"], line["address"], line["count"]) for line in logs]


def naming(raw: RawPhone, address: str, *attributes: str) -> str:
    """An offer with its sound there."""
    return raw.offer("0", *attributes).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {address}")


@pytest.mark.parametrize("address", NO_HOSTS)
async def test_an_offer_of_sound_where_no_host_is_gets_488(phone: Phone, raw: RawPhone, address: str) -> None:
    raw.invite(raw.dialog(), naming(raw, address))
    refusal = await raw.final("INVITE")
    assert refusal.status == 488
    assert refusal.header("Warning") == f'399 trunkline "The SDP names {address}, where no sound may go"'
    raw.invite(raw.dialog(), raw.offer("0", f"rtcp:5000 IN IP4 {address}"))
    assert (await raw.final("INVITE")).status == 488
    assert phone.incoming.empty()
    assert lines_of(phone) == [("sip.media_refused", "127.0.0.1", address, 2)]


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_within_a_call_too_and_it_stays_as_it_was(phone: Phone, raw: RawPhone, method: str) -> None:
    call = await LiveCall.made(phone, raw)
    refusal = await call.again(naming(raw, NO_HOSTS[0]), method)
    assert (refusal.status, refusal.header("Warning").split()[0]) == (488, "399")
    await assert_sound_flows(phone, raw, call.media)
    await call.over()
    lines_of(phone)


async def test_a_callee_whose_answer_names_no_host_is_hung_up_on(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    callee.answers(naming(raw, NO_HOSTS[0]))
    await callee.is_hung_up_on()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(leg.connected(), 5)
    assert lines_of(phone) == [("sip.media_refused", "127.0.0.1", NO_HOSTS[0], 1)]


async def test_a_caller_whose_answer_names_no_host_is_hung_up_on(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    dialog.goes_on_with(await raw.final("INVITE"))
    raw.send(raw.request("ACK", dialog, body=naming(raw, NO_HOSTS[0])))
    raw.reply(await raw.asked("BYE"), "200 OK")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(answering, 5)
    lines_of(phone)


async def test_an_address_outside_is_sent_nothing_before_it_has_spoken(phone: Phone, raw: RawPhone) -> None:
    """Though the call is acknowledged; what we say meanwhile waits."""
    async with third_party() as (rtp, rtcp):
        call = await LiveCall.made(phone, raw, to_third(raw, rtp))
        phone.pump.write(call.media.slot, tone(8000, 600, 4.0))
        await phone.ears.ticks(30)
        assert drained(rtp) == drained(rtcp) == []
        assert phone.pump.taken(call.media.slot) == 0
        assert raw._rtp_target
        rtp.transport.sendto(Rtp(0, 1, 160, mulaw(tone(8000, 440, 0.02))).pack(), raw._rtp_target)
        await spoken(rtp)
        await call.over()
    assert lines_of(phone) == [("sip.media_elsewhere", "127.0.0.1", THIRD, 1)]


async def test_sound_that_comes_from_where_sip_does_gets_ours(phone: Phone, raw: RawPhone) -> None:
    """A peer behind an address translator whose SDP names an address at home: ours goes to where its own comes from."""
    call = await LiveCall.made(phone, raw, naming(raw, "198.51.100.7"))
    phone.pump.write(call.media.slot, tone(8000, 600, 4.0))
    for number in range(30):
        raw.send_rtp(Rtp(0, number, number * 160, mulaw(tone(8000, 440, 0.02))))
        await phone.ears.tick()
    await spoken(raw.rtp)
    await call.over()
    assert lines_of(phone) == [("sip.media_elsewhere", "127.0.0.1", "198.51.100.7", 1)]


async def test_rtcp_to_an_address_outside_is_not_sent(phone: Phone, raw: RawPhone) -> None:
    async with third_party() as (rtp, _):
        call = await LiveCall.made(phone, raw, raw.offer("0", f"rtcp:{rtp.port} IN IP4 {THIRD}"))
        await assert_sound_flows(phone, raw, call.media)
        await call.over()  # RTCP says BYE then
        assert drained(rtp) == []
    assert lines_of(phone) == [("sip.media_elsewhere", "127.0.0.1", THIRD, 1)]


@pytest.mark.parametrize("known", [["127.0.0.1", THIRD], ["127.0.0.0/24"]])
async def test_a_trunks_addresses_are_inside(phone: Phone, raw: RawPhone, known: list[str]) -> None:
    phone.endpoint.set_sources(known)
    async with third_party() as (rtp, _):
        call = await LiveCall.made(phone, raw, to_third(raw, rtp))
        phone.pump.write(call.media.slot, tone(8000, 600, 2.0))
        await spoken(rtp)
        await call.over()
    assert lines_of(phone) == []


async def test_the_networks_of_the_settings_are_inside(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target, "127.0.77.3") as inside:
        call = await LiveCall.made(
            phone, raw, re.sub(r"m=audio \d+", f"m=audio {inside.rtp.port}", naming(raw, inside.host))
        )
        phone.pump.write(call.media.slot, tone(8000, 600, 2.0))
        await spoken(inside.rtp)
        await call.over()
    assert lines_of(phone) == []


async def test_loopback_is_inside_for_peers_on_loopback_only(phone: Phone) -> None:
    """Where everything else private is inside for all."""

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


async def test_what_has_no_hosts_holds_nothing_else() -> None:
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
