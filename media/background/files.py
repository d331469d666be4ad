"""Files of background sounds: accepted MIME types, seamless loops, WAV storage."""

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
"""Content types that uploads may claim, lower case. `media.background.decoder` checks the content itself."""

TYPES_OF_SUFFIXES: Final = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/opus",
    ".flac": "audio/flac",
}
"""Content types by the suffix of a file's name, lower case."""

MAX_SECONDS: Final = 300
"""Maximum length of a background sound, s."""

TEMPORARY_PREFIX: Final = ".sound-"
"""Prefix of the names of files that `write_wav` has not finished."""

_CROSSFADE_SAMPLES: Final = SAMPLE_RATE // 4


class InvalidSound(ValueError):
    """A file that cannot become a background sound. Its text is an error message for the client."""


def duration_seconds(samples: Samples) -> float:
    """Duration of mono samples at SAMPLE_RATE, s."""
    return len(samples) / SAMPLE_RATE


def crossfade_loop(samples: Samples) -> Samples:
    """A seamless loop of the samples: the last 250 ms are crossfaded into the first (half of the sound if it is
    shorter), which shortens it by as much. Equal power, because the two ends are uncorrelated."""
    width = min(_CROSSFADE_SAMPLES, len(samples) // 2)
    angle = np.pi / 2 * (np.arange(width) + 0.5) / max(width, 1)
    ends = samples[len(samples) - width :] * np.cos(angle) + samples[:width] * np.sin(angle)
    joined = np.rint(np.clip(ends, -32768, 32767)).astype(np.int16)
    return np.concatenate([joined, samples[width : len(samples) - width]])


def write_wav(path: Path, samples: Samples) -> None:
    """Write mono int16 samples at SAMPLE_RATE as a WAV file that only the server's user can read. The folder must
    exist. The write is atomic: after a failure `path` holds its old content. Blocks until the data is on disk. Raises
    OSError."""
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with wave.open(file, "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(SAMPLE_RATE)
                sound.writeframes(samples.astype("<i2").tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def read_wav(path: Path) -> Samples:
    """The samples of a file of `write_wav`. Raises OSError when it cannot be read, `InvalidSound` for another format or
    a truncated file."""
    try:
        with wave.open(str(path), "rb") as sound:
            wav_format = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            frames = sound.getnframes()
            data = sound.readframes(frames)
    except (wave.Error, EOFError) as error:
        raise InvalidSound(f"{path.name} is not a WAV file") from error
    if wav_format != (1, 2, SAMPLE_RATE) or len(data) != 2 * frames:
        raise InvalidSound(f"{path.name} is not a complete mono 16-bit WAV file of {SAMPLE_RATE} Hz")
    return np.frombuffer(data, "<i2").astype(np.int16)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
