"""The built-in hold music: seamless, steady, at the level of speech, and within the band of a telephone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE
from media.hold_music.loudness import LEVEL_DBFS
from media.hold_music.pieces import PIECES

KEYS = [piece.key for piece in PIECES]
pytestmark = pytest.mark.parametrize("key", KEYS)


@cache
def rendered(key: str) -> Samples:
    samples = next(piece for piece in PIECES if piece.key == key).render()
    samples.flags.writeable = False
    return samples


def levels_dbfs(samples: NDArray[np.generic], ms: int) -> NDArray[np.float64]:
    """RMS of consecutive windows of `ms`, dB below full scale."""
    width = ms * SAMPLE_RATE // 1000
    windows = samples[: len(samples) // width * width].reshape(-1, width).astype(np.float64) / 32768
    return 10 * np.log10((windows**2).mean(axis=1))


def band_share(samples: Samples, low_hz: float, high_hz: float) -> float:
    """The share of the energy between two frequencies."""
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    return float(power[(low_hz <= frequencies) & (frequencies < high_hz)].sum() / power.sum())


def test_a_piece_lasts_for_40_to_120_seconds(key: str) -> None:
    assert 40 <= len(rendered(key)) / SAMPLE_RATE <= 120
    assert len(rendered(key)) % 2 == 0, "its loop at 8 kHz is as long"


def test_a_piece_is_the_same_each_time(key: str) -> None:
    again = next(piece for piece in PIECES if piece.key == key).render()
    assert np.array_equal(again, rendered(key))


def test_a_piece_has_the_level_of_speech(key: str) -> None:
    samples = rendered(key)
    assert 20 * np.log10(np.sqrt(np.mean((samples / 32768) ** 2))) == pytest.approx(LEVEL_DBFS, abs=0.3)
    assert np.abs(samples.astype(int)).max() < 32768 * 10 ** (-6 / 20)


def test_a_piece_is_steady(key: str) -> None:
    """Each second is within 4 dB of the mean, and no tenth of a second is a pause for an activity detector."""
    assert np.abs(levels_dbfs(rendered(key), 1000) - LEVEL_DBFS).max() < 4
    assert levels_dbfs(rendered(key), 100).min() > LEVEL_DBFS - 9


def test_a_piece_sounds_on_a_telephone(key: str) -> None:
    samples = rendered(key)
    assert band_share(samples, 300, 3400) > 0.6
    assert band_share(samples, 3600, 8000) < 0.002
    assert band_share(samples, 0, 80) < 0.01


def test_a_piece_has_no_click_at_its_loop_point(key: str) -> None:
    """What no note has: energy above the band in a short window, which a step would give."""
    samples = rendered(key).astype(np.float64)
    around = np.concatenate([samples, samples[:SAMPLE_RATE]])
    spectra = np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(around, 128)[::64] * np.hanning(128), axis=1))
    clicks = (spectra[:, 40:] ** 2).sum(axis=1)
    seam = len(samples) // 64
    assert clicks[seam - 3 : seam + 2].max() <= np.quantile(clicks, 0.999)


def test_the_music_does_not_stop_at_its_loop_point(key: str) -> None:
    samples = rendered(key)
    seam = np.concatenate([samples[-SAMPLE_RATE // 2 :], samples[: SAMPLE_RATE // 2]])
    assert levels_dbfs(seam, 100).min() > LEVEL_DBFS - 8
