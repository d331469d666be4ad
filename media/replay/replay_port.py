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
    INFO_LIVE_END,
    INFO_ORIGIN_NS,
    INFO_POSITION,
    INFO_QUEUED,
    INFO_SENT,
    INFO_SLOT,
    INFO_TICK_NS,
    TICK_MS,
    Samples,
)
from media.replay.recording_reader import RecordedCall, Ticks

START_MS: Final = 10_000
"""Time on the clock when the recording begins."""


class ReplayPort:
    """An `AudioPort` with one slot. The agent's side is that of the recording: written samples are discarded, a pause
    or a flush has no effect. `audible`: for each tick whether the agent counts as audible; `jitter_ms`: for each tick
    the depth of the jitter buffer, by which the caller's audio arrived earlier than it was recorded."""

    slot: Final = 1 << 16

    def __init__(self, sound: RecordedCall, audible: Ticks, jitter_ms: NDArray[np.float64]) -> None:
        self._sound = sound
        self._audible = audible
        self._jitter_ms = jitter_ms
        self._tick = 0  # ticks passed
        self._read = 0  # ticks read

    def now_ns(self) -> int:
        """The clock, ns. It advances with `step` alone."""
        return (START_MS + self._tick * TICK_MS) * 1_000_000

    def step(self) -> bool:
        """One tick of the pump, 20 ms later; False when the recording is over."""
        if self._tick >= self._sound.ticks:
            return False
        self._tick += 1
        return True

    # AudioPort

    @property
    def rows(self) -> int:
        """One."""
        return 1

    def wait(self, timeout_ms: int, ticks: int = 1) -> bool:
        """The same as `step`."""
        return self.step()

    def wake(self) -> None:
        """No effect."""

    def read(
        self,
        rx_audio: Samples,
        tx_audio: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32],
    ) -> int:
        """The audio of both sides in the ticks since the last read."""
        begin, end = self._read * self._sound.frame, self._tick * self._sound.frame
        if end - begin < least[0]:
            end = begin
        self._read = end // self._sound.frame
        counts[0] = end - begin
        rx_audio[0, : end - begin] = self._sound.rx_audio[begin:end]
        tx_audio[0, : end - begin] = self._sound.tx_audio[begin:end]
        info[0, INFO_POSITION] = begin
        info[0, INFO_ARRIVAL_NS] = info[0, INFO_TICK_NS] = self.now_ns()
        if self._tick:
            info[0, INFO_QUEUED] = self._audible[self._tick - 1]
            info[0, INFO_JITTER_MS] = round(self._jitter_ms[self._tick - 1])
        info[0, INFO_SENT] = 0
        info[0, INFO_FLAGS] = FLAG_LIVE
        info[0, INFO_SLOT] = self.slot
        info[0, INFO_LIVE_END] = end
        info[0, INFO_ORIGIN_NS] = START_MS * 1_000_000
        return 1

    def rate(self, slot: int) -> int:
        """The rate of the recording."""
        if slot != self.slot:
            raise KeyError(slot)
        return self._sound.rate

    def write(self, slot: int, samples: Samples) -> int:
        """Accepts and discards everything."""
        return len(samples)

    def expect_more(self, slot: int, more: bool) -> None:
        """No effect."""

    def written_position(self, slot: int) -> int:
        """Always 0."""
        return 0

    def sent_position(self, slot: int) -> int:
        """Always 0."""
        return 0

    def flush(self, slot: int) -> int:
        """No effect."""
        return 0

    def pause(self, slot: int, on: bool) -> None:
        """No effect."""
