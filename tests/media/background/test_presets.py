"""The preset background sounds: seamless, equally loud, within the telephone band, and true to their names."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from media.audio_port import Samples
from media.background.babble import BabblePattern, synthesize_babble
from media.background.loop_synthesis import (
    SAMPLE_RATE,
    add_reverb,
    apply_filter,
    gain_drift,
    normalize_level,
    overlap_add,
    shaped_noise,
)
from media.background.presets import LEVEL_DBFS, PRESETS
from media.vad.silero import SileroModel, silero_path

KEYS = [preset.key for preset in PRESETS]
VOICES = ["office", "cafe"]


@cache
def rendered(key: str) -> Samples:
    samples = next(preset for preset in PRESETS if preset.key == key).render()
    samples.flags.writeable = False
    return samples


def share(samples: Samples, low_hz: float, high_hz: float) -> float:
    """The share of the energy between two frequencies."""
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE)
    return float(power[(low_hz <= frequencies) & (frequencies < high_hz)].sum() / power.sum())


def levels_db(samples: NDArray[np.generic], ms: int) -> NDArray[np.float64]:
    """RMS of consecutive windows of `ms`, dB."""
    width = ms * SAMPLE_RATE // 1000
    stretches = samples[: len(samples) // width * width].reshape(-1, width).astype(np.float64)
    return 10 * np.log10((stretches**2).mean(axis=1))


def rhythm(samples: Samples, low_hz: float, high_hz: float) -> float:
    """The modulation of the level at these rates, dB."""
    envelope = 10 ** (levels_db(samples, 10) / 20)
    power = np.abs(np.fft.rfft(envelope / envelope.mean())) ** 2 / len(envelope) ** 2
    rates = np.fft.rfftfreq(len(envelope), 0.01)
    return float(10 * np.log10(power[(low_hz <= rates) & (rates < high_hz)].sum()))


def speech_share(samples: Samples) -> float:
    """The share of windows that voice activity detection judges as speech."""
    model = SileroModel(silero_path())
    state = np.zeros((2, 1, 128), np.float32)
    heard = []
    for start in range(64, len(samples) - 512, 512):
        p, state = model.run(samples[None, start - 64 : start + 512], state, SAMPLE_RATE)
        heard.append(p[0] > 0.5)
    return float(np.mean(heard))


def jump_db(samples: Samples) -> float:
    """The curvature of the audio at the seam over that of the rest (99.9 % of it), dB."""
    around = np.concatenate([samples[-4:], samples[:4]]).astype(np.float64)
    usual = np.quantile(np.abs(np.diff(samples.astype(np.float64), 4)), 0.999)
    return float(20 * np.log10(np.abs(np.diff(around, 4)).max() / usual))


def change_db(samples: Samples) -> float:
    """The change of the level at the seam over that of the rest, in steps of 20 ms, dB."""
    changes = np.abs(np.diff(levels_db(np.roll(samples, 320), 20)))
    return float(changes[0] - changes[1:-1].max())


def test_the_presets_are_those_of_the_api_contract() -> None:
    assert KEYS == ["office", "rain", "cafe", "white_noise"]
    assert all(preset.name and preset.description for preset in PRESETS)


@pytest.mark.parametrize("key", KEYS)
def test_a_preset_lasts_twenty_to_thirty_seconds_at_the_common_level(key: str) -> None:
    samples = rendered(key)
    assert (samples.dtype, samples.ndim) == (np.int16, 1)
    assert 20 <= len(samples) / SAMPLE_RATE <= 30
    unit = samples / 32768
    assert 10 * np.log10(np.mean(unit**2)) == pytest.approx(LEVEL_DBFS, abs=0.1)
    assert 20 * np.log10(np.abs(unit).max()) < -6


@pytest.mark.parametrize("key", KEYS)
def test_a_preset_is_deterministic(key: str) -> None:
    again = next(preset for preset in PRESETS if preset.key == key).render()
    assert np.array_equal(again, rendered(key))


@pytest.mark.parametrize("key", KEYS)
def test_a_preset_is_seamless(key: str) -> None:
    assert jump_db(rendered(key)) < 0
    assert change_db(rendered(key)) < 0


@pytest.mark.parametrize("key", KEYS)
def test_a_seam_would_be_found(key: str) -> None:
    faded = rendered(key).copy()
    faded[-320:] //= 200
    assert change_db(faded) > 3
    stepped = rendered(key).copy()
    stepped[:320] += 20000
    assert jump_db(stepped) > 0


def test_filter_reverb_and_overlap_add_are_circular() -> None:
    pulse = np.zeros(SAMPLE_RATE)
    pulse[-1] = 1
    turned = np.roll(pulse, 4000)

    def low(frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(-frequencies / 500)

    assert np.allclose(np.roll(apply_filter(pulse, low), 4000), apply_filter(turned, low))
    echoes = [add_reverb(np.random.default_rng(0), each, 0.3, 0.5) for each in (pulse, turned)]
    assert np.allclose(np.roll(echoes[0], 4000), echoes[1])
    assert overlap_add(5, np.array([3]), np.array([[1.0, 2, 3, 4]])).tolist() == [3, 4, 0, 1, 2]


def test_gain_drift_is_slow_and_near_one() -> None:
    wandering = gain_drift(np.random.default_rng(0), 20 * SAMPLE_RATE, 0.5, 2.0)
    assert np.std(20 * np.log10(wandering)) == pytest.approx(2.0)
    assert np.abs(np.diff(np.append(wandering, wandering[0]))).max() < 0.001


@pytest.mark.parametrize("key", KEYS)
def test_a_preset_lies_within_the_telephone_band(key: str) -> None:
    assert share(rendered(key), 0, 80) < 0.001
    assert share(rendered(key), 200, 4000) > {"white_noise": 0.5, "rain": 0.7}.get(key, 0.9)


def test_white_noise_is_even() -> None:
    density = [share(rendered("white_noise"), low, low + 200) for low in range(200, 5400, 200)]
    assert 10 * np.log10(max(density) / min(density)) < 1
    assert np.ptp(levels_db(rendered("white_noise"), 200)) < 2


def test_rain_is_steady_and_full_of_drops() -> None:
    rain, even = rendered("rain"), rendered("white_noise")
    assert np.ptp(levels_db(rain, 200)) < 8
    # Drops are peaks of a few ms that steady noise does not have.
    stretches = [levels_db(samples, 2) for samples in (rain, even)]
    loud = [np.mean(levels > np.median(levels) + 7) for levels in stretches]
    assert loud[0] * len(stretches[0]) > 5 * len(rain) / SAMPLE_RATE
    assert loud[1] < loud[0] / 20


@pytest.mark.parametrize("key", VOICES)
def test_babble_has_the_rhythm_of_syllables(key: str) -> None:
    assert rhythm(rendered(key), 2, 8) > rhythm(rendered("white_noise"), 2, 8) + 10
    # Voices sound in harmonics below 1 kHz first of all.
    assert share(rendered(key), 200, 1000) > 0.6


def test_babble_at_speech_level_is_detected_as_speech() -> None:
    rng = np.random.default_rng(1)
    near = (
        normalize_level(synthesize_babble(rng, 20 * SAMPLE_RATE, BabblePattern(voices=2, pause_s=0.5)), LEVEL_DBFS)
        * 32768
    )
    assert speech_share(near.astype(np.int16)) > 0.5
    steady = normalize_level(shaped_noise(rng, 20 * SAMPLE_RATE, lambda f: np.exp(-f / 800)), LEVEL_DBFS) * 32768
    assert speech_share(steady.astype(np.int16)) < 0.05


@pytest.mark.parametrize("key", KEYS)
def test_the_echo_of_a_preset_is_not_detected_as_speech(key: str) -> None:
    assert speech_share(rendered(key)) < 0.02


def test_the_coffee_machine_hisses_now_and_then() -> None:
    spectrum = np.fft.rfft(rendered("cafe").astype(np.float64))
    spectrum[np.fft.rfftfreq(len(rendered("cafe")), 1 / SAMPLE_RATE) < 4500] = 0
    high = levels_db(np.fft.irfft(spectrum), 1000)
    assert np.mean(high[7:9]) > np.median(high) + 6
    assert np.mean(high > np.median(high) + 6) < 0.3
