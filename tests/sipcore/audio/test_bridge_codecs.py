"""Two bridged calls of baresip with any pair of codecs: the tones arrive with their pitch and level, and a narrow-band
codec gets nothing of what it cannot carry."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from tests.peers.baresip import Baresip
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import tone
from tests.trunkline.recording_analysis import speech_segments

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU", "PCMA"), max_calls=10)
LEVEL = 6000
"""Peak of each of a speaker's two tones, int16."""
NARROW_RATE = 8000


@dataclass(frozen=True)
class Speaker:
    """A phone with one codec, in baresip's notation. Its tones: one that any codec carries, and one for wide band."""

    codec: str
    rate: int
    hz: int
    wide_hz: int

    @property
    def is_wide(self) -> bool:
        """The codec carries `wide_hz`."""
        return self.rate > NARROW_RATE

    @property
    def folded_hz(self) -> int:
        """Where `wide_hz` would appear if it were sampled at 8 kHz without a filter."""
        return NARROW_RATE - self.wide_hz

    def write(self, path: Path) -> None:
        """Write a WAV file of its tones, 15 s."""
        rate, channels = (int(number) for number in self.codec.split("/")[1:])
        sound = tone(rate, self.hz, 15, LEVEL) + (tone(rate, self.wide_hz, 15, LEVEL) if self.is_wide else 0)
        with wave.open(str(path), "wb") as file:
            file.setparams((channels, 2, rate, 0, "NONE", ""))
            file.writeframes(np.repeat(sound, channels).tobytes())


SPEAKERS = {
    "PCMU": Speaker("PCMU/8000/1", 8000, 500, 5900),
    "PCMA": Speaker("PCMA/8000/1", 8000, 700, 5700),
    "G722": Speaker("G722/16000/1", 16000, 900, 5500),
    "opus": Speaker("opus/48000/2", 16000, 1100, 4700),
}
ROUNDS = (
    (("PCMU", "PCMA"), ("G722", "opus")),
    (("PCMU", "G722"), ("PCMA", "opus")),
    (("PCMU", "opus"), ("PCMA", "G722")),
)
"""The pairs that are bridged at the same time, one round after another."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def heard(
    phone: Phone, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, str], tuple[int, Samples]]:
    """What the second phone of a pair has heard of the first: rate and samples."""
    folder = tmp_path_factory.mktemp("tones")
    async with AsyncExitStack() as stack:
        phones: dict[str, Baresip] = {}
        legs: dict[str, Leg] = {}
        for name, speaker in SPEAKERS.items():
            speaker.write(folder / f"{name}.wav")
            phones[name] = await stack.enter_async_context(Baresip(speaker.codec, play=folder / f"{name}.wav"))
            legs[name] = await call_from(phone, phones[name], name)
        for pairs in ROUNDS:
            await bridge_for_a_second(phone, [(slot_of(legs[one]), slot_of(legs[other])) for one, other in pairs])
        for name, leg in legs.items():
            await leg.hangup()
            await phones[name].event("CALL_CLOSED")
            leg.release()
        received = {name: await each.received_audio() for name, each in phones.items()}
    return {
        pair: (rate, part)
        for listener, (rate, sound) in received.items()
        for pair, part in zip(rounds_of(listener), parts(rate, sound), strict=True)
    }


async def call_from(phone: Phone, baresip: Baresip, codec: str) -> Leg:
    """An answered call with this codec."""
    await baresip.command("dial", phone.uri)
    leg = await phone.next_leg()
    media = await asyncio.wait_for(leg.answer(), 5)
    await baresip.event("CALL_ESTABLISHED")
    assert (media.codec.lower(), media.rate) == (codec.lower(), SPEAKERS[codec].rate)
    return leg


def slot_of(leg: Leg) -> int:
    """The slot of an answered leg."""
    assert leg.media is not None
    return leg.media.slot


async def bridge_for_a_second(phone: Phone, pairs: list[tuple[int, int]]) -> None:
    """Bridge these slots for 1 s; then there is silence."""
    for pair in pairs:
        phone.pump.bridge(*pair)
    await phone.audio.ticks(50)
    for one, _ in pairs:
        phone.pump.unbridge(one)
    await phone.audio.ticks(20)


def rounds_of(listener: str) -> list[tuple[str, str]]:
    """The speaker and the listener of each round."""
    pairs = [pair for each in ROUNDS for pair in each if listener in pair]
    return [(one if other == listener else other, listener) for one, other in pairs]


def parts(rate: int, sound: Samples) -> list[Samples]:
    """The 0.6 s in the middle of each stretch of sound."""
    middles = [int((start + end) / 2 * rate) for start, end in speech_segments(sound, rate, 0.2) if end - start > 0.6]
    return [sound[middle - rate * 3 // 10 : middle + rate * 3 // 10] for middle in middles]


def level_db(sound: Samples, rate: int, hz: int) -> float:
    """The highest level of the tone at this frequency in 0.2 s, relative to that of a speaker: a lost packet, or one
    that is late on a busy machine, does not count."""
    size = rate // 5
    window = np.hanning(size)
    tone_at_hz = window * np.exp(-2j * np.pi * hz * np.arange(size) / rate) * 2 / window.sum()
    peaks = [abs(np.dot(sound[at : at + size], tone_at_hz)) for at in range(0, len(sound) - size + 1, size // 2)]
    return float(20 * np.log10(max(max(peaks), 1e-3) / LEVEL))


@pytest.mark.parametrize(("speaker", "listener"), list(permutations(SPEAKERS, 2)))
async def test_each_hears_the_other_at_the_level_at_which_it_speaks(
    heard: Mapping[tuple[str, str], tuple[int, Samples]], speaker: str, listener: str
) -> None:
    rate, sound = heard[speaker, listener]
    said = SPEAKERS[speaker]
    assert level_db(sound, rate, said.hz) == pytest.approx(0, abs=1)
    if said.is_wide and SPEAKERS[listener].is_wide:
        assert level_db(sound, rate, said.wide_hz) > -20, "Opus at 24 kbit/s weakens the higher one of two tones"
    else:
        assert level_db(sound, rate, said.folded_hz) < -40
