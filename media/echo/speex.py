"""The C interface of speexdsp's echo canceller, called through ctypes.

A frame takes some 30 microseconds: far less than it takes to hand the interpreter lock over and get it back, so the
calls keep it (`PyDLL`; 50 frames beside a busy Python thread take 7 ms at worst, with `CDLL` 26). The algorithm is
J.-M. Valin, "On Adjusting the Learning Rate in Frequency Domain Echo Cancellation With Double-Talk", IEEE Trans. ASLP
15(3), 2007: it needs no detector of double talk.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final, Protocol

import numpy as np

from config.errors import StartupError
from media.audio_port import Samples

FRAME_MS: Final = 20
"""Sound cancelled at a time."""
TAIL_MS: Final = 128
"""Echoes up to this long after the first are learned: small rooms, the third of their reverberation time."""

SONAME: Final = "libspeexdsp.so.1"
_SET_SAMPLING_RATE: Final = 24
_handle, _int = ctypes.c_void_p, ctypes.c_int
_SIGNATURES: Final[dict[str, tuple[object, list[object]]]] = {
    "speex_echo_state_init": (_handle, [_int, _int]),
    "speex_echo_state_destroy": (None, [_handle]),
    "speex_echo_ctl": (_int, [_handle, _int, _handle]),
    "speex_echo_cancellation": (None, [_handle, _handle, _handle, _handle]),
}


class AdaptiveFilter(Protocol):
    """Learns one echo path and takes the echo out."""

    def cancel(self, rx_audio: Samples, tx_audio: Samples) -> Samples:
        """One frame of `FRAME_MS` of what came in and of what it may be an echo of; returns the frame without it."""

    def close(self) -> None:
        """Give the memory back. Idempotent."""


class SpeexLibrary:
    """libspeexdsp, loaded once for all calls of an engine."""

    def __init__(self) -> None:
        """Raises `StartupError` when it is missing or of another make."""
        try:
            self._library = ctypes.PyDLL(SONAME)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(self._library, name)
                function.restype = result
                function.argtypes = arguments
        except (OSError, AttributeError) as error:
            raise StartupError(f"{SONAME} cannot be used ({error}): install libspeexdsp1") from error

    def create_filter(self, rate: int) -> AdaptiveFilter:
        """A canceller that knows nothing yet, for sound at `rate` Hz. Raises `MemoryError`."""
        return _SpeexFilter(self._library, rate)


class _SpeexFilter:
    def __init__(self, library: ctypes.PyDLL, rate: int) -> None:
        self._frame = FRAME_MS * rate // 1000
        self._state = library.speex_echo_state_init(self._frame, TAIL_MS * rate // 1000)
        if not self._state:
            raise MemoryError("speex_echo_state_init")
        self._cancel = library.speex_echo_cancellation
        self._destroy = weakref.finalize(self, library.speex_echo_state_destroy, self._state)
        library.speex_echo_ctl(self._state, _SET_SAMPLING_RATE, ctypes.byref(ctypes.c_int(rate)))

    def cancel(self, rx_audio: Samples, tx_audio: Samples) -> Samples:
        if not (len(rx_audio) == len(tx_audio) == self._frame and rx_audio.dtype == tx_audio.dtype == np.int16):
            raise ValueError("a frame of another size")
        left = np.empty(self._frame, np.int16)
        here, there = np.ascontiguousarray(rx_audio), np.ascontiguousarray(tx_audio)
        self._cancel(self._state, here.ctypes.data, there.ctypes.data, left.ctypes.data)
        return left

    def close(self) -> None:
        self._destroy()
