"""Playout of the agent's speech in one call, utterance by utterance, on the clock of the samples sent.

The event loop writes, the tick thread flushes: one short lock per call (never held during I/O) keeps them in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock

from media.audio_port import AudioPort, Samples


@dataclass(slots=True, eq=False)
class Utterance:
    """One piece of the agent's speech. `start` and `stop` are on the slot's written-samples clock; `stop` grows until
    `end`."""

    text: str
    start: int
    stop: int
    ended: bool = False
    flushed_at: int | None = None
    """Index at which sending stopped, when the utterance was flushed before its end."""
    started_ms: float | None = None
    """When its first sample was sent, on the arrival clock; None if none was."""
    stopped_ms: float | None = None
    """When its last sample was sent; while it is being sent, that of the last tick."""

    @property
    def flushed(self) -> bool:
        """True if nothing more of it will be sent."""
        return self.flushed_at is not None


class Playout:
    """The agent's audio of one slot. `write` always accepts everything: samples that do not fit into the ring (30 s)
    wait here, and the tick thread queues them later. Any thread may call it."""

    def __init__(self, port: AudioPort, slot: int) -> None:
        self._port = port
        self._slot = slot
        self._lock = Lock()
        self._current: Utterance | None = None
        self._pending: deque[Utterance] = deque()  # not yet sent to the end, in order
        self._waiting: deque[Samples] = deque()  # did not fit into the ring
        self._write_end = port.written_position(slot)  # index after the last sample passed to `write`
        self._sent = (self._write_end, 0.0)  # the sent position, and the time of the last tick that has moved it
        self._per_ms = port.rate(slot) / 1000
        self._more_expected = False
        self._begun = False  # samples of an unfinished utterance or response were written
        self._blocked = False  # after a barge-in, until the conversation has got the event
        self._paused = self._held = False
        self._closed_at: int | None = None  # the sent position when the slot was released

    @property
    def queued(self) -> int:
        """Samples passed to `write` that have not been sent yet."""
        with self._lock:
            return self._write_end - self._sent_position()

    @property
    def is_idle(self) -> bool:
        """True if all utterances have been sent."""
        return not self._pending and not self._waiting

    @property
    def more_expected(self) -> bool:
        """True if more of the agent's response follows: the agent counts as audible even while the ring is empty."""
        return self._begun and (self._more_expected or self._current is not None)

    def begin(self, text: str) -> Utterance:
        """Start an utterance, to which all samples written from now on belong. An open utterance is ended."""
        with self._lock:
            self._end_current()
            self._current = Utterance(text, self._write_end, self._write_end)
            if self._blocked:
                self._current.flushed_at = self._write_end
            else:
                self._pending.append(self._current)
            self._announce_more()
            self._port.wake()
            return self._current

    def write(self, samples: Samples) -> bool:
        """Queue mono int16 samples at the slot's rate. False when the utterance has been flushed: the samples are
        dropped, as are samples written outside an utterance."""
        with self._lock:
            utterance = self._current
            if utterance is None or utterance.flushed or self._closed_at is not None:
                return False
            self._begun = True
            self._write_end += len(samples)
            utterance.stop = self._write_end
            accepted = 0 if self._waiting else self._port.write(self._slot, samples)
            if accepted < len(samples):
                self._waiting.append(samples[accepted:].copy())
            return True

    def end(self) -> None:
        """End the current utterance: it is complete."""
        with self._lock:
            self._end_current()
            self._announce_more()

    def expect_more(self, on: bool) -> None:
        """Announce that more utterances of the same response follow (or not): a gap between them is then an under-run,
        not the agent's silence."""
        with self._lock:
            self._more_expected = on
            self._announce_more()

    def played(self, utterance: Utterance) -> int:
        """Number of samples of an utterance that have really been sent; valid also after `flush` and `close`."""
        with self._lock:
            reached = self._sent_position() if utterance.flushed_at is None else utterance.flushed_at
            return min(max(reached - utterance.start, 0), utterance.stop - utterance.start)

    def flush(self) -> int:
        """Discard everything that has not been sent, end a pause, and cut the utterances concerned. Returns the index
        up to which samples were really sent."""
        with self._lock:
            if self._closed_at is not None:
                return self._closed_at
            return self._flush()

    def block(self) -> int:
        """Flush, and cut every utterance that is begun before `unblock`: the engine does so at a barge-in, until the
        conversation has got the event. Returns the index up to which samples were really sent."""
        with self._lock:
            self._blocked = True
            return self._sent_position() if self._closed_at is not None else self._flush()

    def unblock(self) -> None:
        """The conversation has got the event: utterances begun from now on are sent."""
        with self._lock:
            self._blocked = False

    def _flush(self) -> int:
        sent = self._port.flush(self._slot)
        for utterance in self._pending:
            self._set_times(utterance, sent)
            if not utterance.ended or utterance.stop > sent:
                utterance.flushed_at = sent
                utterance.ended = True
        self._pending.clear()
        self._waiting.clear()
        self._write_end = self._port.written_position(self._slot)
        self._more_expected = self._begun = self._paused = False
        if self._held:
            self._port.pause(self._slot, True)
        self._announce_more()
        return sent

    def pause(self, on: bool) -> None:
        """Stop sending, or resume where it stopped."""
        with self._lock:
            self._paused = on
            self._apply_pause()

    def hold(self, on: bool) -> None:
        """The same for a hold, which neither `pause` nor a flush ends."""
        with self._lock:
            self._held = on
            self._apply_pause()

    def _apply_pause(self) -> None:
        if self._closed_at is None:
            self._port.pause(self._slot, self._paused or self._held)

    def close(self) -> None:
        """Flush and release the slot, before it is closed: `played` stays valid."""
        sent = self.flush()
        with self._lock:
            self._closed_at = sent

    def advance(self, sent: int, now_ms: float) -> tuple[Utterance, ...]:
        """Tick thread, which has found the position `sent` at `now_ms`: queue waiting samples in the ring; returns the
        utterances that have been sent to their end."""
        if not self._pending and not self._waiting:
            self._sent = (sent, now_ms)
            return ()
        with self._lock:
            self._refill()
            if sent != self._sent[0]:
                self._sent = (sent, now_ms)
                for utterance in self._pending:
                    self._set_times(utterance, sent)
            finished = []
            while self._pending and self._pending[0].ended and self._pending[0].stop <= sent:
                finished.append(self._pending.popleft())
            if not self._pending and not self._more_expected:
                self._begun = False
            return tuple(finished)

    def _set_times(self, utterance: Utterance, sent: int) -> None:
        """Set the times of an utterance at the position `sent`. What the last tick has not seen was sent since."""
        if utterance.start < sent:
            position, at_ms = self._sent
            if utterance.started_ms is None:
                utterance.started_ms = at_ms - (position - utterance.start) / self._per_ms
            utterance.stopped_ms = at_ms - (position - min(utterance.stop, sent)) / self._per_ms

    def _refill(self) -> None:
        while self._waiting:
            head = self._waiting.popleft()
            fitted = self._port.write(self._slot, head)
            if fitted < len(head):
                self._waiting.appendleft(head[fitted:])
                return

    def _end_current(self) -> None:
        if self._current is not None:
            self._current.ended = True
            self._current = None

    def _announce_more(self) -> None:
        if self._closed_at is None:
            self._port.expect_more(self._slot, self._more_expected or self._current is not None)

    def _sent_position(self) -> int:
        return self._port.sent_position(self._slot) if self._closed_at is None else self._closed_at
