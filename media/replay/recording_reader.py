"""Reads the recording of a call: both sides, and when the agent was audible."""

from __future__ import annotations

import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from config.errors import TrunklineError
from media.audio_port import TICK_MS, Samples

RATES: Final = (8000, 16000)
SILENCE_DB: Final = -60.0
"""Below this level (dBFS) the agent's side is silent."""
ABOVE_FLOOR_DB: Final = 12.0
"""Minimum level of speech above the floor, which a background sound in the recording raises."""
_FLOOR_TICKS: Final = 75
"""The floor is the minimum level in this many ticks around: 1.5 s, in which speech has gaps and a background sound has
none."""
_MAX_GAP_TICKS: Final = 15
"""A shorter silence (300 ms) belongs to the agent's speech."""
_MIN_SPEECH_TICKS: Final = 3
"""A shorter sound (60 ms) is not speech."""

Ticks = NDArray[np.bool_]
"""One value for each tick of 20 ms."""


class InvalidRecording(TrunklineError):
    """The file is not a recording of a call; the message is one line that names the file."""


@dataclass(frozen=True)
class RecordedCall:
    """Both sides of a call, equally long, a whole number of ticks; `rate` is 8000 or 16000 Hz."""

    rate: int
    rx_audio: Samples
    tx_audio: Samples

    @property
    def frame(self) -> int:
        """Samples in a tick."""
        return self.rate * TICK_MS // 1000

    @property
    def ticks(self) -> int:
        """Length in ticks."""
        return len(self.rx_audio) // self.frame


def read_recording(path: Path) -> RecordedCall:
    """A stereo WAV file (16 bit, caller left, agent right) up to its last whole tick. Raises `InvalidRecording`."""
    try:
        with wave.open(str(path)) as file:
            wav_format = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            data = file.readframes(file.getnframes())
    except FileNotFoundError as error:
        raise InvalidRecording(f"the recording {path} does not exist") from error
    except OSError as error:
        raise InvalidRecording(f"the recording {path} cannot be read: {error.strerror}") from error
    except (wave.Error, EOFError) as error:
        raise InvalidRecording(f"{path} is not a WAV file: {error or 'it ends too early'}") from error
    channels, width, rate = wav_format
    if channels != 2:
        raise InvalidRecording(
            f"{path} is not stereo: a recording has the caller on its left and the agent on its right"
        )
    if width != 2 or rate not in RATES:
        raise InvalidRecording(f"{path} has {8 * width} bit at {rate} Hz: recordings have 16 bit at 8000 or 16000 Hz")
    tick_bytes = 4 * rate * TICK_MS // 1000
    length = len(data) // tick_bytes * tick_bytes
    if not length:
        raise InvalidRecording(f"{path} has no audio")
    sides = np.frombuffer(data[:length], "<i2").reshape(-1, 2).astype(np.int16)
    return RecordedCall(rate, sides[:, 0].copy(), sides[:, 1].copy())


def recording_seconds(path: Path) -> float:
    """The length of a WAV file by its header. Raises `OSError`, and `ValueError` for another kind of file."""
    try:
        with wave.open(str(path)) as file:
            frames, rate = file.getnframes(), file.getframerate()
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is no WAV file: {error}") from error
    return float(frames / rate)


def agent_audible(sound: RecordedCall) -> Ticks:
    """Mask of the ticks in which the agent speaks, short gaps included, judged by the level alone."""
    frames = sound.tx_audio.reshape(sound.ticks, sound.frame).astype(np.float32)
    level = 10 * np.log10((frames**2).mean(axis=1) / 32768.0**2 + 1e-12)
    around = np.pad(level, _FLOOR_TICKS // 2, mode="edge")
    floor = np.lib.stride_tricks.sliding_window_view(around, _FLOOR_TICKS).min(axis=1)
    loud = level > np.maximum(floor + ABOVE_FLOOR_DB, SILENCE_DB)
    return _without_short(~_without_short(~loud, _MAX_GAP_TICKS), _MIN_SPEECH_TICKS)


def audible_onsets(sounding: Ticks) -> NDArray[np.intp]:
    """The ticks in which sound begins."""
    return np.flatnonzero(sounding & ~np.concatenate([[False], sounding[:-1]]))


def _without_short(ticks: Ticks, min_ticks: int) -> Ticks:
    """The mask without runs of True shorter than `min_ticks`, except at the edges of the call."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ticks, [False]])))
    result = ticks.copy()
    for begin, end in edges.reshape(-1, 2).tolist():
        if end - begin < min_ticks and begin > 0 and end < len(ticks):
            result[begin:end] = False
    return result
