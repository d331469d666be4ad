"""Files of background sounds: what may be uploaded, how an upload becomes a loop, how loops are stored."""

from __future__ import annotations

import os
import tempfile
import wave
from pathlib import Path
from typing import Final

import numpy as np

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE

MIME_TYPES: Final = frozenset({
    "audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave",
    "audio/mpeg", "audio/mp3", "audio/x-mp3", "audio/mpeg3", "audio/x-mpeg-3",
    "audio/ogg", "application/ogg", "audio/vorbis", "audio/opus",
    "audio/flac", "audio/x-flac",
})  # fmt: skip
"""What uploads may call themselves, lower case. It is a claim: `media.background.decoder` goes by the content."""

MAX_SECONDS: Final = 300
"""The longest sound that is taken, s."""

TEMPORARY_PREFIX: Final = ".sound-"
"""How the names of files begin that `write_wav` has not finished."""

_CROSSFADE: Final = SAMPLE_RATE // 4


class InvalidSound(ValueError):
    """A file that cannot become a background sound. Its text is a sentence for the one who sent it."""


def duration_seconds(samples: Samples) -> float:
    """How long mono samples at SAMPLE_RATE last, s."""
    return len(samples) / SAMPLE_RATE


def loop(samples: Samples) -> Samples:
    """The sound made to repeat without a seam: its last 250 ms fade into its first (half of it where it is shorter), so
    it becomes shorter by that. Equal power: the two have nothing to do with each other."""
    width = min(_CROSSFADE, len(samples) // 2)
    turn = np.pi / 2 * (np.arange(width) + 0.5) / max(width, 1)
    ends = samples[len(samples) - width :] * np.cos(turn) + samples[:width] * np.sin(turn)
    joined = np.rint(np.clip(ends, -32768, 32767)).astype(np.int16)
    return np.concatenate([joined, samples[width : len(samples) - width]])


def write_wav(path: Path, samples: Samples) -> None:
    """Store mono int16 samples at SAMPLE_RATE as a WAV file that only our own user can read. The folder exists.
    Whatever happens, `path` holds either what it held or all of this; blocks until it is on disk. Raises OSError."""
    handle, aside = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with wave.open(file, "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(SAMPLE_RATE)
                sound.writeframes(samples.astype("<i2").tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    _sync(path.parent)


def read_wav(path: Path) -> Samples:
    """The samples of a file of `write_wav`. Raises OSError when it cannot be read, `InvalidSound` when it is another
    kind of file or was cut short."""
    try:
        with wave.open(str(path), "rb") as sound:
            kind = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            frames = sound.getnframes()
            data = sound.readframes(frames)
    except (wave.Error, EOFError) as error:
        raise InvalidSound(f"{path.name} is no WAV file") from error
    if kind != (1, 2, SAMPLE_RATE) or len(data) != 2 * frames:
        raise InvalidSound(f"{path.name} is no complete mono 16-bit WAV file of {SAMPLE_RATE} Hz")
    return np.frombuffer(data, "<i2").astype(np.int16)


def _sync(folder: Path) -> None:
    """Put the names of a folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
