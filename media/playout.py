"""Playout of the agent's speech in one call, utterance by utterance, on the clock of the samples that were sent.

The event loop writes, the tick thread flushes: one short lock per call (never held during I/O) keeps them in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock

from media.audio_port import AudioPort, Samples


@dataclass(slots=True, eq=False)
class Utterance:
    """One piece of speech. `start` and `stop` are on the slot's written-samples clock; `stop` grows until `end`."""

    text: str
    start: int
    stop: int
    ended: bool = False
    flushed_at: int | None = None
    """Where the sending stopped for good, when the utterance was flushed before its end."""

    @property
    def flushed(self) -> bool:
        """Flushed: nothing more of it will be sent."""
        return self.flushed_at is not None


class Playout:
    """The agent's side of one slot. `write` always takes everything: what does not fit into the ring (30 s) waits here
    and follows from the tick thread. Any thread may call it."""

    def __init__(self, port: AudioPort, slot: int) -> None:
        self._port = port
        self._slot = slot
        self._lock = Lock()
        self._current: Utterance | None = None
        self._pending: deque[Utterance] = deque()  # begun, not yet sent to the end, in order
        self._waiting: deque[Samples] = deque()  # did not fit into the ring
        self._behind = port.written(slot)  # index behind the last sample that was given to us
        self._more_expected = False
        self._begun = False  # something of an unfinished utterance or answer was written
        self._blocked = False  # interrupted, and the conversation does not know yet
        self._final: int | None = None  # the played-samples clock when the slot was given up

    @property
    def queued(self) -> int:
        """Samples given to `write` that have not been sent yet."""
        with self._lock:
            return self._behind - self._taken()

    @property
    def more_expected(self) -> bool:
        """More of what the agent is saying will come: the agent counts as audible even while the ring is empty."""
        return self._begun and (self._more_expected or self._current is not None)

    def begin(self, text: str) -> Utterance:
        """Start an utterance; what is written from now on belongs to it. An utterance that is still open is ended."""
        with self._lock:
            self._finish()
            self._current = Utterance(text, self._behind, self._behind)
            if self._blocked:
                self._current.flushed_at = self._behind
            else:
                self._pending.append(self._current)
            self._hold_open()
            return self._current

    def write(self, samples: Samples) -> bool:
        """Queue mono int16 sound at the slot's rate. False when the utterance has been flushed: its sound is dropped,
        as is sound written outside an utterance."""
        with self._lock:
            utterance = self._current
            if utterance is None or utterance.flushed or self._final is not None:
                return False
            self._begun = True
            self._behind += len(samples)
            utterance.stop = self._behind
            taken = 0 if self._waiting else self._port.write(self._slot, samples)
            if taken < len(samples):
                self._waiting.append(samples[taken:].copy())
            return True

    def end(self) -> None:
        """The current utterance is complete."""
        with self._lock:
            self._finish()
            self._hold_open()

    def expect_more(self, on: bool) -> None:
        """Say that more utterances of the same answer will follow (or not): a gap between them is then an under-run,
        not the agent's silence."""
        with self._lock:
            self._more_expected = on
            self._hold_open()

    def played(self, utterance: Utterance) -> int:
        """How many samples of an utterance have really been sent; right also after `flush` and `close`."""
        with self._lock:
            reached = self._taken() if utterance.flushed_at is None else utterance.flushed_at
            return min(max(reached - utterance.start, 0), utterance.stop - utterance.start)

    def flush(self) -> int:
        """Throw away everything that has not been sent, end a pause, and cut the utterances that this concerns.
        Returns the index up to which samples were really sent."""
        with self._lock:
            if self._final is not None:
                return self._final
            return self._flush()

    def block(self) -> int:
        """Flush, and cut every utterance that is begun before `unblock`: the engine does so at an interruption, until
        the conversation has been told. Returns the index up to which samples were really sent."""
        with self._lock:
            self._blocked = True
            return self._taken() if self._final is not None else self._flush()

    def unblock(self) -> None:
        """The conversation knows: what is begun from now on will be sent."""
        with self._lock:
            self._blocked = False

    def _flush(self) -> int:
        sent = self._port.flush(self._slot)
        for utterance in self._pending:
            if not utterance.ended or utterance.stop > sent:
                utterance.flushed_at = sent
                utterance.ended = True
        self._pending.clear()
        self._waiting.clear()
        self._behind = self._port.written(self._slot)
        self._more_expected = self._begun = False
        self._hold_open()
        return sent

    def pause(self, on: bool) -> None:
        """Stop sending for now, or go on where it stopped."""
        with self._lock:
            if self._final is None:
                self._port.pause(self._slot, on)

    def close(self) -> None:
        """Give the slot up, before it is closed: flushes, and `played` goes on answering from what was sent by now."""
        sent = self.flush()
        with self._lock:
            self._final = sent

    def advance(self, taken: int) -> tuple[Utterance, ...]:
        """Tick thread: move waiting sound into the ring; returns the utterances that have been sent to their end."""
        if not self._pending and not self._waiting:
            return ()
        with self._lock:
            self._refill()
            done = []
            while self._pending and self._pending[0].ended and self._pending[0].stop <= taken:
                done.append(self._pending.popleft())
            if not self._pending and not self._more_expected:
                self._begun = False
            return tuple(done)

    def _refill(self) -> None:
        while self._waiting:
            head = self._waiting.popleft()
            fitted = self._port.write(self._slot, head)
            if fitted < len(head):
                self._waiting.appendleft(head[fitted:])
                return

    def _finish(self) -> None:
        if self._current is not None:
            self._current.ended = True
            self._current = None

    def _hold_open(self) -> None:
        if self._final is None:
            self._port.hold_open(self._slot, self._more_expected or self._current is not None)

    def _taken(self) -> int:
        return self._port.taken(self._slot) if self._final is None else self._final
