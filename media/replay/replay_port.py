"""An audio port that replays a recording: its clock advances only when it is stepped."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_port import (
    FLAG_LIVE,
    INFO_ARRIVAL_NS,
    INFO_FLAGS,
    INFO_JITTER_MS,
    INFO_POSITION,
    INFO_QUEUED,
    INFO_TAKEN,
    INFO_TICK_NS,
    TICK_MS,
    Samples,
)
from media.replay.recording_reader import RecordedCall, Ticks

START_MS: Final = 10_000
"""The clock when the recording begins."""


class ReplayPort:
    """An `AudioPort` with one slot. The agent says what it said then, whatever the engine asks for: what is written is
    lost, a pause or a flush changes nothing. `audible` tells for each tick whether the agent counts as audible;
    `jitter_ms` is for each tick how deep the jitter buffer was: the caller's sound arrived so much earlier than it was
    recorded."""

    slot: Final = 1 << 16

    def __init__(self, sound: RecordedCall, audible: Ticks, jitter_ms: NDArray[np.float64]) -> None:
        self._sound = sound
        self._audible = audible
        self._jitter_ms = jitter_ms
        self._tick = 0  # those that have passed
        self._read = 0  # those that were read

    def now_ns(self) -> int:
        """The clock, ns. It stands still between two steps."""
        return (START_MS + self._tick * TICK_MS) * 1_000_000

    def step(self) -> bool:
        """One pass of the pump, 20 ms later; False when the recording is over."""
        if self._tick >= self._sound.ticks:
            return False
        self._tick += 1
        return True

    # AudioPort

    @property
    def rows(self) -> int:
        """One."""
        return 1

    def wait(self, timeout_ms: int) -> bool:
        """The same as `step`."""
        return self.step()

    def read(self, rx_audio: Samples, tx_audio: Samples, counts: NDArray[np.int32], info: NDArray[np.int64]) -> int:
        """What both sides said in the ticks since the last read."""
        begin, end = self._read * self._sound.frame, self._tick * self._sound.frame
        self._read = self._tick
        counts[0] = end - begin
        rx_audio[0, : end - begin] = self._sound.rx_audio[begin:end]
        tx_audio[0, : end - begin] = self._sound.tx_audio[begin:end]
        info[0, INFO_POSITION] = begin
        info[0, INFO_ARRIVAL_NS] = info[0, INFO_TICK_NS] = self.now_ns()
        if self._tick:
            info[0, INFO_QUEUED] = self._audible[self._tick - 1]
            info[0, INFO_JITTER_MS] = round(self._jitter_ms[self._tick - 1])
        info[0, INFO_TAKEN] = 0
        info[0, INFO_FLAGS] = FLAG_LIVE
        return 1

    def rate(self, slot: int) -> int:
        """That of the recording."""
        if slot != self.slot:
            raise KeyError(slot)
        return self._sound.rate

    def write(self, slot: int, samples: Samples) -> int:
        """Takes everything and keeps nothing."""
        return len(samples)

    def hold_open(self, slot: int, more: bool) -> None:
        """Changes nothing."""

    def written(self, slot: int) -> int:
        """Nothing ever was."""
        return 0

    def taken(self, slot: int) -> int:
        """Nothing ever was."""
        return 0

    def flush(self, slot: int) -> int:
        """Changes nothing."""
        return 0

    def pause(self, slot: int, on: bool) -> None:
        """Changes nothing."""
