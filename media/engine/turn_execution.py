"""The execution of turn detection: steps the turn detectors of the calls that are not idle, and does on the audio side
what their events require."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import get_ident

import numpy as np
from numpy.typing import NDArray

from media.audio_history import Rows
from media.audio_port import INFO_QUEUED, INFO_SENT, row_of
from media.echo.echo_guard import EchoGuard
from media.engine.audio_fanout import AudioFanout
from media.engine.call_audio import CallAudio, UtterancePlayed
from media.engine.event_dispatch import EventDispatcher
from media.turn_taking.events import (
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.vad.input_pipeline import InputPipeline, VadWindow
from media.vad.silero import WINDOW_MS, Probabilities


class TurnExecution:
    """The turns of all rows, on the tick thread. `calls`, by row, is the engine's; `isolated` runs work of a call so
    that an error ends that call alone."""

    def __init__(
        self,
        calls: Mapping[int, CallAudio],
        input_pipeline: InputPipeline,
        echo_guard: EchoGuard,
        fanout: AudioFanout,
        dispatcher: EventDispatcher,
        isolated: Callable[[CallAudio, Callable[[], None]], None],
    ) -> None:
        rows = len(input_pipeline.arrival)
        self.now_ms = 0.0
        """The present of the tick, on the clock of `at_ms`."""
        self._calls = calls
        self._input = input_pipeline
        self._echo_guard = echo_guard
        self._fanout = fanout
        self._dispatcher = dispatcher
        self._isolated = isolated
        self._activation = np.ones(rows, np.float32)
        self._open = np.zeros(rows, np.bool_)  # turn detection of the row is not idle
        self._caller_speaking = np.zeros(rows, np.bool_)
        self._audible = np.zeros(rows, np.bool_)  # the agent was audible at the last tick
        self._bridged = np.zeros(rows, np.bool_)  # the sent audio is the voice of another party
        self._sent_positions = np.zeros(rows, np.int64)

    def begin(self, row: int, call: CallAudio, sent: int) -> None:
        """Begin a call in a row; `sent`: the port's played-samples clock."""
        self._activation[row] = call.turn_detector.activation
        self._sent_positions[row] = sent

    def reset(self, row: int) -> None:
        """Begin or end a call in a row, or its turn detection: no turn is open."""
        for flags in (self._open, self._caller_speaking, self._audible, self._bridged):
            flags[row] = False

    def set_bridged(self, row: int, on: bool) -> None:
        """The sent audio is the voice of another party."""
        self._bridged[row] = on

    def hear(self) -> None:
        """Detect speech in all that has arrived."""
        self._echo_guard.process(self.now_ms, self._audible | self._bridged)
        for rows, p in self._input.judged_windows(self._caller_speaking):
            self._on_vad_windows(rows, p)
        for row in self._echo_guard.rows_due():
            if (call := self._calls.get(row)) is not None:
                self._isolated(call, partial(self._feed_held_windows, call, row))

    def end_speech(self, call: CallAudio, row: int) -> None:
        """End the caller's turn, and with it what the agent was saying at this moment."""
        self._fanout.feed(call, row)
        self.apply(call, call.turn_detector.stop(self.now_ms))
        if self._audible[row]:
            self._dispatcher.put(call, AgentStopped(self.now_ms))

    def _on_vad_windows(self, rows: Rows, p: Probabilities) -> None:
        speech = p >= self._activation[rows]
        for i in np.flatnonzero(speech | self._open[rows] | self._echo_guard.holding[rows]).tolist():
            row = int(rows[i])
            call = self._calls.get(row)
            if call is not None:
                self._isolated(call, partial(self._on_vad_window, call, row, self._input.last_window(row, float(p[i]))))

    def _on_vad_window(self, call: CallAudio, row: int, window: VadWindow) -> None:
        windows: Sequence[VadWindow] = (window,)
        if self._echo_guard.is_echo_possible(row, self.now_ms) or self._echo_guard.holding[row]:
            speech = window.p >= float(self._activation[row])
            windows = self._echo_guard.filter_window(row, window, speech, call.turn_detector.state)
        self._feed_turn_detector(call, row, windows)

    def _feed_held_windows(self, call: CallAudio, row: int) -> None:
        self._feed_turn_detector(call, row, self._echo_guard.release_held(row))

    def _feed_turn_detector(self, call: CallAudio, row: int, windows: Sequence[VadWindow]) -> None:
        audible = bool(self._audible[row])
        for each in windows:
            frame = call.turn_detector.on_vad_window(
                each.at_ms, each.p, WINDOW_MS, audible, each.quiet_ms, each.onset_ms, each.loud
            )
            self.apply(call, frame)

    def step(self, upper: int, info: NDArray[np.int64]) -> None:
        """One tick of the rows below `upper`."""
        queued, sent = info[:upper, INFO_QUEUED], info[:upper, INFO_SENT]
        sending = (queued > 0) | (sent != self._sent_positions[:upper])
        self._sent_positions[:upper] = sent
        for row in np.flatnonzero(sending | self._audible[:upper] | self._open[:upper]).tolist():
            call = self._calls.get(row)
            if call is not None:
                self._isolated(call, partial(self._step_call, call, row, bool(sending[row]), int(sent[row])))

    def _step_call(self, call: CallAudio, row: int, sending: bool, sent: int) -> None:
        for utterance in call.playout.advance(sent, self.now_ms):
            self._dispatcher.put(call, UtterancePlayed(self.now_ms, utterance))
        if not call.listening:
            return
        self._fanout.feed(call, row)
        audible = sending or call.playout.more_expected
        if self._open[row] or audible != self._audible[row]:
            self._audible[row] = audible
            arrived_ms, quiet_ms = self._input.measured_ms(row), float(self._input.levels.quiet_ms[row])
            self.apply(call, call.turn_detector.on_tick(self.now_ms, audible, arrived_ms, quiet_ms))

    def apply(self, call: CallAudio, events: Sequence[TurnEvent]) -> None:
        """Execute on the audio side what the events require, and dispatch them to the conversation."""
        row = row_of(call.slot)
        for event in events:
            match event:
                case PlayoutPaused():
                    call.playout.pause(True)
                case PlayoutResumed():
                    call.playout.pause(False)
                case BargeIn():
                    call.playout.block()
                case SpeechStarted():
                    self._fanout.begin_turn(row, event.speech_start_ms)
                case TurnEnded() | TurnDropped():
                    self._fanout.end_turn(call, row, dropped=isinstance(event, TurnDropped))
                case _:
                    pass
            if isinstance(event, AskEndOfTurn):
                self._ask_end_of_turn(call, event.at_ms)
            else:
                self._dispatcher.put(call, event)
        self._open[row] = not call.turn_detector.idle
        self._caller_speaking[row] = call.turn_detector.caller_speaking

    def _ask_end_of_turn(self, call: CallAudio, asked_ms: float) -> None:
        """Query the end-of-turn model: an answer on this thread before `ask` returns counts at once; any other at the
        next tick."""
        here, asking, at_once = get_ident(), True, list[float | None]()

        def answer(p: float | None) -> None:
            if asking and get_ident() == here:
                at_once.append(p)
            else:
                call.on_end_of_turn(asked_ms, p)

        if (end_of_turn_sink := call.end_of_turn_sink) is None:
            answer(None)
        else:
            end_of_turn_sink.ask(answer)
        asking = False
        for p in at_once:
            self.apply(call, call.turn_detector.on_end_of_turn(self.now_ms, p, asked_ms))
