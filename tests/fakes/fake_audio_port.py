"""An audio port on arrays with a virtual clock, and an event loop that is run by the test."""

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
    INFO_LIVE_END,
    INFO_ORIGIN_NS,
    INFO_POSITION,
    INFO_QUEUED,
    INFO_SENT,
    INFO_SLOT,
    INFO_TICK_NS,
    TICK_MS,
    UNREAD_MS,
    Samples,
    row_of,
)

RING_MS = 30_000


@dataclass(slots=True)
class _Slot:
    """One slot of an `ArrayPort`: the caller's audio, the agent's queued audio, and the sent audio."""

    rate: int
    caller: Samples
    jitter_ms: int
    opened_ms: int
    live: bool = True
    live_end: int = 0
    position: int = 0
    written: int = 0
    taken: int = 0
    queue: Samples = field(default_factory=lambda: np.zeros(0, np.int16))
    paused: bool = False
    expect_more: bool = False
    heard: list[Samples] = field(default_factory=list)
    said: list[Samples] = field(default_factory=list)
    sent: list[Samples] = field(default_factory=list)


class ArrayPort:
    """An `AudioPort` on arrays with a virtual clock: `step` is one tick of the pump, 20 ms later."""

    def __init__(self, rows: int = 4, start_ms: int = 1_000_000) -> None:
        self._rows = rows
        self._slots: dict[int, _Slot] = {}
        self._generation = 0
        self.now_ms = start_ms
        self.wakes = 0

    def open(self, rate: int = 8000, caller: Samples | None = None, jitter_ms: int = 0) -> int:
        """Opens a slot on the lowest free row. Its caller sends `caller`, then digital silence; the jitter buffer
        delays it by `jitter_ms`."""
        used = {row_of(slot) for slot in self._slots}
        row = min(set(range(self._rows)) - used)
        self._generation += 1
        slot = self._generation << 16 | row
        samples = np.zeros(0, np.int16) if caller is None else caller
        delay = np.zeros(jitter_ms * rate // 1000, np.int16)
        self._slots[slot] = _Slot(rate, np.concatenate([delay, samples]), jitter_ms, self.now_ms)
        return slot

    def close(self, slot: int) -> None:
        """Closes a slot."""
        del self._slots[slot]

    def attach_stream(self, slot: int, on: bool) -> None:
        """Ends the stream of a slot, or begins the next one: meanwhile nothing is received or sent."""
        self._slots[slot].live = on

    def speak(self, slot: int, samples: Samples) -> None:
        """Replaces the caller's audio from now on."""
        slot_state = self._slots[slot]
        before = np.zeros(slot_state.position, np.int16)
        before[: len(slot_state.caller)] = slot_state.caller[: slot_state.position]
        slot_state.caller = np.concatenate([before, samples])

    def step(self, ms: int = TICK_MS) -> None:
        """Advances the clock by `ms`: receives audio from every caller and sends as much to each."""
        self.now_ms += ms
        for slot_state in self._slots.values():
            count = slot_state.rate * ms // 1000
            heard = np.zeros(count, np.int16)
            piece = slot_state.caller[slot_state.position : slot_state.position + count]
            if slot_state.live:
                heard[: len(piece)] = piece
                slot_state.live_end = slot_state.position + count
            said = np.zeros(count, np.int16)
            if slot_state.live and not slot_state.paused:
                out, slot_state.queue = slot_state.queue[:count], slot_state.queue[count:]
                said[: len(out)] = out
                slot_state.taken += len(out)
            slot_state.position += count
            slot_state.heard.append(heard)
            slot_state.said.append(said)
            slot_state.sent.append(said)

    def sent(self, slot: int) -> Samples:
        """All audio that was sent since the slot was opened, including silence."""
        return np.concatenate([np.zeros(0, np.int16), *self._slots[slot].sent])

    def paused(self, slot: int) -> bool:
        """True if playout is paused."""
        return self._slots[slot].paused

    def more(self, slot: int) -> bool:
        """The last argument of `expect_more`."""
        return self._slots[slot].expect_more

    # AudioPort

    @property
    def rows(self) -> int:
        return self._rows

    def wait(self, timeout_ms: int, ticks: int = 1) -> bool:
        self.step()
        return True

    def wake(self) -> None:
        self.wakes += 1

    def read(
        self,
        heard: Samples,
        said: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32],
    ) -> int:
        counts[:] = 0
        for slot, slot_state in self._slots.items():
            row = row_of(slot)
            self._drop_oldest(slot_state)
            whole = sum(map(len, slot_state.heard)) >= least[row]
            incoming = np.concatenate([np.zeros(0, np.int16), *(slot_state.heard if whole else ())])
            outgoing = np.concatenate([np.zeros(0, np.int16), *(slot_state.said if whole else ())])
            counts[row] = len(incoming)
            heard[row, : len(incoming)] = incoming
            said[row, : len(outgoing)] = outgoing
            info[row, INFO_POSITION] = slot_state.position - len(incoming)
            info[row, INFO_ARRIVAL_NS] = self.now_ms * 1_000_000
            info[row, INFO_TICK_NS] = self.now_ms * 1_000_000
            info[row, INFO_QUEUED] = len(slot_state.queue)
            info[row, INFO_SENT] = slot_state.taken
            info[row, INFO_FLAGS] = FLAG_LIVE * slot_state.live | FLAG_PAUSED * slot_state.paused
            info[row, INFO_JITTER_MS] = slot_state.jitter_ms
            info[row, INFO_SLOT] = slot
            info[row, INFO_LIVE_END] = slot_state.live_end
            info[row, INFO_ORIGIN_NS] = slot_state.opened_ms * 1_000_000
            if whole:
                slot_state.heard.clear()
                slot_state.said.clear()
        return max((row_of(slot) + 1 for slot in self._slots), default=0)

    def _drop_oldest(self, slot_state: _Slot) -> None:
        while sum(map(len, slot_state.heard)) > slot_state.rate * UNREAD_MS // 1000:
            del slot_state.heard[0], slot_state.said[0]

    def rate(self, slot: int) -> int:
        return self._slots[slot].rate

    def write(self, slot: int, samples: Samples) -> int:
        slot_state = self._slots[slot]
        room = slot_state.rate * RING_MS // 1000 - len(slot_state.queue)
        fitting = samples[:room]
        slot_state.queue = np.concatenate([slot_state.queue, fitting])
        slot_state.written += len(fitting)
        return len(fitting)

    def expect_more(self, slot: int, more: bool) -> None:
        self._slots[slot].expect_more = more

    def written_position(self, slot: int) -> int:
        return self._slots[slot].written

    def sent_position(self, slot: int) -> int:
        return self._slots[slot].taken

    def flush(self, slot: int) -> int:
        slot_state = self._slots[slot]
        sent = slot_state.taken
        slot_state.queue = slot_state.queue[:0]
        slot_state.taken = slot_state.written
        slot_state.paused = False
        return sent

    def pause(self, slot: int, on: bool) -> None:
        self._slots[slot].paused = on


class FakeEventLoop:
    """Replaces the event loop's `call_soon_threadsafe`: `run` calls the posted callbacks."""

    def __init__(self) -> None:
        self._posted: list[Callable[[], None]] = []

    def post(self, work: Callable[[], None]) -> None:
        """Posts a callback."""
        self._posted.append(work)

    def run(self) -> None:
        """Calls the posted callbacks."""
        posted, self._posted = self._posted, []
        for work in posted:
            work()
