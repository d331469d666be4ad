"""DTMF signals as telephones send them in band, with line impairments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Cursor
from media.audio_port import Samples
from media.dtmf.keys import KEYPAD
from media.dtmf.tone_detector import FRAME_MS, FREQUENCIES_HZ, ToneDetector

Sound = NDArray[np.float64]


def key(
    digit: str,
    rate: int = 8000,
    *,
    ms: float = 40,
    low_dbm0: float = -10.0,
    high_dbm0: float = -10.0,
    off: tuple[float, float] = (0.0, 0.0),
) -> Sound:
    """The tones of a key, not yet quantized; `off`: relative deviations of the low and the high frequency (0.015: 1.5
    %)."""
    place = "".join(KEYPAD).index(digit)
    time = np.arange(round(ms * rate / 1000)) / rate
    sound = np.zeros(len(time))
    tones = ((FREQUENCIES_HZ[place // 4], low_dbm0, off[0]), (FREQUENCIES_HZ[4 + place % 4], high_dbm0, off[1]))
    for hz, dbm0, deviation in tones:
        peak = 32768 * 10 ** ((dbm0 - 3.17) / 20)  # a full-scale sine is +3.17 dBm0 (ITU-T G.711)
        sound += peak * np.sin(2 * np.pi * hz * (1 + deviation) * time + 1.0)
    return sound


def gap(ms: float, rate: int = 8000) -> Sound:
    """Silence."""
    return np.zeros(round(ms * rate / 1000))


def sent(*parts: Sound, noise_dbm0: float | None = None, seed: int = 1) -> Samples:
    """The parts in sequence, with white noise, as int16."""
    sound = np.concatenate(parts)
    if noise_dbm0 is not None:
        deviation = 32768 * 10 ** ((noise_dbm0 - 3.17) / 20) / np.sqrt(2)
        sound = sound + np.random.default_rng(seed).standard_normal(len(sound)) * deviation
    samples: Samples = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    return samples


def found(sound: Samples, rate: int = 8000) -> list[tuple[str, float]]:
    """The keys detected in a signal, with the ms at which their tones began; the energy gate is always open."""
    finder, history, frame = ToneDetector(1, (8000, 16000)), AudioHistory(1), FRAME_MS * rate // 1000
    history.open(0, rate)
    finder.open(0)
    rows, one = np.array([0]), np.array([frame])
    keys: list[tuple[str, float]] = []
    for number in range(len(sound) // frame):
        piece = sound[np.newaxis, number * frame : (number + 1) * frame]
        if history.needs_compaction(rows, one)[0]:
            history.compact(0)
        history.append(rows, one, piece, piece)
        ends = history.cursor[rows, Cursor.END]
        keys += [
            (heard.digit, (number + 1) * FRAME_MS - heard.age_ms)
            for heard in finder.detect(history, rows, ends, np.ones(1, np.bool_), rate)
        ]
    return keys


def digits(sound: Samples, rate: int = 8000) -> str:
    """The keys detected in a signal."""
    return "".join(digit for digit, _ in found(sound, rate))
