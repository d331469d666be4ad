"""The tick thread: every 20 ms one read of all calls, one measurement, one batched voice-activity run, and a step of
turn taking for the calls in which something goes on. It decides pauses and interruptions itself: a barge-in must not
wait for the event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread, get_ident
from typing import Final

import numpy as np
import structlog

from media.audio_history import Rows
from media.audio_port import INFO_COLUMNS, INFO_QUEUED, INFO_TAKEN, INFO_TICK_NS, TICK_MS, AudioPort, row_of
from media.echo.echo_guard import Echoes
from media.engine.audio_fanout import HandOver
from media.engine.call_audio import Broken, CallListener, Command, DigitHeard, EngineCall, UtteranceSent
from media.engine.event_dispatch import Outbox, Post
from media.playout import Playout
from media.recording import Recording
from media.turns.events import (
    AskEndOfTurn,
    Interrupted,
    Pause,
    Resume,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turns.settings import TurnSettings
from media.turns.turn_detector import Turns
from media.vad.input_pipeline import RATES, CallerSound, Window
from media.vad.silero import WINDOW_MS, Probabilities, SileroModel, silero_path

CAPACITY: Final = 6400
"""Samples per row and read: what the port keeps for us, 400 ms at 16 kHz."""
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start. A tick's time is what its work took, not the wait before it."""

    calls: int
    ticks: int
    tick_seconds: float
    longest_tick_seconds: float
    windows_run: int
    windows_skipped: int


class Engine:
    """The audio side of all calls on one port. `post` runs a function on the event loop (`loop.call_soon_threadsafe`).

    `add` and `remove` may be called by any thread; they take effect at the next tick. Remove a call before its slot is
    closed. A call of which something raises in the tick thread is let go of, with a last `Broken` event; the others go
    on. Raises `StartupError` when the voice activity model is missing."""

    def __init__(self, port: AudioPort, post: Post, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        rows = port.rows
        self._port = port
        self._clock_ns = clock_ns
        self._heard = np.zeros((rows, CAPACITY), np.int16)
        self._said = np.zeros((rows, CAPACITY), np.int16)
        self._counts = np.zeros(rows, np.int32)
        self._info = np.zeros((rows, INFO_COLUMNS), np.int64)
        self._sound = CallerSound(rows, SileroModel(silero_path()))
        self._echoes = Echoes(rows, self._sound)
        self._hand_over = HandOver(rows, self._sound)
        self._by_slot: dict[int, EngineCall] = {}  # as the callers of add and remove see it
        self._calls: dict[int, EngineCall] = {}  # by row, as the tick thread sees it
        self._activation = np.ones(rows, np.float32)
        self._attached = np.zeros(rows, np.bool_)
        self._open = np.zeros(rows, np.bool_)  # the turn taking of the row is not idle
        self._talking = np.zeros(rows, np.bool_)
        self._audible = np.zeros(rows, np.bool_)  # the agent, at the last tick
        self._taken = np.zeros(rows, np.int64)
        self._now = 0.0
        self._orders: deque[Callable[[], None]] = deque()
        self._outbox = Outbox(post, self._disown)
        self._ticks = 0
        self._busy = self._longest = 0.0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="media-tick", daemon=True)

    def start(self) -> None:
        """Start the tick thread."""
        self._thread.start()

    def close(self) -> None:
        """End the tick thread; recordings of calls that are still here are closed. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for call in list(self._calls.values()):
            self._detach(call)

    def now_ms(self) -> float:
        """The present, on the clock of every event's `at_ms`."""
        return self._clock_ns() / 1e6

    @property
    def stats(self) -> EngineStats:
        """The counters, at any time."""
        voice = self._sound.voice
        return EngineStats(
            len(self._by_slot), self._ticks, self._busy, self._longest, voice.windows_run, voice.windows_skipped
        )

    def add(
        self,
        slot: int,
        settings: TurnSettings,
        listener: CallListener,
        recording: Recording | None = None,
        ask_ahead_ms: float = 0.0,
    ) -> EngineCall:
        """Take a call in; its judge needs `ask_ahead_ms` for an answer. Raises `KeyError` for a slot that is not open
        and `ValueError` for a rate that no voice activity model knows. The engine closes the recording when the call
        leaves."""
        rate = self._port.rate(slot)
        if rate not in RATES:
            raise ValueError(f"voice activity works at 8000 and 16000 Hz, not at {rate}")
        turns = Turns(settings, TICK_MS, ask_ahead_ms)
        call = EngineCall(slot, rate, turns, Playout(self._port, slot), listener, recording, self._order)
        self._by_slot[slot] = call
        self._orders.append(partial(self._attach, call))
        return call

    def remove(self, slot: int) -> None:
        """Let a call go: its playout is flushed at once, its recording is closed at the next tick. Idempotent."""
        call = self._by_slot.pop(slot, None)
        if call is not None:
            call.playout.close()
            self._orders.append(partial(self._detach, call))

    def tick(self) -> None:
        """One pass over all calls. For the tick thread, and for tests that start none."""
        started = time.perf_counter()
        upper = self._port.read(self._heard, self._said, self._counts, self._info)
        self._take_orders(upper)
        rows = np.flatnonzero(self._counts[:upper])
        pumped = self._info[rows, INFO_TICK_NS].max() if len(rows) else self._clock_ns()
        self._now = max(self._now, float(pumped) / 1e6)
        self._ingest(rows)
        self._echoes.clean(self._now, self._audible)
        for rows, p in self._sound.windows(self._talking):
            self._judge(rows, p)
        for row in self._echoes.due():
            if (call := self._calls.get(row)) is not None:
                self._guard(call, partial(self._settle, call, row))
        for key in self._sound.take_keys():
            if (call := self._calls.get(key.row)) is not None:
                self._outbox.put(call, DigitHeard(key.at_ms, key.digit))
        self._step(upper)
        self._record_due()
        self._outbox.send()
        took = time.perf_counter() - started
        self._ticks += 1
        self._busy += took
        self._longest = max(self._longest, took)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._port.wait(5 * TICK_MS)
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - one bad tick must not silence every call
                failures += 1
                if failures % 250 == 1:
                    _log.exception("media.tick_failed", failures=failures)

    # Orders from other threads.

    def _order(self, call: EngineCall, command: Command) -> None:
        self._orders.append(partial(self._obey, call, command))

    def _take_orders(self, upper: int) -> None:
        """Done after the read: what was read for a slot that has changed hands since belongs to nobody."""
        while self._orders:
            self._orders.popleft()()
        self._counts[:upper] *= self._attached[:upper]

    def _obey(self, call: EngineCall, command: Command) -> None:
        if self._calls.get(row_of(call.slot)) is call:
            self._guard(call, lambda: self._apply(call, command(call)))

    def _attach(self, call: EngineCall) -> None:
        row = row_of(call.slot)
        if row in self._calls:
            self._detach(self._calls[row])
        self._calls[row] = call
        self._counts[row] = 0
        self._activation[row] = call.turns.activation
        self._sound.open(row, call.rate)
        self._taken[row] = self._info[row, INFO_TAKEN]
        self._regroup(call)

    def _detach(self, call: EngineCall) -> None:
        row = row_of(call.slot)
        if self._calls.get(row) is not call:
            return
        if call.recording is not None:
            self._guard(call, partial(self._hand_over.record, call, row))
            call.recording.close()
        self._calls.pop(row, None)
        self._regroup(call)

    def _regroup(self, call: EngineCall) -> None:
        row = row_of(call.slot)
        for flags in (self._open, self._talking, self._audible):
            flags[row] = False
        self._echoes.open(row)
        self._hand_over.open(row)
        self._attached[row] = row in self._calls
        self._sound.group(call.rate, sorted(row for row, other in self._calls.items() if other.rate == call.rate))

    # The caller's sound.

    def _ingest(self, rows: Rows) -> None:
        counts = self._counts[rows].astype(np.int64)
        self._sound.take(rows, counts, (self._heard, self._said), self._info, self._save)

    def _save(self, row: int) -> None:
        """Hand over what would be lost when the row is moved to the front."""
        call = self._calls[row]
        self._guard(call, partial(self._hand_over.record, call, row))

    def _judge(self, rows: Rows, p: Probabilities) -> None:
        speech = p >= self._activation[rows]
        for i in np.flatnonzero(speech | self._open[rows] | self._echoes.holding[rows]).tolist():
            row = int(rows[i])
            call = self._calls.get(row)
            if call is not None:
                self._guard(call, partial(self._frame, call, row, self._sound.window(row, float(p[i]))))

    def _frame(self, call: EngineCall, row: int, window: Window) -> None:
        windows: Sequence[Window] = (window,)
        if self._echoes.possible(row, self._now) or self._echoes.holding[row]:
            speech = window.p >= float(self._activation[row])
            windows = self._echoes.judge(row, window, speech, call.turns.state)
        self._hear(call, row, windows)

    def _settle(self, call: EngineCall, row: int) -> None:
        self._hear(call, row, self._echoes.settled(row))

    def _hear(self, call: EngineCall, row: int, windows: Sequence[Window]) -> None:
        audible = bool(self._audible[row])
        for each in windows:
            frame = call.turns.frame(each.at_ms, each.p, WINDOW_MS, audible, each.quiet_ms, each.onset_ms, each.loud)
            self._apply(call, frame)

    # Turn taking.

    def _step(self, upper: int) -> None:
        queued, taken = self._info[:upper, INFO_QUEUED], self._info[:upper, INFO_TAKEN]
        sending = (queued > 0) | (taken != self._taken[:upper])
        self._taken[:upper] = taken
        for row in np.flatnonzero(sending | self._audible[:upper] | self._open[:upper]).tolist():
            call = self._calls.get(row)
            if call is not None:
                self._guard(call, partial(self._step_call, call, row, bool(sending[row]), int(taken[row])))

    def _step_call(self, call: EngineCall, row: int, sending: bool, taken: int) -> None:
        for utterance in call.playout.advance(taken):
            self._outbox.put(call, UtteranceSent(self._now, utterance))
        self._hand_over.feed(call, row)
        audible = sending or call.playout.open
        if self._open[row] or audible != self._audible[row]:
            self._audible[row] = audible
            heard, quiet = self._sound.measured_ms(row), float(self._sound.levels.quiet_ms[row])
            self._apply(call, call.turns.tick(self._now, audible, heard, quiet))

    def _apply(self, call: EngineCall, events: Sequence[TurnEvent]) -> None:
        """Do what the events ask of the audio side at once, and keep them for the conversation."""
        row = row_of(call.slot)
        for event in events:
            match event:
                case Pause():
                    call.playout.pause(True)
                case Resume():
                    call.playout.pause(False)
                case Interrupted():
                    call.playout.bar()
                case SpeechStarted():
                    self._hand_over.open_ear(row, event.began_ms)
                case TurnEnded() | TurnDropped():
                    self._hand_over.close_ear(call, row, forget=isinstance(event, TurnDropped))
                case _:
                    pass
            if isinstance(event, AskEndOfTurn):
                self._ask(call, event.at_ms)
            else:
                self._outbox.put(call, event)
        self._open[row] = not call.turns.idle
        self._talking[row] = call.turns.talking

    def _ask(self, call: EngineCall, asked_ms: float) -> None:
        """An answer that comes at once counts at once; a later one, or one from another thread, at the next tick."""
        here, asking, at_once = get_ident(), True, list[float | None]()

        def answer(p: float | None) -> None:
            if asking and get_ident() == here:
                at_once.append(p)
            else:
                call.judged(asked_ms, p)

        if call.judge is None:
            answer(None)
        else:
            call.judge.ask(answer)
        asking = False
        for p in at_once:
            self._apply(call, call.turns.eot(self._now, p, asked_ms))

    def _record_due(self) -> None:
        """Give recordings their next piece, some calls at each tick."""
        for row in self._hand_over.due().tolist():
            call = self._calls.get(row)
            if call is not None:
                self._guard(call, partial(self._hand_over.record, call, row))

    # Faults.

    def _guard(self, call: EngineCall, work: Callable[[], None]) -> None:
        """Do a call's work; whatever it raises ends this call alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - ears, models and recordings are anyone's code
            self._break(call, error)

    def _disown(self, call: EngineCall, error: Exception) -> None:
        self._orders.append(partial(self._break, call, error))

    def _break(self, call: EngineCall, error: Exception) -> None:
        _log.error("media.call_broken", slot=call.slot, error=repr(error), exc_info=error)
        row = row_of(call.slot)
        if self._calls.pop(row, None) is None:
            return
        self._regroup(call)
        self._outbox.put(call, Broken(self._now, error))
        if call.recording is not None:
            call.recording.close()
