"""Real speech for tests, synthesized by flite, cached for the run."""

from __future__ import annotations

import subprocess
import tempfile
import wave
from functools import cache
from pathlib import Path

import numpy as np

from media.audio_port import Samples


@cache
def speech(text: str, rate: int = 8000, voice: str = "slt") -> Samples:
    """Mono int16 at `rate` Hz, trimmed to the speech (35 dB below its loudest 5 ms)."""
    with tempfile.TemporaryDirectory() as folder:
        synthesized, resampled = Path(folder) / "synthesized.wav", Path(folder) / "resampled.wav"
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", synthesized], check=True)
        subprocess.run(["sox", "-D", synthesized, "-r", str(rate), "-c", "1", "-b", "16", resampled], check=True)
        with wave.open(str(resampled)) as file:
            samples: Samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return _trimmed(samples, rate // 200)


def _trimmed(samples: Samples, block: int) -> Samples:
    whole = samples[: len(samples) // block * block].reshape(-1, block).astype(np.float64)
    power = (whole**2).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10**-3.5)
    first, behind = int(loud[0]) * block, (int(loud[-1]) + 1) * block
    trimmed: Samples = samples[first:behind]
    return trimmed


def silence(ms: int, rate: int = 8000) -> Samples:
    """Digital silence."""
    return np.zeros(ms * rate // 1000, np.int16)


def tone(ms: int, rate: int = 8000, amplitude: int = 8000) -> Samples:
    """A sine of 440 Hz."""
    wave_form = amplitude * np.sin(2 * np.pi * 440 * np.arange(ms * rate // 1000) / rate)
    return np.asarray(np.rint(wave_form), np.int16)
