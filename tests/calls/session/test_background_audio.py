"""Background sounds: resampling, cache and playback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast
from uuid import uuid4

import numpy as np
import pytest

from calls.session.audio_loop_cache import AudioLoopCache, resample_loop
from calls.session.background_audio import BackgroundSounds
from media.audio_port import Samples
from media.background.files import InvalidSound, write_wav
from media.background.loop_synthesis import SAMPLE_RATE
from sipcore.audio.pump import Pump
from storage.background_sounds.sounds import path_of, write_file
from tests.sipcore.tones import tone


class RecordingPump:
    """A pump that records loops, and the sound and volumes of slots."""

    def __init__(self) -> None:
        self.loops: list[Samples] = []
        self._sounds: list[object] = []
        self.played: dict[int, tuple[object, float, float]] = {}

    def load_background(self, samples: Samples) -> object:
        self.loops.append(samples)
        self._sounds.append(object())
        return self._sounds[-1]

    def samples_of(self, sound: object) -> Samples:
        """The samples that the sound was made from."""
        return self.loops[self._sounds.index(sound)]

    def set_background(self, slot: int, sound: object, volume: float, ducked: float) -> None:
        self.played[slot] = (sound, volume, ducked)


class BackgroundHarness:
    """Sounds in a folder, and a pump that plays them."""

    def __init__(self, data_dir: Path, max_cache_bytes: int = 1_000_000) -> None:
        self.data_dir = data_dir
        self.pump = RecordingPump()
        self.loops = AudioLoopCache(cast(Pump, self.pump), max_cache_bytes)
        self.backgrounds = BackgroundSounds(self.loops, data_dir)

    async def sound(self, seconds: float = 1.0) -> str:
        """Store a sound; returns its id."""
        sound_id = str(uuid4())
        await asyncio.to_thread(write_file, self.data_dir, sound_id, tone(SAMPLE_RATE, 700, seconds))
        return sound_id


@pytest.fixture
def harness(tmp_path: Path) -> BackgroundHarness:
    return BackgroundHarness(tmp_path)


@pytest.mark.parametrize("length", [16000, 15999, 1601, 101, 24])
def test_a_resampled_loop_has_no_seam(length: int) -> None:
    turns = max(1, length // 23)
    loop = np.rint(8000 * np.sin(2 * np.pi * turns * np.arange(length) / length)).astype(np.int16)
    made = resample_loop(loop, 8000)
    assert 2 * len(made) % length == 0, "complete repetitions of the loop"
    ideal = 8000 * np.sin(2 * np.pi * turns * 2 * np.arange(3 * len(made)) / length)
    assert np.abs(np.tile(made, 3) - ideal).max() < 4


def test_a_loop_at_its_own_rate_is_unchanged() -> None:
    loop = tone(SAMPLE_RATE, 700, 0.1)
    assert resample_loop(loop, SAMPLE_RATE) is loop


@pytest.mark.parametrize("volume", [0.0, 0.15, 1.0])
async def test_a_sound_is_10_db_lower_under_the_agent(harness: BackgroundHarness, volume: float) -> None:
    await harness.backgrounds.play(7, await harness.sound(), 8000, volume)
    assert harness.pump.played[7][1:] == pytest.approx((volume, volume * 10**-0.5))


async def test_calls_at_one_rate_share_a_loop(harness: BackgroundHarness) -> None:
    sound = await harness.sound()
    await asyncio.gather(*(harness.backgrounds.play(slot, sound, 8000, 0.5) for slot in range(5)))
    await harness.backgrounds.play(5, sound, 8000, 1.0)
    await harness.backgrounds.play(6, sound, 16000, 1.0)
    assert [len(loop) for loop in harness.pump.loops] == [8000, 16000]
    assert len({harness.pump.played[slot][0] for slot in range(6)}) == 1
    assert harness.pump.played[6][0] != harness.pump.played[0][0]


async def test_a_call_that_ends_while_its_sound_is_read_leaves_it_to_the_others(harness: BackgroundHarness) -> None:
    sound = await harness.sound()
    first, second = [asyncio.create_task(harness.backgrounds.play(slot, sound, 8000, 0.5)) for slot in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert (first.cancelled(), set(harness.pump.played), len(harness.pump.loops)) == (True, {1}, 1)


async def test_the_cache_is_limited_and_drops_the_least_recently_used_loop(tmp_path: Path) -> None:
    harness = BackgroundHarness(tmp_path, max_cache_bytes=40_000)
    first, second, third = [await harness.sound() for _ in range(3)]  # 16,000 bytes each at 8 kHz
    for sound in (first, second, first, third, first):
        await harness.backgrounds.play(0, sound, 8000, 0.5)
        assert harness.loops.size <= 40_000
    assert len(harness.pump.loops) == 3, "the first was used last and stays"
    await harness.backgrounds.play(0, second, 8000, 0.5)
    assert len(harness.pump.loops) == 4


async def test_a_loop_larger_than_the_cache_is_played_and_not_cached(tmp_path: Path) -> None:
    harness = BackgroundHarness(tmp_path, max_cache_bytes=10_000)
    sound = await harness.sound()
    await harness.backgrounds.play(0, sound, 8000, 0.5)
    assert (harness.loops.size, set(harness.pump.played)) == (0, {0})


@pytest.mark.parametrize("harm", ["missing", "cut short", "without sound"])
async def test_a_sound_that_cannot_be_read_is_an_error_until_it_can(harness: BackgroundHarness, harm: str) -> None:
    sound = await harness.sound()
    path = path_of(harness.data_dir, sound)
    whole = path.read_bytes()
    match harm:
        case "missing":
            path.unlink()
        case "cut short":
            path.write_bytes(whole[:-100])
        case _:
            await asyncio.to_thread(write_wav, path, np.zeros(0, np.int16))
    for rate in (8000, 16000):
        with pytest.raises((OSError, InvalidSound)):
            await harness.backgrounds.play(0, sound, rate, 0.5)
    assert harness.pump.played == {}
    path.write_bytes(whole)
    await harness.backgrounds.play(0, sound, 8000, 0.5)
    assert set(harness.pump.played) == {0}
