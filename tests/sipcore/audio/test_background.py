"""Background sound on the wire and in the recording: its level at each time, without clicks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from calls.session.audio_loop_cache import resample_loop
from calls.session.background_audio import DUCKED_VOLUME
from media.audio_port import Samples, row_of
from media.background.presets import PRESETS
from tests.sipcore.loopback_phone import Call, Phone
from tests.sipcore.tones import tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 8000
HZ = 500
VOLUME = 0.5
PEAK = 10000
TURNING = 2 * np.pi * HZ / RATE


@pytest_asyncio.fixture(loop_scope="module")
async def call(phone: Phone) -> AsyncIterator[Call]:
    """A call of two ticks."""
    call = await phone.call()
    await phone.audio.ticks(2)
    yield call
    await call.end()


@pytest.fixture(scope="module")
def sine() -> Samples:
    """Whole periods, one second of them."""
    return tone(RATE, HZ, 1.0, PEAK)


def envelope(sound: NDArray[np.generic]) -> NDArray[np.float64]:
    """The amplitude of a sine of HZ, once a period."""
    period = RATE // HZ
    whole = sound[: len(sound) // period * period].reshape(-1, period).astype(np.float64)
    amplitude: NDArray[np.float64] = np.sqrt(2 * (whole**2).mean(axis=1))
    return amplitude


def roughness(sound: NDArray[np.generic]) -> float:
    """The deviation from every sine of HZ with a slowly changing amplitude: the largest residue of its difference
    equation."""
    x = sound.astype(np.float64)
    residue = x[2:] - 2 * np.cos(TURNING) * x[1:-1] + x[:-2]
    return float(np.abs(residue).max())


ROUNDING = 4.0
"""What rounding to whole numbers adds to the residue, at most."""


def ramp_residue(ms: float) -> float:
    """The residue of a linear ramp from silence to the volume in `ms`: a bend has twice that."""
    return 2 * VOLUME * PEAK / (ms * RATE / 1000) + ROUNDING


async def test_background_fades_in_ducks_and_returns_without_clicks(phone: Phone, call: Call, sine: Samples) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    phone.pump.set_background(slot, phone.pump.load_background(sine), VOLUME, VOLUME * DUCKED_VOLUME)
    await phone.audio.ticks(30)
    phone.pump.write(slot, np.zeros(RATE, np.int16))  # a second of silent speech
    await phone.audio.ticks(100)
    phone.pump.set_background(slot, None, 0.0, 0.0)
    await phone.audio.ticks(20)
    level = envelope(track.sent) / PEAK
    full = np.flatnonzero(level > 0.99 * VOLUME)
    low = np.flatnonzero(np.abs(level - VOLUME * DUCKED_VOLUME) < 0.005)
    ms = 1000 / HZ
    began = float(np.flatnonzero(level > 0.01)[0])
    assert (full[0] - began) * ms == pytest.approx(200, abs=15), "it swells"
    first_low = low[low > full[0]][0]
    assert (first_low - full[full < first_low][-1]) * ms == pytest.approx(100 * (1 - DUCKED_VOLUME), abs=15), "it ducks"
    back = full[full > first_low][0]
    stayed = low[(low >= first_low) & (low < back)]
    assert (stayed[-1] - first_low) * ms == pytest.approx(1000 - 100 * (1 - DUCKED_VOLUME) + 200, abs=40), (
        "held for 200 ms"
    )
    assert (back - stayed[-1]) * ms == pytest.approx(400 * (1 - DUCKED_VOLUME), abs=25), "it returns"
    assert level[-1] == 0, "it has ended"
    assert roughness(track.sent) <= ramp_residue(100)


async def test_background_stays_ducked_between_two_sentences(phone: Phone, call: Call, sine: Samples) -> None:
    slot = call.taken_media.slot
    phone.pump.set_background(slot, phone.pump.load_background(sine), VOLUME, VOLUME * DUCKED_VOLUME)
    phone.pump.expect_more(slot, True)
    phone.pump.write(slot, np.zeros(RATE // 2, np.int16))
    await phone.audio.ticks(20)
    track = phone.audio.follow(slot)
    await phone.audio.ticks(40)  # 400 ms of it without any sound to send
    phone.pump.write(slot, np.zeros(RATE // 2, np.int16))
    await phone.audio.ticks(10)
    assert envelope(track.sent) / PEAK == pytest.approx(VOLUME * DUCKED_VOLUME, abs=0.005)


async def test_next_background_starts_after_the_first_has_faded_out(phone: Phone, call: Call, sine: Samples) -> None:
    slot = call.taken_media.slot
    phone.pump.set_background(slot, phone.pump.load_background(sine), VOLUME, VOLUME)
    await phone.audio.ticks(20)
    track = phone.audio.follow(slot)
    phone.pump.set_background(slot, phone.pump.load_background(sine[RATE // HZ // 3 :]), VOLUME, VOLUME)
    await phone.audio.ticks(30)
    level = envelope(track.sent) / PEAK
    assert level.min() < 0.01
    assert (level[0], level[-1]) == pytest.approx((VOLUME, VOLUME), abs=0.005)
    seams = np.flatnonzero(level > VOLUME - 0.005)[-1]  # the sound is no whole number of periods any more
    assert roughness(track.sent[: seams // 2]) <= ramp_residue(200)


async def test_volume_change_is_a_ramp_without_restarting_the_loop(phone: Phone, call: Call, sine: Samples) -> None:
    slot, sound = call.taken_media.slot, phone.pump.load_background(sine)
    phone.pump.set_background(slot, sound, VOLUME, VOLUME)
    await phone.audio.ticks(20)
    track = phone.audio.follow(slot)
    phone.pump.set_background(slot, sound, VOLUME / 5, VOLUME / 5)
    await phone.audio.ticks(30)
    assert envelope(track.sent)[-1] / PEAK == pytest.approx(VOLUME / 5, abs=0.005)
    assert roughness(track.sent) <= ramp_residue(200)


async def test_volume_0_is_silence(phone: Phone, call: Call, sine: Samples) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    phone.pump.set_background(slot, phone.pump.load_background(sine), 0.0, 0.0)
    await phone.audio.ticks(20)
    phone.pump.write(slot, np.zeros(RATE // 5, np.int16))
    await phone.audio.ticks(20)
    assert not track.sent.any()


async def test_recorded_audio_equals_sent_audio(phone: Phone, call: Call, sine: Samples) -> None:
    taken, placed = phone.audio.follow(call.taken_media.slot), phone.audio.follow(call.placed_media.slot)
    phone.pump.set_background(call.taken_media.slot, phone.pump.load_background(sine), VOLUME, VOLUME * DUCKED_VOLUME)
    await phone.audio.ticks(20)
    phone.pump.write(call.taken_media.slot, np.zeros(RATE // 2, np.int16))
    await phone.audio.ticks(60)
    assert plateaus(envelope(taken.sent)) == ["full", "ducked", "full"]
    assert plateaus(envelope(placed.received)) == ["full", "ducked", "full"]


def plateaus(amplitudes: NDArray[np.float64]) -> list[str]:
    """The levels that last for at least 20 ms, in order. A late tick of the pump leaves a gap in them."""
    levels = {"full": PEAK * VOLUME, "ducked": PEAK * VOLUME * DUCKED_VOLUME}
    long = HZ * 20 // 1000
    found: list[str] = []
    for at in range(len(amplitudes) - long + 1):
        spell = amplitudes[at : at + long]
        for name, level in levels.items():
            if np.all(np.abs(spell - level) < 0.02 * level) and found[-1:] != [name]:
                found.append(name)
    return found


@pytest.mark.parametrize("key", [preset.key for preset in PRESETS])
async def test_preset_loops_without_a_step(phone: Phone, call: Call, key: str) -> None:
    """The largest step at the seam is no larger than elsewhere in the sound."""
    loop = resample_loop(next(preset for preset in PRESETS if preset.key == key).render(), RATE)
    end = loop[-RATE // 2 :], loop[: RATE // 2]
    steps = np.abs(np.diff(loop.astype(int)))
    slot = call.taken_media.slot
    phone.pump.set_background(slot, phone.pump.load_background(np.concatenate(end)), 1.0, 1.0)
    await phone.audio.ticks(20)
    track = phone.audio.follow(slot)
    await phone.audio.ticks(60)
    inside = track.sent[80:].astype(float)
    middle = 80 + int(np.correlate(inside, end[1][:200].astype(float), "valid").argmax())
    around = np.abs(np.diff(track.sent[middle - 80 : middle + 80].astype(int)))
    assert around.max() <= np.quantile(steps, 0.9999)


def loop_of(length: int) -> Samples:
    """A sawtooth whose every sample differs from its neighbours."""
    return (np.arange(length) * 16 - length * 8).astype(np.int16)


async def test_a_background_sound_loops_without_a_seam(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    loop = loop_of(1001)  # no multiple of a frame
    phone.pump.set_background(slot, phone.pump.load_background(loop), 1.0, 0.2)
    await phone.audio.ticks(20)  # it fades in
    track = phone.audio.follow(slot)
    await phone.audio.ticks(40)
    start = int(np.flatnonzero(track.sent == loop[0])[0])
    expected = np.resize(loop, len(track.sent) - start)
    assert len(expected) > 5 * len(loop)
    assert np.array_equal(track.sent[start:], expected)


async def test_a_background_sound_ducks_under_the_agent_and_adds_to_it(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    phone.pump.set_background(slot, phone.pump.load_background(np.full(500, 10000, np.int16)), 0.8, 0.2)
    await phone.audio.ticks(20)
    track = phone.audio.follow(slot)
    await phone.audio.ticks(3)
    phone.pump.write(slot, np.full(RATE // 2, 5000, np.int16))
    await phone.audio.ticks(70)
    speech = np.flatnonzero(np.abs(track.sent - (5000.0 + 2000)) <= 2)
    assert RATE * 0.3 < len(speech) < RATE * 0.5, "ducked under most of it, and added"
    assert track.sent[0] == pytest.approx(8000, abs=2)
    assert track.sent[-1] == pytest.approx(8000, abs=2), "it returns to the volume after speech"


async def test_a_loud_background_clips_instead_of_wrapping(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    phone.pump.set_background(slot, phone.pump.load_background(np.full(500, 32000, np.int16)), 1.0, 1.0)
    track = phone.audio.follow(slot)
    phone.pump.write(slot, np.full(RATE // 2, 30000, np.int16))
    await phone.audio.ticks(20)
    assert track.sent.max() == 32767
    assert track.sent.min() >= 0


async def test_background_setting_ends_with_its_call(phone: Phone) -> None:
    await phone.audio.ticks(2)
    first = await phone.call()
    rows = {row_of(first.taken_media.slot), row_of(first.placed_media.slot)}
    for media in (first.taken_media, first.placed_media):
        phone.pump.set_background(media.slot, phone.pump.load_background(np.full(500, 9000, np.int16)), 1.0, 1.0)
    await phone.audio.ticks(15)
    await first.end()
    await phone.audio.ticks(2)
    second = await phone.call()
    assert row_of(second.taken_media.slot) in rows
    track = phone.audio.follow(second.taken_media.slot)
    await phone.audio.ticks(15)
    assert not track.sent.any()
    await second.end()


@pytest.mark.parametrize("gain", [-0.1, 1.1, float("nan"), float("inf")])
async def test_gain_outside_0_to_1_is_rejected(phone: Phone, call: Call, gain: float) -> None:
    sound = phone.pump.load_background(loop_of(100))
    with pytest.raises(ValueError, match="between 0 and 1"):
        phone.pump.set_background(call.taken_media.slot, sound, gain, 0.5)
