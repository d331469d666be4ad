"""Loudness of hold music: one level, limited gain and peaks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.files import InvalidSound
from media.background.loop_synthesis import SAMPLE_RATE
from media.hold_music.loudness import (
    LEVEL_DBFS,
    MAX_GAIN_DB,
    PEAK,
    active_level_dbfs,
    even_out,
    limit_peaks,
    match_loudness,
)


def noise(level_dbfs: float, seconds: float = 3.0) -> Samples:
    """White noise at this level."""
    values = np.random.default_rng(1).standard_normal(int(seconds * SAMPLE_RATE))
    return np.rint(np.clip(values * 32768 * 10 ** (level_dbfs / 20), -32768, 32767)).astype(np.int16)


def level(samples: Samples) -> float:
    return active_level_dbfs(samples / 32768)


@pytest.mark.parametrize("given_dbfs", [-14, -22, -30, -33.9])
def test_music_gets_the_level_of_speech(given_dbfs: float) -> None:
    assert level(match_loudness(noise(given_dbfs))) == pytest.approx(LEVEL_DBFS, abs=0.3)


@pytest.mark.parametrize("given_dbfs", [-40, -60])
def test_soft_music_is_amplified_by_12_db_at_most(given_dbfs: float) -> None:
    assert level(match_loudness(noise(given_dbfs))) == pytest.approx(given_dbfs + MAX_GAIN_DB, abs=0.3)


def test_pauses_do_not_count_to_the_level() -> None:
    with_pause = np.concatenate([noise(-22), noise(-60, 6.0)])
    assert level(with_pause) == pytest.approx(-22, abs=0.5)


@pytest.mark.parametrize("length", [1, 100, 16000])
def test_silence_is_an_error(length: int) -> None:
    with pytest.raises(InvalidSound, match="only silence"):
        match_loudness(np.zeros(length, np.int16))


def test_no_sound_is_an_error() -> None:
    with pytest.raises(InvalidSound, match="no sound"):
        limit_peaks(np.zeros(0))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 399, 16000, 16011])
def test_peaks_are_limited_wherever_they_are(length: int) -> None:
    rng = np.random.default_rng(length)
    sound = 0.05 * rng.standard_normal(length)
    sound[rng.integers(length, size=1 + length // 100)] = rng.choice([-3.0, 2.0])
    limited = limit_peaks(sound)
    assert len(limited) == length
    assert np.abs(limited.astype(int)).max() <= np.ceil(PEAK * 32768)


def test_sound_below_the_limit_is_unchanged() -> None:
    sound = PEAK * np.sin(np.arange(16000) / 7)
    assert np.array_equal(limit_peaks(sound), np.rint(sound * 32768).astype(np.int16))


def test_a_limited_peak_leaves_no_step_around_it() -> None:
    sound = 0.4 * np.sin(2 * np.pi * 200 * np.arange(16000) / SAMPLE_RATE)
    sound[8000:8080] *= 2.4
    audible = np.abs(sound) > 0.1
    gain = np.interp(np.arange(16000), np.flatnonzero(audible), limit_peaks(sound)[audible] / (32768 * sound[audible]))
    assert gain.min() < 0.5
    assert np.abs(gain[16:] - gain[:-16]).max() < 0.03, "per millisecond"
    assert np.abs(gain[8000 + 40 * 16 :] - 1).max() < 1e-3


def test_evening_out_removes_slow_changes_of_loudness() -> None:
    seconds = np.arange(40 * SAMPLE_RATE) / SAMPLE_RATE
    swelling = np.sin(2 * np.pi * 500 * seconds) * 10 ** (6 * np.sin(2 * np.pi * seconds / 20) / 20)

    def spread_db(sound: NDArray[np.float64]) -> float:
        power = (sound**2).reshape(40, -1).mean(axis=1)
        return float(10 * np.log10(power.max() / power.min()))

    evened = even_out(swelling)
    assert spread_db(swelling) > 11
    assert spread_db(evened) < 5
    assert 10 * np.log10(np.mean(evened**2)) == pytest.approx(LEVEL_DBFS, abs=0.01)
