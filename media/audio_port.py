"""The audio port: the interface between the audio engine and the transport of the calls' audio, with one wait and one
read for all calls.

`sipcore.audio.pump` implements `AudioPort` on RTP; tests implement it on arrays.
A slot handle names one call's pair of rings. Its low 16 bits are the row in the arrays of `read`; the bits above are a
generation, so that a stale handle is refused (`KeyError`) instead of reaching another call."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
"""Mono PCM, int16; its owner states the rate (Hz)."""

TICK_MS: Final = 20
"""Interval of the pump's passes over all calls, ms."""

UNREAD_MS: Final = 1400
"""Audio that a slot keeps unread; of more, the oldest is dropped."""

INFO_POSITION: Final = 0
"""Column of `info`: index of the row's first sample since the slot opened."""
INFO_ARRIVAL_NS: Final = 1
"""Column of `info`: CLOCK_MONOTONIC time, ns, at which the newest packet of the row arrived."""
INFO_QUEUED: Final = 2
"""Column of `info`: samples written and not yet sent."""
INFO_SENT: Final = 3
"""Column of `info`: the played-samples clock: index up to which written samples were sent or flushed."""
INFO_FLAGS: Final = 4
"""Column of `info`: FLAG_* bits."""
INFO_JITTER_MS: Final = 5
"""Column of `info`: audio that still waits in the jitter buffer, ms; the row's last sample is that much older than the
newest packet."""
INFO_TICK_NS: Final = 6
"""Column of `info`: CLOCK_MONOTONIC time, ns, of the pump tick that delivered the row's last sample."""
INFO_SLOT: Final = 7
"""Column of `info`: the slot that was read."""
INFO_LIVE_END: Final = 8
"""Column of `info`: index after the last sample that a stream has given, which may lie after the row. After it
there is no stream, perhaps because the call has ended, and the row is silent."""
INFO_ORIGIN_NS: Final = 9
"""Column of `info`: CLOCK_MONOTONIC time, ns, of index 0, or 0 before the first sample. Indices advance with that
clock: the row is silent where the pump has missed ticks."""
INFO_COLUMNS: Final = 10

FLAG_LIVE: Final = 1
"""A stream is attached: audio flows."""
FLAG_PAUSED: Final = 2
"""Playout is paused."""


def row_of(slot: int) -> int:
    """The row of a slot handle in the arrays of `AudioPort.read`."""
    return slot & 0xFFFF


class AudioPort(Protocol):
    """The audio of all calls. `wait` and `read` belong to the tick thread; any thread may call the other methods."""

    @property
    def rows(self) -> int:
        """Rows of the arrays: the maximum number of open slots."""

    def wait(self, timeout_ms: int, ticks: int = 1) -> bool:
        """Wait without the GIL until the next pump tick, or until that many of them unless woken; returns False on
        timeout."""

    def wake(self) -> None:
        """End the present or next wait with the next tick. Any thread."""

    def read(
        self,
        rx_audio: Samples,
        tx_audio: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32],
    ) -> int:
        """Drain the slots: `rx_audio` and `tx_audio` are `int16[rows, capacity]` (received and sent in the same ticks,
        sample-aligned), `counts` is `int32[rows]` (samples in each row, 0 for none), `info` is `int64[rows,
        INFO_COLUMNS]`. A slot that holds fewer samples than `least`, `int32[rows]`, keeps them (`UNREAD_MS` at most).
        Returns the number of rows that may hold something (highest open row + 1)."""

    def rate(self, slot: int) -> int:
        """Sample rate of the slot, Hz."""

    def write(self, slot: int, samples: Samples) -> int:
        """Queue samples for sending; returns the number that fitted (the ring holds 30 s)."""

    def expect_more(self, slot: int, more: bool) -> None:
        """Announce that more samples of the same utterance follow: only then an empty ring counts as an under-run."""

    def written_position(self, slot: int) -> int:
        """Index after the last sample ever written."""

    def sent_position(self, slot: int) -> int:
        """The played-samples clock: index up to which written samples have been sent or flushed."""

    def flush(self, slot: int) -> int:
        """Discard everything queued and end a pause; returns the index up to which samples were really sent."""

    def pause(self, slot: int, on: bool) -> None:
        """Stop or resume sending; queued samples stay."""
