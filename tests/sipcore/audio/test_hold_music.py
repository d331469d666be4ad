"""Hold music on the wire: it goes on without a gap over re-INVITEs with another codec."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from calls.session.audio_loop_cache import AudioLoopCache
from calls.session.background_audio import BackgroundSounds
from calls.session.hold_music import HoldMusic
from media.audio_port import Samples
from sipcore.settings import EndpointSettings
from storage.agents.agents import Agent
from storage.background_sounds.sounds import write_file
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.tones import from_mulaw, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU", "PCMA", "G722"), max_calls=40)
PCMU, PCMA, G722 = ("0",), ("8", "rtpmap:8 PCMA/8000"), ("9", "rtpmap:9 G722/8000")
MUSIC_HZ, BACKGROUND_HZ = 700, 1100
AT = datetime(2026, 5, 1, tzinfo=UTC)
AGENT = Agent(
    id="b",
    organization_id="c",
    name="a",
    created_at=AT,
    updated_at=AT,
    hold_music_id="music",
    background_sound_id="background",
    background_sound_volume=1.0,
)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def hold_music(phone: Phone, tmp_path: Path) -> HoldMusic:
    for name, hertz in (("music", MUSIC_HZ), ("background", BACKGROUND_HZ)):
        await asyncio.to_thread(write_file, tmp_path, name, tone(16000, hertz, 1.0))
    loops = AudioLoopCache(phone.pump)
    return HoldMusic(loops, tmp_path, BackgroundSounds(loops, tmp_path))


def longest_gap_ms(sent: Samples, rate: int) -> float:
    """The longest time without music, ms."""
    window = rate // 200
    blocks = np.abs(sent[: len(sent) // window * window].astype(int)).reshape(-1, window).max(axis=1)
    silent = np.flatnonzero(np.diff(np.concatenate([[0], blocks < 3000, [0]])))
    return float(max(np.diff(silent)[::2], default=0)) * 5


async def test_music_goes_on_without_a_gap_over_changes_of_the_codec(
    phone: Phone, raw: RawPhone, hold_music: HoldMusic
) -> None:
    call = await LiveCall.make(phone, raw)
    media = call.media
    await hold_music.play(media.slot, media.rate, AGENT, "a")
    await phone.audio.ticks(30)
    track = phone.audio.follow(media.slot)
    for kind, codec in ((8, PCMA), (9, G722), (0, PCMU)):
        assert (await call.send_offer(raw.offer(*codec))).status == 200
        while (await raw.next_rtp()).kind != kind:
            phone.audio.read()
        await phone.audio.ticks(10)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    heard = [await raw.next_rtp() for _ in range(20)]
    phone.audio.read()
    assert {packet.kind for packet in heard} == {0}
    received = from_mulaw(b"".join(packet.payload for packet in heard))
    assert loudest_hz(received, 8000) == pytest.approx(MUSIC_HZ, abs=10)
    assert loudest_hz(track.sent, media.rate) == pytest.approx(MUSIC_HZ, abs=3)
    assert longest_gap_ms(track.sent, media.rate) == 0
    await call.end()


async def test_music_recedes_under_speech_and_gives_way_to_the_background_sound(
    phone: Phone, raw: RawPhone, hold_music: HoldMusic
) -> None:
    call = await LiveCall.make(phone, raw)
    media = call.media
    await hold_music.play(media.slot, media.rate, AGENT, "a")
    await phone.audio.ticks(30)
    track = phone.audio.follow(media.slot)
    phone.pump.write(media.slot, np.zeros(media.rate, np.int16))
    await phone.audio.ticks(30)
    ducked = track.sent[-media.rate // 10 :]
    assert np.abs(ducked.astype(int)).max() == pytest.approx(8000 * 10 ** (-14 / 20), rel=0.02)
    phone.pump.flush(media.slot)
    await phone.audio.ticks(50)
    assert np.abs(track.sent[-media.rate // 10 :].astype(int)).max() == pytest.approx(8000, rel=0.02)
    await hold_music.stop(media.slot, media.rate, AGENT, "a")
    await phone.audio.ticks(40)
    assert loudest_hz(track.sent[-media.rate // 5 :], media.rate) == pytest.approx(BACKGROUND_HZ, abs=6)
    await call.end()
