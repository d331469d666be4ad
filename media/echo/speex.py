"""The C interface of speexdsp's echo canceller, called through ctypes.

A frame takes some 30 microseconds: far less than releasing and reacquiring the interpreter lock, so the calls keep it
(`PyDLL`; 50 frames beside a busy Python thread take 7 ms at worst, with `CDLL` 26). The algorithm is J.-M. Valin, "On
Adjusting the Learning Rate in Frequency Domain Echo Cancellation With Double-Talk", IEEE Trans. ASLP 15(3), 2007: it
needs no double-talk detector."""

from __future__ import annotations

import ctypes
import weakref
from typing import Final, Protocol

import numpy as np

from config.errors import StartupError
from media.audio_port import Samples

FRAME_MS: Final = 20
"""Audio processed at a time."""
TAIL_MS: Final = 128
"""Length of the filter: echoes up to this long after the first; for small rooms a third of the reverberation time."""

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
    """Adapts to one echo path and cancels the echo."""

    def cancel(self, rx_audio: Samples, tx_audio: Samples) -> Samples:
        """One frame of `FRAME_MS` of the received audio, and the sent audio of which it may be an echo; returns the
        frame without the echo."""

    def close(self) -> None:
        """Free the memory. Idempotent."""


class SpeexLibrary:
    """libspeexdsp, loaded once for all calls of an engine."""

    def __init__(self) -> None:
        """Raises `StartupError` when it is missing or incompatible."""
        try:
            self._library = ctypes.PyDLL(SONAME)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(self._library, name)
                function.restype = result
                function.argtypes = arguments
        except (OSError, AttributeError) as error:
            raise StartupError(f"{SONAME} cannot be used ({error}): install libspeexdsp1") from error

    def create_filter(self, rate: int) -> AdaptiveFilter:
        """A new filter for audio at `rate` Hz. Raises `MemoryError`."""
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
            raise ValueError(f"a frame has {self._frame} int16 samples")
        output = np.empty(self._frame, np.int16)
        received, sent = np.ascontiguousarray(rx_audio), np.ascontiguousarray(tx_audio)
        self._cancel(self._state, received.ctypes.data, sent.ctypes.data, output.ctypes.data)
        return output

    def close(self) -> None:
        self._destroy()
