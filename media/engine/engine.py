"""The audio engine, a thread that ticks every 20 ms: one read of all calls, one level measurement, one batched run of
voice activity detection, and a step of turn detection for the calls that are not idle. It pauses and flushes playout
itself, because a barge-in must not wait for the event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Final

import numpy as np
import structlog

from media.audio_history import Cursor, Rows
from media.audio_port import (
    INFO_COLUMNS,
    INFO_ORIGIN_NS,
    INFO_POSITION,
    INFO_SENT,
    INFO_SLOT,
    INFO_TICK_NS,
    TICK_MS,
    UNREAD_MS,
    AudioPort,
    row_of,
)
from media.echo.echo_guard import EchoGuard
from media.engine.audio_fanout import AudioFanout, feed_taps
from media.engine.call_audio import AudioFailure, CallAudio, CallEventListener, Command, DtmfDetected
from media.engine.event_dispatch import EventDispatcher, Post
from media.engine.lost_audio import LostAudio
from media.engine.turn_execution import TurnExecution
from media.engine.unheard_rows import READ_MS, UnheardRows
from media.playout import Playout
from media.recording import Recording
from media.turn_taking.settings import TurnSettings
from media.turn_taking.turn_detector import TurnDetector
from media.vad.input_pipeline import RATES, InputPipeline
from media.vad.silero import SileroModel, silero_path

READ_CAPACITY: Final = UNREAD_MS * max(RATES) // 1000
"""Samples per row and read: all that the port keeps."""
REST_TICKS: Final = -(-READ_MS // TICK_MS)
"""Ticks of the pump for one of the engine while it rests,"""
IDLE_TICKS: Final = 1000 // TICK_MS
"""and without a call: those who watch that it runs look less often."""
_NO_SLOT: Final = -1
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AudioEngineStats:
    """Counters since the start. A tick's time excludes the wait before it."""

    calls: int
    ticks: int
    tick_seconds: float
    longest_tick_seconds: float
    windows_run: int
    windows_skipped: int
    lost_seconds: float
    """Audio that was dropped unread, of all calls."""


class AudioEngine:
    """The audio of all calls on one port. `post` runs a function on the event loop (`loop.call_soon_threadsafe`).

    `add` and `remove` may be called by any thread and take effect at the next tick. Remove a call before its slot is
    closed. An error in a call's code in the tick thread removes that call, with a last `AudioFailure` event; the other
    calls continue. Raises `StartupError` when the voice activity model is missing."""

    def __init__(self, port: AudioPort, post: Post, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        rows = port.rows
        self._port = port
        self._clock_ns = clock_ns
        self._rx_audio = np.zeros((rows, READ_CAPACITY), np.int16)
        self._tx_audio = np.zeros((rows, READ_CAPACITY), np.int16)
        self._counts = np.zeros(rows, np.int32)
        self._info = np.zeros((rows, INFO_COLUMNS), np.int64)
        self._unheard = UnheardRows(rows)
        self._lost = LostAudio(rows)
        self._input = InputPipeline(rows, SileroModel(silero_path()))
        self._echo_guard = EchoGuard(rows, self._input)
        self._fanout = AudioFanout(rows, self._input)
        self._by_slot: dict[int, CallAudio] = {}  # as seen by the callers of add and remove
        self._calls: dict[int, CallAudio] = {}  # by row, as seen by the tick thread
        self._monitored: dict[int, CallAudio] = {}  # those of them with a monitor or a tap
        self._slots = np.full(rows, _NO_SLOT, np.int64)  # the slot of the row's call
        self._commands: deque[tuple[CallAudio, Callable[[], None]]] = deque()
        self._dispatcher = EventDispatcher(post, self._on_listener_failure)
        self._turns = TurnExecution(
            self._calls, self._input, self._echo_guard, self._fanout, self._dispatcher, self._isolated
        )
        self._ticks = 0
        self._busy = self._longest = 0.0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="media-tick", daemon=True)

    def start(self) -> None:
        """Start the tick thread."""
        self._thread.start()

    def close(self) -> None:
        """End the tick thread and close the recordings of the remaining calls. Idempotent."""
        self._stopping.set()
        self._port.wake()
        if self._thread.is_alive():
            self._thread.join()
        if self._calls:
            self._commands.extend((call, partial(self._detach, call)) for call in self._calls.values())
            self._read()

    def now_ms(self) -> float:
        """The current time on the clock of every event's `at_ms`."""
        return self._clock_ns() / 1e6

    @property
    def stats(self) -> AudioEngineStats:
        """The counters. Any thread."""
        vad = self._input.vad
        return AudioEngineStats(
            len(self._by_slot),
            self._ticks,
            self._busy,
            self._longest,
            vad.windows_run,
            vad.windows_skipped,
            self._lost.seconds,
        )

    def add(
        self,
        slot: int,
        settings: TurnSettings,
        listener: CallEventListener,
        recording: Recording | None = None,
        ask_ahead_ms: float = 0.0,
    ) -> CallAudio:
        """Add a call; its end-of-turn model needs `ask_ahead_ms` for an answer. Raises `KeyError` for a slot that is
        not open and `ValueError` for a sample rate without a voice activity model. The engine closes the recording when
        the call is removed."""
        rate = self._port.rate(slot)
        if rate not in RATES:
            raise ValueError(f"voice activity detection needs 8000 or 16000 Hz, not {rate}")
        call = CallAudio(
            slot,
            rate,
            partial(_new_turn_detector, settings, ask_ahead_ms),
            Playout(self._port, slot),
            listener,
            recording,
            self._submit,
            self._submit_listening,
            self._submit_held,
        )
        self._by_slot[slot] = call
        self._enqueue(call, partial(self._attach, call))
        return call

    def remove(self, slot: int) -> None:
        """Remove a call: its playout is flushed at once, its recording is closed at the next tick. Idempotent."""
        call = self._by_slot.pop(slot, None)
        if call is not None:
            call.playout.close()
            self._enqueue(call, partial(self._detach, call))

    def tick(self) -> None:
        """One pass over all calls, on the tick thread (or a test that starts none)."""
        started = time.perf_counter()
        upper = self._read()
        if self._calls:
            self._process(upper)
        self._dispatcher.send()
        took = time.perf_counter() - started
        self._ticks += 1
        self._busy += took
        self._longest = max(self._longest, took)

    def _process(self, upper: int) -> None:
        """What was read of the rows below `upper`."""
        rows = np.flatnonzero(self._counts[:upper])
        pumped = self._info[rows, INFO_TICK_NS].max() if len(rows) else self._clock_ns()
        self._turns.now_ms = max(self._turns.now_ms, float(pumped) / 1e6)
        if len(rows):
            self._ingest(rows)
        self._feed_monitors()
        self._turns.hear()
        for key in self._input.take_dtmf_keys():
            if (call := self._calls.get(key.row)) is not None:
                self._dispatcher.put(call, DtmfDetected(key.at_ms, key.digit))
        self._turns.step(upper, self._info)
        self._record_due()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            ticks = self._ticks_to_wait()
            self._port.wait((ticks + 4) * TICK_MS, ticks)
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - one bad tick must not silence every call
                failures += 1
                if failures % 250 == 1:
                    _log.exception("media.tick_failed", failures=failures)

    def _ticks_to_wait(self) -> int:
        """More than 1 if nothing but recording is left to do until the next command or utterance."""
        if not self._calls:
            return IDLE_TICKS
        may_rest = not self._unheard.heard and all(call.playout.is_idle for call in self._calls.values())
        return REST_TICKS if may_rest else 1

    # Commands from other threads.

    def _enqueue(self, call: CallAudio, command: Callable[[], None]) -> None:
        self._commands.append((call, command))
        self._port.wake()

    def _submit(self, call: CallAudio, command: Command) -> None:
        self._enqueue(call, partial(self._run_command, call, command))

    def _read(self) -> int:
        """Read all calls, and run the commands that have come before: audio that was read for a slot that has changed
        hands since is discarded. If the read fails, the commands wait for the next one."""
        commands = [self._commands.popleft() for _ in range(len(self._commands))]
        for call, _ in commands:
            self._unheard.read_whole(call)
        try:
            upper = self._port.read(self._rx_audio, self._tx_audio, self._counts, self._info, self._unheard.least)
        except BaseException:
            self._commands.extendleft(reversed(commands))
            raise
        for call, _ in commands:
            self._isolated(call, partial(self._ingest_unheard, call))
        for call, command in commands:
            self._isolated(call, command)
        for call, _ in commands:
            self._on_commands_run(row_of(call.slot))
        self._counts[:upper] *= self._info[:upper, INFO_SLOT] == self._slots[:upper]
        return upper

    def _on_commands_run(self, row: int) -> None:
        call = self._calls.get(row)
        self._unheard.update(row, call)
        if call is not None and (call.monitor is not None or call.taps):
            self._monitored[row] = call
        else:
            self._monitored.pop(row, None)

    def _ingest_unheard(self, call: CallAudio) -> None:
        """What has come before a command is recorded, but not heard after it."""
        row = row_of(call.slot)
        is_of_call = self._calls.get(row) is call and int(self._info[row, INFO_SLOT]) == call.slot
        if row in self._unheard and is_of_call and self._counts[row]:
            self._ingest(np.array([row]))
            self._counts[row] = 0

    def _run_command(self, call: CallAudio, command: Command) -> None:
        if self._calls.get(row_of(call.slot)) is call:
            self._isolated(call, lambda: self._turns.apply(call, command(call)))

    def _submit_listening(self, call: CallAudio, on: bool, bridged: bool) -> None:
        self._enqueue(call, partial(self._set_listening, call, on, bridged))

    def _submit_held(self, call: CallAudio, on: bool) -> None:
        self._enqueue(call, partial(self._set_held, call, on))

    def _set_listening(self, call: CallAudio, on: bool, bridged: bool) -> None:
        call.shall_listen, call.bridged = on, bridged
        self._update_listening(call)

    def _set_held(self, call: CallAudio, on: bool) -> None:
        row = row_of(call.slot)
        if self._calls.get(row) is call and on and call.listening:
            self._isolated(call, partial(self._turns.end_speech, call, row))
        call.held = on
        self._update_listening(call)

    def _update_listening(self, call: CallAudio) -> None:
        row, on = row_of(call.slot), call.shall_listen and not call.held
        if self._calls.get(row) is not call or call.listening is on:
            return
        call.listening = on
        if on:
            self._input.history.skip_analysis(row)
            self._input.vad.open(row)
        elif (speech_sink := call.speech_sink) is not None and not call.held:  # else its words are being recognized
            self._isolated(call, speech_sink.reset)
        uninterruptible = call.turn_detector.is_uninterruptible
        call.turn_detector = call.new_turn_detector(call.bridged)
        if uninterruptible:  # what the agent was saying before a hold goes on after it
            call.turn_detector.set_uninterruptible(True)
        self._reset_row(call)
        self._turns.set_bridged(row, on and call.bridged)

    def _attach(self, call: CallAudio) -> None:
        row = row_of(call.slot)
        if row in self._calls:
            self._detach(self._calls[row])
        self._calls[row] = call
        count = int(self._counts[row])
        self._lost.begin(row, self._info, count)
        if call.recording is not None:
            position, origin_ns = int(self._info[row, INFO_POSITION]) + count, int(self._info[row, INFO_ORIGIN_NS])
            call.recording.begin((origin_ns or self._clock_ns()) / 1e6 + position * 1000 / call.rate)
        self._counts[row] = 0
        self._input.open(row, call.rate)
        self._turns.begin(row, call, int(self._info[row, INFO_SENT]))
        self._reset_row(call)

    def _detach(self, call: CallAudio) -> None:
        row = row_of(call.slot)
        if self._calls.get(row) is not call:
            return
        if call.recording is not None:
            self._isolated(call, partial(self._fanout.record, call, row))
        self._calls.pop(row, None)
        self._reset_row(call)
        self._close_recording(call)
        call.end_taps()

    def _reset_row(self, call: CallAudio) -> None:
        row = row_of(call.slot)
        self._turns.reset(row)
        self._echo_guard.reset(row)
        self._fanout.reset(row)
        self._slots[row] = self._calls[row].slot if row in self._calls else _NO_SLOT
        listening = (row for row, other in self._calls.items() if other.rate == call.rate and other.listening)
        self._input.set_rows(call.rate, sorted(listening))

    # The caller's audio.

    def _ingest(self, rows: Rows) -> None:
        counts = self._counts[rows].astype(np.int64)
        for row, samples in self._lost.follow(rows, self._info, counts, self._input.per_ms).items():
            self._isolated(self._calls[row], partial(self._fanout.skip, self._calls[row], row, samples))
        self._input.append(rows, counts, (self._rx_audio, self._tx_audio), self._info, self._record_before_compaction)

    def _feed_monitors(self) -> None:
        for row, call in list(self._monitored.items()):
            if self._calls.get(row) is call:
                self._isolated(call, partial(self._feed_monitor, call, row))

    def _feed_monitor(self, call: CallAudio, row: int) -> None:
        end, history = int(self._input.history.cursor[row, Cursor.END]), self._input.history
        start = end - int(self._counts[row])
        samples = history.original(row, start, end).copy()
        if call.taps and len(samples):
            feed_taps(call, samples, history.tx_audio[row, start:end].copy())
        if (monitor := call.monitor) is not None:
            monitor.on_tick(self._turns.now_ms, samples, float(self._input.arrival[row]))

    def _record_before_compaction(self, row: int) -> None:
        """Record what would be lost when the row is compacted: all, if not all of it is kept."""
        if (call := self._calls.get(row)) is None:
            return
        if not self._input.history.keeps_unrecorded(row):
            self._isolated(call, partial(self._fanout.record, call, row))
        if not call.listening:
            self._input.history.skip_analysis(row)

    def _record_due(self) -> None:
        """Record the pieces that are due, of some calls at each tick."""
        for row in self._fanout.recordings_due().tolist():
            call = self._calls.get(row)
            if call is not None:
                self._isolated(call, partial(self._fanout.record, call, row))

    # Errors.

    def _isolated(self, call: CallAudio, work: Callable[[], None]) -> None:
        """Run a call's work; an error removes this call alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a fault of a sink or a recording ends its own call
            self._fail_call(call, error)

    def _on_listener_failure(self, call: CallAudio, error: Exception) -> None:
        self._enqueue(call, partial(self._fail_call, call, error))

    def _fail_call(self, call: CallAudio, error: Exception) -> None:
        _log.error("media.call_broken", slot=call.slot, error=repr(error), exc_info=error)
        row = row_of(call.slot)
        if self._calls.get(row) is not call:  # it has been removed, and the slot may be another call's
            return
        del self._calls[row]
        self._unheard.update(row, None)
        self._reset_row(call)
        self._dispatcher.put(call, AudioFailure(self._turns.now_ms, error))
        self._close_recording(call)
        call.end_taps()

    def _close_recording(self, call: CallAudio) -> None:
        recording, call.recording = call.recording, None
        if recording is not None:
            self._isolated(call, recording.close)  # the call is removed: an error is logged only


def _new_turn_detector(settings: TurnSettings, ask_ahead_ms: float, bridged: bool) -> TurnDetector:
    if bridged:
        return TurnDetector(settings.of_connected_parties())
    return TurnDetector(settings, TICK_MS, ask_ahead_ms)
