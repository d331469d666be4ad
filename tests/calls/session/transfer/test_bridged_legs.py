"""Two connected legs on real SIP and RTP: hold by either peer with music for the other one, changes of the codec, and
comfort noise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import pytest_asyncio

from calls.session.audio_loop_cache import AudioLoopCache
from calls.session.background_audio import BackgroundSounds
from calls.session.client_hold import ClientHold
from calls.session.hold_music import HoldMusic
from calls.session.leg_hold_music import LegHoldMusic
from calls.session.transfer.bridged_legs import ConnectedLeg, LegBridge, bridged
from media.audio_port import Samples
from sipcore.settings import EndpointSettings
from storage.agents.agents import Agent
from storage.background_sounds.sounds import write_file
from tests.sipcore.live_call import LiveCall, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message, RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
FRAME, RATE = 160, 8000
MUSIC_HZ, CALLER_HZ, TARGET_HZ, PBX_MUSIC_HZ, BACKGROUND_HZ = 200, 440, 600, 1100, 1500
LEVEL = 1000
"""Of the voices."""
SILENT = 40
OFFERS: Final = {
    "PCMU": ("0",),
    "PCMA": ("8", "rtpmap:8 PCMA/8000"),
    "G722": ("9", "rtpmap:9 G722/8000"),
    "opus": ("96", "rtpmap:96 opus/48000/2"),
}
HOLDS = [("sendonly", "recvonly"), ("inactive", "inactive"), ("c=0", "sendrecv")]
"""An offer that holds the call, and the direction of its answer."""
AGENT = Agent(
    id="b", organization_id="c", name="a", created_at=datetime(2026, 5, 1, tzinfo=UTC),
    updated_at=datetime(2026, 5, 1, tzinfo=UTC), hold_music_id="music", background_sound_id="background",
    background_sound_volume=1.0,
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone() -> AsyncIterator[Phone]:
    """The endpoint whose legs are connected."""
    async with Phone(EndpointSettings(codecs=("PCMU", "PCMA", "G722", "opus"), max_calls=40)) as phone:
        yield phone


@pytest_asyncio.fixture(loop_scope="module")
async def music(phone: Phone, tmp_path: Path) -> HoldMusic:
    """Hold music, and a background sound, of one tone each."""
    for name, hertz in (("music", MUSIC_HZ), ("background", BACKGROUND_HZ)):
        await asyncio.to_thread(write_file, tmp_path, name, tone(16000, hertz, 1.0))
    loops = AudioLoopCache(phone.pump)
    return HoldMusic(loops, tmp_path, BackgroundSounds(loops, tmp_path))


@dataclass
class Peer:
    """A peer that says a tone all the time, or echoes what it hears (`hertz` 0)."""

    call: LiveCall
    hertz: float
    heard: list[Rtp] = field(default_factory=list)
    sent: int = 0
    comfort_noise: bool = False
    """Send comfort noise (RFC 3389) instead of audio."""

    def exchange_packet(self) -> None:
        """Send a packet, and take those that have come."""
        raw, came = self.call.raw, len(self.heard)
        while not raw.rtp.received.empty():
            self.heard.append(Rtp.unpack(raw.rtp.received.get_nowait()))
        if self.hertz == 0:
            for packet in self.heard[came:]:
                raw.send_rtp(packet)
            return
        at = np.arange(self.sent * FRAME, (self.sent + 1) * FRAME)
        voice = (LEVEL * np.sin(2 * np.pi * self.hertz * at / RATE)).astype(np.int16)
        kind, payload = (13, bytes([50])) if self.comfort_noise else (0, mulaw(voice))
        raw.send_rtp(Rtp(kind, 1000 + self.sent, self.sent * FRAME, payload))
        self.sent += 1

    async def offers(self, direction: str = "sendrecv", codec: str = "PCMU", **more: str) -> Message:
        """Send a re-INVITE; returns its response. `host`: the address of the offer's audio."""
        sdp = self.call.raw.offer(*OFFERS[codec], direction)
        if "host" in more:
            sdp = sdp.replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {more['host']}")
        return await self.call.send_offer(sdp)

    def sound(self, packets: int = 20) -> Samples:
        """The audio of the latest packets, G.711."""
        return from_mulaw(b"".join(packet.payload for packet in self.heard[-packets:]))


@dataclass
class Pair:
    """Two peers whose legs are connected."""

    phone: Phone
    caller: Peer
    target: Peer
    bridge: LegBridge
    caller_hold: ClientHold
    target_hold: ClientHold

    async def talk(self, ticks: int = 45) -> None:
        """Both say something for so many packets."""
        for _ in range(ticks):
            await self.phone.audio.tick()
            for peer in (self.caller, self.target):
                peer.exchange_packet()

    async def assert_they_hear_each_other(self) -> None:
        """Assert that each hears the other one, and no music."""
        await self.talk()
        for peer, hertz in ((self.caller, TARGET_HZ), (self.target, CALLER_HZ)):
            assert loudest_hz(peer.sound(), RATE) == pytest.approx(hertz, abs=10)
            assert level(peer.sound()) == pytest.approx(LEVEL, rel=0.4)


def level(sound: Samples) -> float:
    """The amplitude of a sine."""
    return float(np.sqrt(2 * np.mean(sound.astype(float) ** 2)))


@asynccontextmanager
async def connected(
    phone: Phone,
    music: HoldMusic,
    codecs: Sequence[str] = ("PCMU", "PCMU"),
    voices: tuple[float, float] = (CALLER_HZ, TARGET_HZ),
) -> AsyncIterator[Pair]:
    """Two calls whose legs are connected."""
    async with AsyncExitStack() as stack:
        peers, legs, holds = [], [], list[ClientHold]()
        for codec, hertz in zip(codecs, voices, strict=True):
            raw = await stack.enter_async_context(RawPhone(phone.target))
            call = await LiveCall.make(phone, raw, raw.offer(*OFFERS[codec]))
            peers.append(Peer(call, hertz))
            hold_music = LegHoldMusic(music, call.leg, AGENT, call.leg.sip_call_id)
            stack.push_async_callback(hold_music.close)
            holds.append(ClientHold(call.leg.sip_call_id, hold_music))
            legs.append(ConnectedLeg(call.leg.sip_call_id, call.leg, hold_music, holds[-1]))
        async with bridged(phone.pump, *legs) as bridge:
            yield Pair(phone, peers[0], peers[1], bridge, holds[0], holds[1])
        for peer in peers:
            if not peer.call.leg.ended.done():
                await peer.call.end()


def direction(answer: Message) -> str:
    """The direction of the answer's audio."""
    found = re.search(r"^a=(sendrecv|sendonly|recvonly|inactive)", answer.body, re.MULTILINE)
    return found[1] if found else "sendrecv"


@pytest.mark.parametrize("holder", ["caller", "target"])
@pytest.mark.parametrize(
    ("hold", "answered"), [("sendonly", "recvonly"), ("inactive", "inactive"), ("c=0", "sendrecv")]
)
async def test_a_hold_by_either_peer_is_music_for_the_other_one(
    phone: Phone, music: HoldMusic, holder: str, hold: str, answered: str
) -> None:
    async with connected(phone, music) as pair:
        await pair.assert_they_hear_each_other()
        holds, waits = (pair.caller, pair.target) if holder == "caller" else (pair.target, pair.caller)
        sent = phone.audio.follow(waits.call.media.slot)
        voice = holds.hertz
        answer = await (holds.offers(host="0.0.0.0") if hold == "c=0" else holds.offers(hold))
        assert (answer.status, direction(answer)) == (200, answered)
        holds.hertz = PBX_MUSIC_HZ
        await pair.talk()
        silent_since = len(holds.heard)
        await pair.talk(20)
        assert loudest_hz(waits.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        assert len(holds.heard) == silent_since, "nothing is sent to a peer that holds the call"
        assert spectrum_level(waits.sound(), PBX_MUSIC_HZ) < SILENT, "the music of the holder's PBX"
        holds.hertz = voice
        answer = await holds.offers()
        assert (answer.status, direction(answer)) == (200, "sendrecv")
        await pair.assert_they_hear_each_other()
        assert np.abs(np.diff(sent.sent.astype(int))).max() < 3000, "a click"


def spectrum_level(sound: Samples, hertz: float) -> float:
    """The amplitude of a frequency."""
    at = np.arange(len(sound)) / RATE
    return float(2 * np.abs(np.mean(sound * np.exp(-2j * np.pi * hertz * at))))


async def test_a_peer_that_resumes_while_the_other_one_holds_hears_music(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        await pair.caller.offers("sendonly")
        await pair.talk()
        assert loudest_hz(pair.target.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        await pair.target.offers("sendonly")
        await pair.talk(10)
        count = len(pair.caller.heard), len(pair.target.heard)
        await pair.talk(10)
        assert (len(pair.caller.heard), len(pair.target.heard)) == count, "both hold"
        await pair.caller.offers()
        await pair.talk()
        assert loudest_hz(pair.caller.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        assert not pair.bridge.is_open
        await pair.target.offers()
        await pair.assert_they_hear_each_other()


async def test_a_peer_may_change_the_codec_when_it_holds_and_when_it_resumes(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        await pair.caller.offers("sendonly", "G722")
        await pair.talk()
        assert loudest_hz(pair.target.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        await pair.target.offers(codec="PCMA")
        await pair.talk(20)
        await pair.target.offers()
        await pair.talk()
        assert loudest_hz(pair.target.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        await pair.caller.offers()
        await pair.assert_they_hear_each_other()


async def test_a_caller_put_on_hold_by_a_client_hears_music_and_the_target_nothing(
    phone: Phone, music: HoldMusic
) -> None:
    async with connected(phone, music) as pair:
        pair.caller_hold.set(True)
        await pair.talk()
        assert level(pair.target.sound()) < SILENT
        assert loudest_hz(pair.caller.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        pair.caller_hold.set(False)
        await pair.assert_they_hear_each_other()


async def test_both_hear_music_while_a_client_has_the_target_on_hold(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        pair.target_hold.set(True)
        await pair.talk()
        for peer in (pair.caller, pair.target):
            assert loudest_hz(peer.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        pair.target_hold.set(False)
        await pair.assert_they_hear_each_other()


@pytest.mark.parametrize("first_lifted", ["peer", "client"])
async def test_holds_of_a_client_and_of_a_peer_must_both_be_lifted(
    phone: Phone, music: HoldMusic, first_lifted: str
) -> None:
    async with connected(phone, music) as pair:
        pair.caller_hold.set(True)
        await pair.caller.offers("sendonly")
        await pair.talk(5)
        if first_lifted == "peer":
            await pair.caller.offers()
        else:
            pair.caller_hold.set(False)
        await pair.talk()
        assert not pair.bridge.is_open
        heard = pair.caller if first_lifted == "peer" else pair.target
        assert loudest_hz(heard.sound(), RATE) == pytest.approx(MUSIC_HZ, abs=10)
        if first_lifted == "peer":
            pair.caller_hold.set(False)
        else:
            await pair.caller.offers()
        await pair.assert_they_hear_each_other()


async def test_keys_do_not_pass_during_a_hold(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        await pair.caller.offers("sendonly")
        await pair.talk(5)
        assert pair.target.call.leg.on_digit is not None
        pair.target.call.leg.on_digit("1", "info")
        await pair.caller.offers()
        await pair.talk(20)
        pair.target.call.leg.on_digit("2", "info")
        await pair.talk(30)
        events = [packet.payload for packet in pair.caller.heard if packet.kind != 0]
        assert {event[0] for event in events} == {2}


@pytest.mark.parametrize("first", ["PCMU", "G722"])
async def test_a_bridge_goes_on_over_changes_of_a_codec(phone: Phone, music: HoldMusic, first: str) -> None:
    """The target echoes what it hears, in any codec; the caller hears itself. The slot keeps the rate of the first."""
    async with connected(phone, music, ("PCMU", first), (CALLER_HZ, 0)) as pair:
        for codec in ("opus", "PCMA", "G722", "PCMU"):
            await pair.target.offers(codec=codec)
            await pair.talk()
            assert {packet.kind for packet in pair.target.heard[-20:]} == {int(OFFERS[codec][0])}
            assert loudest_hz(pair.caller.sound(), RATE) == pytest.approx(CALLER_HZ, abs=10)
            assert level(pair.caller.sound()) > LEVEL / 2


async def test_comfort_noise_of_a_peer_is_no_noise_for_the_other_one(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        await pair.assert_they_hear_each_other()
        pair.caller.comfort_noise = True
        await pair.talk(30)
        since = len(pair.target.heard)
        await pair.talk(30)
        quiet = from_mulaw(b"".join(packet.payload for packet in pair.target.heard[since:]))
        assert np.abs(quiet.astype(int)).max() < 200
        assert loudest_hz(pair.caller.sound(), RATE) == pytest.approx(TARGET_HZ, abs=10)
        pair.caller.comfort_noise = False
        await pair.assert_they_hear_each_other()


async def test_the_agents_background_sound_ends_with_the_connection(phone: Phone, music: HoldMusic) -> None:
    async with connected(phone, music) as pair:
        await pair.caller.offers("sendonly")
        await pair.talk(20)
        await pair.caller.offers()
        await pair.talk(60)
        for peer in (pair.caller, pair.target):
            assert spectrum_level(peer.sound(), BACKGROUND_HZ) < SILENT


async def test_both_peers_may_hold_and_resume_at_the_same_moment_with_different_codecs(
    phone: Phone, music: HoldMusic
) -> None:
    async with connected(phone, music) as pair:
        answers = await asyncio.gather(pair.caller.offers("sendonly", "G722"), pair.target.offers("inactive", "PCMA"))
        assert [(each.status, direction(each)) for each in answers] == [(200, "recvonly"), (200, "inactive")]
        await pair.talk(20)
        count = len(pair.caller.heard), len(pair.target.heard)
        await pair.talk(10)
        assert (len(pair.caller.heard), len(pair.target.heard)) == count, "both hold"
        answers = await asyncio.gather(pair.caller.offers(), pair.target.offers())
        assert [(each.status, direction(each)) for each in answers] == [(200, "sendrecv")] * 2
        await pair.assert_they_hear_each_other()


@pytest.mark.parametrize("hangs_up", ["peer", "we"])
@pytest.mark.parametrize("side", ["caller", "target"])
async def test_a_hold_that_crosses_a_bye_ends_its_leg_alone(
    phone: Phone, music: HoldMusic, side: str, hangs_up: str
) -> None:
    async with connected(phone, music) as pair:
        leaves, stays = (pair.caller, pair.target) if side == "caller" else (pair.target, pair.caller)
        call = leaves.call
        call.dialog.cseq += 1
        call.raw.send(call.raw.request("INVITE", call.dialog, body=call.raw.offer("0", "sendonly")))
        if hangs_up == "peer":
            call.raw.send_in_dialog("BYE", call.dialog)
            assert (await call.raw.final_response("BYE")).status == 200
        else:
            await call.leg.hangup()
            bye = await call.raw.next_request("BYE")
            call.raw.reply(bye, "200 OK")
        end = await wait_ended(call.leg)
        assert end.by_peer is (hangs_up == "peer")
        await phone.audio.tick()
        stays.exchange_packet()
        answer = await stays.offers("sendonly", "PCMA")
        assert (answer.status, direction(answer)) == (200, "recvonly")
        assert not stays.call.leg.ended.done()


async def test_a_hold_that_crosses_our_reinvite_gets_491_and_holds_when_repeated(
    phone: Phone, music: HoldMusic
) -> None:
    """RFC 3261 14.1. Both have sent a re-INVITE on the target's leg, and both repeat it."""
    async with RawPhone(phone.target) as raw, AsyncExitStack() as stack:
        leg, callee = await place_call(phone, raw)
        callee.answer(raw.offer("0 8", "rtpmap:8 PCMA/8000"))
        await callee.next_request("ACK")
        ours = await callee.next_request("INVITE")  # it chooses one of the two codecs
        caller = await stack.enter_async_context(RawPhone(phone.target))
        call = await LiveCall.make(phone, caller, caller.offer("0"))
        legs = []
        for each in (call.leg, leg):
            hold_music = LegHoldMusic(music, each, AGENT, each.sip_call_id)
            stack.push_async_callback(hold_music.close)
            legs.append(ConnectedLeg(each.sip_call_id, each, hold_music, ClientHold(each.sip_call_id, hold_music)))
        async with bridged(phone.pump, *legs) as bridge:
            raw.send(callee.request("INVITE", raw.offer("0", "sendonly")))
            assert (await raw.final_response("INVITE")).status == 491
            raw.reply(ours, "491 Request Pending")
            await callee.next_request("ACK")
            assert bridge.is_open
            again = await callee.next_request("INVITE")
            raw.reply(again, "200 OK", body=raw.offer("0"))
            await callee.next_request("ACK")
            raw.send(callee.request("INVITE", raw.offer("0", "sendonly")))
            assert (await raw.final_response("INVITE")).status == 200
            assert (leg.on_hold, bridge.is_open) == (True, False)
        await callee.hang_up()
        await wait_ended(leg)
        await call.end()
