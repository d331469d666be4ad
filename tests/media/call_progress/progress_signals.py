"""Call progress tones as exchanges, answering machines and fax machines send them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from media.call_progress.detector import CallProgressDetector
from media.call_progress.tones import Tone

Sound = NDArray[np.float64]
FRAME_MS = 20


def tone(ms: float, *frequencies_hz: float, rate: int = 8000) -> Sound:
    """Sines of equal level, peak 1 in all."""
    time = np.arange(round(ms * rate / 1000)) / rate
    waves = [np.sin(2 * np.pi * hz * time + 0.3 * number) for number, hz in enumerate(frequencies_hz)]
    return np.asarray(np.mean(waves, axis=0), np.float64)


def gap(ms: float, rate: int = 8000) -> Sound:
    """Silence."""
    return np.zeros(round(ms * rate / 1000))


def sent(*parts: Sound, peak: float = 3000.0, ratio_db: float | None = None, seed: int = 1) -> Samples:
    """The parts in sequence with this peak, in white noise that is `ratio_db` under a single tone, as int16."""
    sound = np.concatenate(parts) * peak
    if ratio_db is not None:
        deviation = peak / np.sqrt(2) * 10 ** (-ratio_db / 20)
        sound = sound + np.random.default_rng(seed).standard_normal(len(sound)) * deviation
    samples: Samples = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    return samples


def detected(samples: Samples, rate: int = 8000, chunk: int | None = None) -> list[Tone]:
    """The tones in a signal that is fed in chunks of 20 ms, or of `chunk` samples."""
    detector = CallProgressDetector(rate)
    step = chunk or rate * FRAME_MS // 1000
    return [found for start in range(0, len(samples), step) for found in detector.feed(samples[start : start + step])]


def special_information_tones(rate: int = 8000) -> list[Sound]:
    """The three tones of ITU-T E.180."""
    return [
        *(tone(330, 950, rate=rate), gap(20, rate), tone(330, 1400, rate=rate), gap(20, rate)),
        tone(330, 1800, rate=rate),
    ]
