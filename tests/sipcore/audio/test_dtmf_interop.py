"""DTMF to and from other SIP stacks: sipp and baresip."""

from __future__ import annotations

import asyncio
import wave
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import soxr

from media.audio_port import Samples
from media.dtmf.keys import DtmfMethod
from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from tests.media.dtmf.dtmf_signals import digits, gap, key, sent
from tests.peers.baresip import Baresip
from tests.peers.sipp import Sipp
from tests.sipcore.loopback_phone import Phone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU", "PCMA"), max_calls=20)
PCMU = {"pt": "0", "codec": "PCMU/8000", "ptime": "20"}


async def keys_until_the_end(leg: Leg) -> list[tuple[str, DtmfMethod]]:
    """Answer; returns the digits received until the peer hangs up."""
    keys: list[tuple[str, DtmfMethod]] = []
    leg.on_digit = lambda digit, way: keys.append((digit, way))
    await leg.answer()
    await asyncio.wait_for(leg.ended, 20)
    leg.release()
    return keys


async def test_dtmf_of_sipp_by_rfc4733_is_received(phone: Phone) -> None:
    async with Sipp("dtmf_events", phone.target, call_ms=3000, echo=False) as sipp:
        keys = await keys_until_the_end(await phone.next_leg())
        await sipp.finished()
    assert keys == [(digit, "rfc4733") for digit in "19*#"]


@pytest.mark.parametrize("transport", ["u1", "t1"])
async def test_dtmf_of_sipp_by_sip_info_is_received(phone: Phone, transport: str) -> None:
    async with Sipp("dtmf_info", phone.target, keys=PCMU, call_ms=300, transport=transport) as sipp:
        keys = await keys_until_the_end(await phone.next_leg())
        await sipp.finished()
    assert keys == [(digit, "info") for digit in "4*#"]


def write(path: Path, rate: int, samples: Samples, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())


@pytest.mark.parametrize(("codec", "rate"), [("PCMU/8000/1", 8000), ("G722/16000/1", 16000)])
async def test_in_band_dtmf_of_baresip_is_detected(phone: Phone, tmp_path: Path, codec: str, rate: int) -> None:
    tones = [part for digit in "0123456789*#ABCD" for part in (key(digit, rate, ms=120), gap(120, rate))]
    await asyncio.to_thread(write, tmp_path / "keys.wav", rate, sent(gap(500, rate), *tones, gap(4000, rate)))
    async with Baresip(codec, play=tmp_path / "keys.wav") as baresip:
        await baresip.command("dial", phone.uri)
        leg = await phone.next_leg()
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        await phone.audio.ticks(250)
        await leg.hangup()
        await baresip.event("CALL_CLOSED")
        leg.release()
    assert digits(track.received, rate) == "0123456789*#ABCD"


async def test_in_band_dtmf_passes_a_bridge_as_audio(phone: Phone, tmp_path: Path) -> None:
    """A detector of tones at either phone hears the keys of the other one, also through Opus."""
    pressed = {"PCMU/8000/1": "159D", "opus/48000/2": "04*#"}
    phones: list[Baresip] = []
    legs: list[Leg] = []
    async with AsyncExitStack() as stack:
        for codec, keys in pressed.items():
            rate, channels = (int(number) for number in codec.split("/")[1:])
            tones = [part for digit in keys for part in (key(digit, rate, ms=120), gap(120, rate))]
            sound = np.repeat(sent(*tones * 10), channels)
            await asyncio.to_thread(write, path := tmp_path / f"{rate}.wav", rate, sound, channels)
            phones.append(await stack.enter_async_context(Baresip(codec, play=path)))
            await phones[-1].command("dial", phone.uri)
            legs.append(await phone.next_leg())
            await asyncio.wait_for(legs[-1].answer(), 5)
        slots = [leg.media.slot for leg in legs if leg.media is not None]
        phone.pump.bridge(*slots)
        await phone.audio.ticks(120)
        phone.pump.unbridge(slots[0])
        for leg, baresip in zip(legs, phones, strict=True):
            await leg.hangup()
            await baresip.event("CALL_CLOSED")
            leg.release()
        received = [await each.received_audio() for each in phones]
    heard = [set(digits(soxr.resample(sound, rate, 8000))) for rate, sound in received]
    assert heard == [set("04*#"), set("159D")]


@pytest.mark.parametrize("codec", ["PCMU/8000/1", "opus/48000/2"])
async def test_baresip_receives_each_sent_digit_once(phone: Phone, codec: str) -> None:
    async with Baresip(codec) as baresip:
        leg = await phone.endpoint.call(f"sip:baresip@127.0.0.1:{baresip.port}")
        await asyncio.wait_for(leg.wait_connected(), 5)
        await asyncio.wait_for(leg.send_digits("12w44#"), 10)
        pressed = [(await baresip.event("CALL_DTMF_START"))["param"] for _ in range(5)]
        await leg.hangup()
        await baresip.event("CALL_CLOSED")
        leg.release()
    assert pressed == ["1", "2", "4", "4", "#"]


async def test_peer_without_rfc4733_gets_in_band_tones(phone: Phone) -> None:
    """sipp echoes the audio that it receives."""
    async with Sipp("call", phone.target, keys=PCMU, call_ms=3500) as sipp:
        leg = await phone.next_leg()
        media = await leg.answer()
        track = phone.audio.follow(media.slot)
        pressing = asyncio.create_task(leg.send_digits("159D*0#w77"))
        while not pressing.done():
            await phone.audio.tick()
        await phone.audio.ticks(10)
        await sipp.finished()
        leg.release()
    assert digits(track.received) == digits(track.sent) == "159D*0#77"
