"""Markers in G.711 audio: each packet has a number that survives decoding and encoding, and music that fades out under
it. A marker is two pulses of full scale, such as occur in no speech; the distance between them is the number."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PACKET_BYTES: Final = 160
"""Samples of a packet: 20 ms at 8 kHz."""
NUMBERS: Final = 64
"""Markers are numbered modulo this: a number comes again after 1.28 s."""
NOISE: Final = b"\xff\x7f\xfe\x7e\xfd\x7d"
"""Mu-law codes around zero."""
_HIGH: Final = 0x80
"""Mu-law of the largest sample, and `_LOW` of the smallest. The upper 4 bits alone are the segment: half of full scale
and more."""
_LOW: Final = 0x00
_SEGMENT: Final = 0xF0
_FIRST_AT: Final = 4
_SHORTEST: Final = 4

Offsets = NDArray[np.int64]


def noise_packet(seed: int) -> bytes:
    """The payload of 20 ms of line noise, one of eight."""
    return _noise(seed % 8)


@functools.cache
def _noise(seed: int) -> bytes:
    codes = np.frombuffer(NOISE, np.uint8)
    return np.random.default_rng(seed).choice(codes, PACKET_BYTES).tobytes()


@functools.cache
def marked_packet(number: int) -> bytes:
    """The payload of 20 ms of line noise with the marker of this number (below `NUMBERS`), which begins at sample 4."""
    payload = bytearray(_noise(0))
    second = _FIRST_AT + _SHORTEST + 2 * number
    payload[_FIRST_AT : _FIRST_AT + 2] = bytes((_HIGH, _LOW))
    payload[second : second + 2] = bytes((_LOW, _HIGH))
    return bytes(payload)


def find_markers(audio: bytes) -> tuple[Offsets, Offsets]:
    """The positions (samples, of the first pulse) and numbers of the markers in mu-law audio."""
    codes: NDArray[Any] = np.frombuffer(audio, np.uint8) & _SEGMENT
    before, after = codes[:-1], codes[1:]
    firsts = np.flatnonzero((before == _HIGH) & (after == _LOW))
    seconds = np.append(np.flatnonzero((before == _LOW) & (after == _HIGH)), 2 * len(codes) + PACKET_BYTES)
    gaps = seconds[np.searchsorted(seconds, firsts)] - firsts - _SHORTEST
    valid = (gaps >= 0) & (gaps % 2 == 0) & (gaps < 2 * NUMBERS)
    return firsts[valid] - _FIRST_AT, gaps[valid] // 2
