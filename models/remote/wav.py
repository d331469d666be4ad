"""Encodes and decodes WAV files for remote models."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import soxr

from media.audio_port import Samples
from models.errors import RemoteModelError

MIN_RATE: Final = 8000
MAX_RATE: Final = 96_000
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def encode_wav(samples: Samples, rate: int) -> bytes:
    """Mono int16 at `rate` Hz as a WAV file."""
    data = samples.astype("<i2").tobytes()
    format_chunk = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, 1, rate, 2 * rate, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", 4 + len(format_chunk) + 8 + len(data), b"WAVE")
    return b"".join((riff, format_chunk, struct.pack("<4sI", b"data", len(data)), data))


def decode_wav(content: bytes, target_rate: int) -> Samples:
    """Mono int16[n] at `target_rate` Hz from a WAV file of 16-bit or float samples. A streaming server does not know
    the size: for a size of 0 or beyond the end all received samples are taken. Raises `RemoteModelError`."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise RemoteModelError("broken", "sends sound that is no WAV file")
    at, format_chunk = 12, b""
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        at += 8
        if name == b"data":
            clipped = size == 0 or at + size > len(content)
            return _samples(format_chunk, content[at:] if clipped else content[at : at + size], target_rate)
        if name == b"fmt ":
            format_chunk = content[at : at + size]
        at += size + size % 2
    raise RemoteModelError("broken", "sends a WAV file without sound")


def _samples(format_chunk: bytes, data: bytes, target_rate: int) -> Samples:
    if len(format_chunk) < 16:
        raise RemoteModelError("broken", "sends a WAV file that does not say what it holds")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", format_chunk)
    if kind == _EXTENSIBLE and len(format_chunk) >= 26:
        kind = struct.unpack_from("<H", format_chunk, 24)[0]
    if (kind, bits) not in ((_PCM, 16), (_FLOAT, 32)) or channels not in (1, 2) or not MIN_RATE <= rate <= MAX_RATE:
        raise RemoteModelError("broken", f"sends sound of a kind that is not known ({kind}, {bits} bits, {rate} Hz)")
    frame = channels * bits // 8
    flat = np.frombuffer(data[: len(data) // frame * frame], "<i2" if kind == _PCM else "<f4")
    mono = flat.reshape(-1, channels).astype(np.float32).mean(axis=1)
    if kind == _FLOAT:
        mono = np.nan_to_num(mono, nan=0.0, posinf=1.0, neginf=-1.0) * 32767
    if rate != target_rate and len(mono):
        mono = soxr.resample(mono, rate, target_rate)
    clipped: Samples = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
    return clipped
