"""The audio port: the interface between the audio engine and whatever carries the calls' audio, with one wait and one
read for all calls.

`sipcore.audio.pump` implements `AudioPort` on RTP; tests implement it on arrays.
A slot handle names one call's pair of rings. Its low 16 bits are the row in the arrays of `read`; the bits
above are a generation, so that a handle kept too long is refused (`KeyError`) instead of reaching another call.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
"""Mono PCM, int16, at the rate that its owner says (Hz)."""

TICK_MS: Final = 20
"""One pass of the pump over all calls, ms."""

INFO_POSITION: Final = 0
"""Column of `info`: index of the row's first sample since the slot opened."""
INFO_ARRIVAL_NS: Final = 1
"""Column of `info`: CLOCK_MONOTONIC time, ns, at which the newest packet of the row arrived."""
INFO_QUEUED: Final = 2
"""Column of `info`: samples written and not yet taken for sending."""
INFO_TAKEN: Final = 3
"""Column of `info`: the played-samples clock: index up to which written samples were sent or flushed."""
INFO_FLAGS: Final = 4
"""Column of `info`: FLAG_* bits."""
INFO_JITTER_MS: Final = 5
"""Column of `info`: sound that still waits in the jitter buffer, ms: the row's last sample is by so much older than the
newest packet."""
INFO_TICK_NS: Final = 6
"""Column of `info`: CLOCK_MONOTONIC time, ns, of the pump tick that brought the row's last sample."""
INFO_COLUMNS: Final = 7

FLAG_LIVE: Final = 1
"""A stream is attached: sound flows."""
FLAG_PAUSED: Final = 2
"""Playout is paused."""


def row_of(slot: int) -> int:
    """The row in the arrays of `AudioPort.read` that belongs to a slot handle."""
    return slot & 0xFFFF


class AudioPort(Protocol):
    """The sound of all calls. `wait` and `read` belong to the tick thread; the rest may be called by any thread."""

    @property
    def rows(self) -> int:
        """Rows of the arrays: the most slots that can be open at once."""

    def wait(self, timeout_ms: int) -> bool:
        """Block without the GIL until a pump tick has passed; False on timeout."""

    def read(self, rx_audio: Samples, tx_audio: Samples, counts: NDArray[np.int32], info: NDArray[np.int64]) -> int:
        """Drain all slots: `rx_audio` and `tx_audio` are `int16[rows, capacity]` (what came in, what went out in the
        same ticks, sample-aligned), `counts` is `int32[rows]` (samples in each row, 0 where nothing is), `info` is
        `int64[rows, INFO_COLUMNS]`. Returns the number of rows that may hold something (highest open row + 1)."""

    def rate(self, slot: int) -> int:
        """Sample rate of the slot, Hz."""

    def write(self, slot: int, samples: Samples) -> int:
        """Queue samples for sending; returns how many fitted (the ring holds 30 s)."""

    def hold_open(self, slot: int, more: bool) -> None:
        """Say whether more of the same utterance is coming: only then an empty ring counts as an under-run."""

    def written(self, slot: int) -> int:
        """Index behind the last sample that was ever written."""

    def taken(self, slot: int) -> int:
        """The played-samples clock: index up to which written samples have been sent or flushed."""

    def flush(self, slot: int) -> int:
        """Throw away all that is queued, and end a pause; returns the index up to which samples were really sent."""

    def pause(self, slot: int, on: bool) -> None:
        """Stop or go on taking samples; what is queued stays."""
