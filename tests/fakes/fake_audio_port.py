"""The few fakes that tests use: what cannot be real in a test, or could not be made to fail on time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from media.audio_port import (
    FLAG_LIVE,
    FLAG_PAUSED,
    INFO_ARRIVAL_NS,
    INFO_FLAGS,
    INFO_JITTER_MS,
    INFO_POSITION,
    INFO_QUEUED,
    INFO_TAKEN,
    INFO_TICK_NS,
    TICK_MS,
    Samples,
    row_of,
)

RING_MS = 30_000


@dataclass(slots=True)
class _Slot:
    """One slot of an `ArrayPort`: what the caller will say, what the agent wants to say, what was sent."""

    rate: int
    caller: Samples
    jitter_ms: int
    position: int = 0
    written: int = 0
    taken: int = 0
    queue: Samples = field(default_factory=lambda: np.zeros(0, np.int16))
    paused: bool = False
    hold_open: bool = False
    heard: list[Samples] = field(default_factory=list)
    said: list[Samples] = field(default_factory=list)
    sent: list[Samples] = field(default_factory=list)


class ArrayPort:
    """An `AudioPort` on arrays and a virtual clock: `step` is one pass of the pump, 20 ms later."""

    def __init__(self, rows: int = 4, start_ms: int = 1_000_000) -> None:
        self._rows = rows
        self._slots: dict[int, _Slot] = {}
        self._generation = 0
        self.now_ms = start_ms

    def open(self, rate: int = 8000, caller: Samples | None = None, jitter_ms: int = 0) -> int:
        """A new slot on the lowest free row, whose caller says these samples, then digital silence. With `jitter_ms`
        the sound is heard so much later than it arrives."""
        used = {row_of(slot) for slot in self._slots}
        row = min(set(range(self._rows)) - used)
        self._generation += 1
        slot = self._generation << 16 | row
        said = np.zeros(0, np.int16) if caller is None else caller
        late = np.zeros(jitter_ms * rate // 1000, np.int16)
        self._slots[slot] = _Slot(rate, np.concatenate([late, said]), jitter_ms)
        return slot

    def close(self, slot: int) -> None:
        """Give a slot back."""
        del self._slots[slot]

    def speak(self, slot: int, samples: Samples) -> None:
        """Let the caller say this from now on."""
        line = self._slots[slot]
        before = np.zeros(line.position, np.int16)
        before[: len(line.caller)] = line.caller[: line.position]
        line.caller = np.concatenate([before, samples])

    def step(self, ms: int = TICK_MS) -> None:
        """One tick of the pump: so many ms from every caller, as many to every caller."""
        self.now_ms += ms
        for line in self._slots.values():
            count = line.rate * ms // 1000
            heard = np.zeros(count, np.int16)
            piece = line.caller[line.position : line.position + count]
            heard[: len(piece)] = piece
            said = np.zeros(count, np.int16)
            if not line.paused:
                out, line.queue = line.queue[:count], line.queue[count:]
                said[: len(out)] = out
                line.taken += len(out)
            line.position += count
            line.heard.append(heard)
            line.said.append(said)
            line.sent.append(said)

    def sent(self, slot: int) -> Samples:
        """Everything that went out, silence included, from the slot's opening on."""
        return np.concatenate([np.zeros(0, np.int16), *self._slots[slot].sent])

    def paused(self, slot: int) -> bool:
        """Whether playout is paused."""
        return self._slots[slot].paused

    def more(self, slot: int) -> bool:
        """What `hold_open` was told last."""
        return self._slots[slot].hold_open

    # AudioPort

    @property
    def rows(self) -> int:
        return self._rows

    def wait(self, timeout_ms: int) -> bool:
        self.step()
        return True

    def read(self, heard: Samples, said: Samples, counts: NDArray[np.int32], info: NDArray[np.int64]) -> int:
        counts[:] = 0
        for slot, line in self._slots.items():
            row = row_of(slot)
            incoming = np.concatenate([np.zeros(0, np.int16), *line.heard])
            outgoing = np.concatenate([np.zeros(0, np.int16), *line.said])
            counts[row] = len(incoming)
            heard[row, : len(incoming)] = incoming
            said[row, : len(outgoing)] = outgoing
            info[row, INFO_POSITION] = line.position - len(incoming)
            info[row, INFO_ARRIVAL_NS] = self.now_ms * 1_000_000
            info[row, INFO_TICK_NS] = self.now_ms * 1_000_000
            info[row, INFO_QUEUED] = len(line.queue)
            info[row, INFO_TAKEN] = line.taken
            info[row, INFO_FLAGS] = FLAG_LIVE | (FLAG_PAUSED if line.paused else 0)
            info[row, INFO_JITTER_MS] = line.jitter_ms
            line.heard.clear()
            line.said.clear()
        return max((row_of(slot) + 1 for slot in self._slots), default=0)

    def rate(self, slot: int) -> int:
        return self._slots[slot].rate

    def write(self, slot: int, samples: Samples) -> int:
        line = self._slots[slot]
        room = line.rate * RING_MS // 1000 - len(line.queue)
        fitting = samples[:room]
        line.queue = np.concatenate([line.queue, fitting])
        line.written += len(fitting)
        return len(fitting)

    def hold_open(self, slot: int, more: bool) -> None:
        self._slots[slot].hold_open = more

    def written(self, slot: int) -> int:
        return self._slots[slot].written

    def taken(self, slot: int) -> int:
        return self._slots[slot].taken

    def flush(self, slot: int) -> int:
        line = self._slots[slot]
        sent = line.taken
        line.queue = line.queue[:0]
        line.taken = line.written
        line.paused = False
        return sent

    def pause(self, slot: int, on: bool) -> None:
        self._slots[slot].paused = on


class FakeEventLoop:
    """Stands for the event loop's `call_soon_threadsafe`: keeps what is posted until `run`."""

    def __init__(self) -> None:
        self._posted: list[Callable[[], None]] = []

    def post(self, work: Callable[[], None]) -> None:
        """Take work over."""
        self._posted.append(work)

    def run(self) -> None:
        """Do what was posted."""
        posted, self._posted = self._posted, []
        for work in posted:
            work()
