"""The peaks of a recording, from which a page draws its waveform."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

MAX_PEAKS: Final = 3000
"""More than a screen has columns."""
MIN_PEAK_S: Final = 0.02
_FULL_SCALE: Final = 32768
_CHUNK_PEAKS: Final = 100


@dataclass(frozen=True)
class WaveformPeaks:
    """The loudest sample of each stretch of a recording, 0 to 1, of either side."""

    seconds_per_peak: float
    caller: NDArray[np.float32]
    agent: NDArray[np.float32]


def waveform_peaks(source: Path | BinaryIO) -> WaveformPeaks:
    """Returns the peaks of a stereo WAV file (16 bit, caller left, agent right), at most `MAX_PEAKS`. Blocks: an hour
    takes some tenths of a second; the memory does not grow with the recording. Raises `OSError`, and `ValueError` for
    another kind of file."""
    try:
        with wave.open(str(source) if isinstance(source, Path) else source) as file:
            if (file.getnchannels(), file.getsampwidth()) != (2, 2):
                raise ValueError(f"{source} is no stereo recording with 16 bit")
            rate, frames = file.getframerate(), file.getnframes()
            stretch = max(round(rate * MIN_PEAK_S), -(-frames // MAX_PEAKS))
            peaks = [_peaks_of(data, stretch) for data in iter(lambda: file.readframes(stretch * _CHUNK_PEAKS), b"")]
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{source} is no WAV file: {error}") from error
    loudest = np.concatenate(peaks) if peaks else np.zeros((0, 2), np.float32)
    return WaveformPeaks(stretch / rate, loudest[:, 0], loudest[:, 1])


def _peaks_of(data: bytes, stretch: int) -> NDArray[np.float32]:
    """`float32[peaks, 2]`; the last stretch may be shorter."""
    sides = np.frombuffer(data[: len(data) // 4 * 4], "<i2").reshape(-1, 2)
    loudest = np.abs(np.maximum.reduceat(sides, starts := np.arange(0, len(sides), stretch)).astype(np.int32))
    quietest = np.abs(np.minimum.reduceat(sides, starts).astype(np.int32))
    return (np.maximum(loudest, quietest) / _FULL_SCALE).astype(np.float32)
