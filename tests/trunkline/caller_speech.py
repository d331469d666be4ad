"""Audio of callers: words, hums, coughs, and background noise."""

from __future__ import annotations

import subprocess
import tempfile
import wave
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from tests.media.speech import silence, speech

RATE = 8000
Signal = NDArray[np.float64]


def words(text: str, voice: str = "awb") -> Samples:
    """A sentence in another voice than the agent's; synthesized once, in a process of its own."""
    return speech(text, RATE, voice)


@cache
def hum(phones: str = "hh m m") -> Samples:
    """ "Mm-hmm", from phonemes, because flite would spell the letters."""
    with tempfile.TemporaryDirectory() as folder:
        made, wanted = Path(folder) / "made.wav", Path(folder) / "wanted.wav"
        subprocess.run(["flite", "-voice", "rms", "-p", phones, "-o", made], check=True)
        subprocess.run(["sox", "-D", made, "-r", str(RATE), "-c", "1", "-b", "16", wanted], check=True)
        with wave.open(str(wanted)) as file:
            samples: Samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    loud = np.flatnonzero(np.abs(samples) > 300)
    return samples[loud[0] : loud[-1]]


def cough(ms: int = 220, pitch_hz: float = 200, peak: int = 11000, seed: int = 28) -> Samples:
    """A voiced cough: a burst of breath and a falling, rough voice that fades out. Voice activity detection takes it
    for speech."""
    random, t = np.random.default_rng(seed), np.arange(ms * RATE // 1000) / RATE
    roughness = 1 + 0.05 * random.normal(size=len(t)).cumsum() / np.sqrt(len(t))
    turns = np.cumsum(pitch_hz * (1 - 0.5 * t / t[-1]) * roughness) / RATE
    source = 6 * np.diff(np.floor(turns), prepend=0.0) + 0.8 * random.normal(size=len(t))
    rings = np.arange(RATE // 20) / RATE
    mouth = np.zeros(len(rings))
    for hz, width, gain in ((750, 120, 1.0), (1300, 160, 0.7), (2600, 250, 0.4)):
        mouth += gain * np.exp(-np.pi * width * rings) * np.sin(2 * np.pi * hz * rings)
    return _to_peak(np.convolve(source, mouth)[: len(t)] * np.minimum(t / 0.006, 1) * np.exp(-t / 0.11), peak)


def bark(ms: int = 260, peak: int = 9000, seed: int = 1) -> Samples:
    """A dry cough: two unvoiced bursts of breath."""
    random, t = np.random.default_rng(seed), np.arange(ms * RATE // 1000) / RATE
    bursts = [
        _to_peak(_between(random.normal(size=len(t)), 250, 3200) * np.minimum(t / 0.008, 1) * np.exp(-t / 0.09), peak)
        for _ in range(2)
    ]
    return np.concatenate([bursts[0], silence(140), bursts[1]])


def pink(length: int, seed: int = 3) -> Signal:
    """Pink noise with an RMS of 1."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(size=length))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), length * 100 // RATE))
    noise = np.fft.irfft(spectrum, length)
    return noise / np.sqrt(np.mean(noise**2))


def white(length: int, seed: int = 3) -> Signal:
    """White noise with an RMS of 1."""
    return np.random.default_rng(seed).normal(size=length)


def in_noise(sound: Samples, noise: Signal, snr_db: float) -> Samples:
    """The sound at half its amplitude, with noise added to all of it. `snr_db` is the signal-to-noise ratio of its loud
    parts, which are those over a tenth of its peak."""
    half = sound / 2
    loud = half[np.abs(half) > np.abs(half).max() / 10]
    noisy = half + noise[: len(half)] * np.sqrt(np.mean(loud**2)) * 10 ** (-snr_db / 20)
    return np.asarray(np.clip(np.rint(noisy), -32768, 32767), np.int16)


def _between(signal: Signal, low_hz: float, high_hz: float) -> Signal:
    spectrum, hz = np.fft.rfft(signal), np.fft.rfftfreq(len(signal), 1 / RATE)
    spectrum[(hz < low_hz) | (hz > high_hz)] = 0
    return np.fft.irfft(spectrum, len(signal))


def _to_peak(signal: Signal, peak: int) -> Samples:
    return np.asarray(np.rint(signal / np.abs(signal).max() * peak), np.int16)
