"""Echo guard: keeps the agent's own voice, which comes back from a loudspeaker or the network, from taking turns.

A call costs nothing while the agent is silent, or while nothing comes back that sounds like speech. A window that does
is correlated with what was sent a moment ago (`media.echo.delay_estimator`) before turn detection gets it. If it is an
echo, a filter adapts to it (`media.echo.canceller`); from then on voice activity detection, levels, speech recognition
and the end-of-turn model of this call get the sound without it. Until then, and where the filter is not good enough, a
window of echo holds no speech.

All calls share one thread: neither correlation nor adaptation may take more than a set share of a tick, however many
calls have an echo. Windows that cannot be correlated now are held; filters adapt one after the other
(`media.echo.adaptation_queue`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from config.errors import StartupError
from media.audio_history import Cursor
from media.echo.adaptation_queue import FRAME_US, AdaptationQueue
from media.echo.canceller import EchoCanceller
from media.echo.delay_estimator import LOOK_MS, MOST_MS, EchoCorrelation, correlate, correlate_near
from media.echo.speex import TAIL_MS, AdaptiveFilter, SpeexLibrary
from media.turns.state import TurnState
from media.vad.input_pipeline import InputPipeline, VadWindow
from media.vad.silero import WINDOW_MS

REACH_MS: Final = 700.0
"""After the agent has fallen silent its echo may come for so long where the line is not known yet."""
ECHO: Final = 0.45
"""Correlation from which on a window is an echo,"""
CALLER: Final = ((112.0, 0.33), (80.0, 0.28), (48.0, 0.20))
"""and under which it is not: (sound so far in ms, correlation). A short sound tells less."""
EITHER: Final = 0.35
"""What could not be told within `HOLD_WINDOWS` is an echo from this mean correlation on."""
HOLD_WINDOWS: Final = 4
SHARE_US: Final = 7000
"""What all filters and comparisons may take of a tick, microseconds, counted by what a piece of work takes: so the same
sound always takes the same ticks. Who comes too late to be compared waits for the next tick, in the order of coming, as
long as windows may be held; then it counts as speech, unless the echo of its line is known and being learned."""
LEAST_SHARE_US: Final = 4000
"""What of it is left to learning and comparisons, however many filters run."""
ADAPT_US: Final = 4000
"""What learning may take,"""
ADAPT_BEHIND_US: Final = 1000
"""and while windows wait to be compared."""
CORRELATE_US: Final = 700
CORRELATE_NEAR_US: Final = 250
SAME_LAG_MS: Final = 3.0
"""Two windows that are alike by chance are so at different delays."""
MOVED_MS: Final = 10.0
"""The delay has changed when it is found so far from where the filter begins to look, or behind its end."""
CONFIRM_WINDOWS: Final = 2
"""On a line with an echo the caller is believed in so many windows."""
PAUSE_WINDOWS: Final = 3
"""After so many windows without speech, what comes while the agent is audible is looked at anew."""
_CALLERS_TURN: Final = frozenset({TurnState.SPEECH, TurnState.SILENCE})
_log = structlog.get_logger()


@dataclass(slots=True)
class _RowState:
    """Sound of a row that came while an echo was possible."""

    held: list[VadWindow] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    lag_ms: float = -1e9  # of the last look
    caller: bool = False  # it is the caller who speaks
    pause: int = 0  # windows without speech
    beyond_filter: int = 0  # looks that found an echo where the filter does not reach
    turn_state: TurnState = TurnState.IDLE  # of turn taking, at the last window


class EchoGuard:
    """The echo detection and cancellation of all rows."""

    def __init__(self, rows: int, sound: InputPipeline, load: Callable[[], SpeexLibrary] = SpeexLibrary) -> None:
        """Without the library (`load` raises `StartupError`) windows are compared, and nothing is taken out."""
        self._sound = sound
        self.holding = np.zeros(rows, np.bool_)
        """Rows of which windows are held: whatever comes is to be judged here."""
        self._until = np.full(rows, -np.inf)
        self._now = 0.0
        self._cancellers: dict[int, EchoCanceller] = {}
        self._adaptation = AdaptationQueue(sound.history, sound.per_ms)
        self._rows: dict[int, _RowState] = {}
        self._left_us = SHARE_US  # of this tick
        self._running_us = 0  # what the filters that run took of the last tick
        self._waiting: dict[int, None] = {}  # rows with held windows that were not compared, in order
        self._create_filter: Callable[[int], AdaptiveFilter] | None = None
        try:
            self._create_filter = load().create_filter
        except StartupError as error:
            _log.error("echo.library_missing", error=str(error))

    def reset(self, row: int) -> None:
        """A call begins or ends in a row."""
        self._until[row] = -np.inf
        self.holding[row] = False
        self._rows.pop(row, None)
        self._waiting.pop(row, None)
        self._drop(row)

    def process(self, now_ms: float, audible: NDArray[np.bool_]) -> None:
        """Once a tick, when all sound has come. Take note of the rows in which the agent is audible; go on learning;
        take the echo out of what came from lines whose filter is ready, while it may come."""
        self._now = now_ms
        self._until[audible] = now_ms + REACH_MS
        self._adapt()
        cursor = self._sound.history.cursor
        waiting = [
            (row, canceller) for row, canceller in self._cancellers.items() if now_ms < self._end(row, canceller)
        ]
        self._running_us = sum(FRAME_US[round(self._sound.per_ms[row] * 1000)] for row, _ in waiting)
        before = [int(cursor[row, Cursor.READY]) for row, _ in waiting]
        self._sound.mark_all_ready()
        for (row, canceller), ready in zip(waiting, before, strict=True):
            cursor[row, Cursor.READY] = ready
            self._cancel(row, canceller)

    def is_echo_possible(self, row: int, now_ms: float) -> bool:
        """True if an echo of the agent may be in what comes now."""
        return bool(now_ms < self._until[row])

    def filter_window(self, row: int, window: VadWindow, speech: bool, turn_state: TurnState) -> Sequence[VadWindow]:
        """The windows that turn taking is to hear of now, in order: none while it cannot be told yet whose voice this
        is, all that were held when it can; those of an echo have no probability. `speech` says that the window has the
        probability of speech. While the caller has the turn (`turn_state`), nothing is held."""
        row_state = self._rows.setdefault(row, _RowState())
        row_state.turn_state = turn_state
        windows = self._filtered(row, row_state, window, speech)
        self.holding[row] = bool(row_state.held)
        return windows

    def held_due(self) -> Iterator[int]:
        """At the end of a tick: the rows whose windows are to be correlated now, or which can be held no longer.
        `release` each before taking the next."""
        for row in list(self._waiting):
            if self._left_us > 0 or len(self._rows[row].held) >= HOLD_WINDOWS:
                yield row

    def release(self, row: int) -> Sequence[VadWindow]:
        """Release the windows of a row of `held_due`, as `filter_window` returns them."""
        del self._waiting[row]
        row_state = self._rows[row]
        window = row_state.held.pop()
        windows = (
            self._compared(row, row_state, window) if self._left_us > 0 else self._uncompared(row, row_state, window)
        )
        self.holding[row] = bool(row_state.held)
        return windows

    def _filtered(self, row: int, row_state: _RowState, window: VadWindow, speech: bool) -> Sequence[VadWindow]:
        turn_state = row_state.turn_state
        if turn_state is TurnState.IDLE:
            row_state.caller = False  # whoever spoke last has ended
        if self._explained(row, surely=row_state.caller or turn_state in _CALLERS_TURN):
            return self._flush(row, row_state, window, echo=True)
        if not speech:
            return self._silent(row, row_state, window)
        row_state.pause = 0
        if row_state.caller:
            return (window,)
        if row not in self._waiting and self._left_us > CORRELATE_US * len(self._waiting):
            return self._compared(row, row_state, window)
        if turn_state in _CALLERS_TURN:
            return self._uncompared(row, row_state, window)
        self._waiting[row] = None
        row_state.held.append(window)
        return ()

    def _compared(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        found = self._correlate(row)
        row_state.correlations.append(found.correlation)
        echo = self._verdict(row_state, found, window)
        if echo is False and row in self._cancellers and len(row_state.correlations) < CONFIRM_WINDOWS:
            echo = None
        row_state.lag_ms = found.lag_ms
        if echo is None and row_state.turn_state not in _CALLERS_TURN:
            row_state.held.append(window)
            return ()
        if echo:
            self._on_echo(row, row_state, found)
        else:
            row_state.caller = echo is False
        return self._flush(row, row_state, window, echo=bool(echo))

    def _uncompared(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        """There was no time to look any closer. A line whose echo was found and that still learns more likely has that
        again than a caller."""
        echo = (
            _mean(row_state.correlations) >= EITHER
            if row_state.correlations
            else self._adaptation.lag_ms(row) is not None
        )
        return self._flush(row, row_state, window, echo=echo)

    def _end(self, row: int, canceller: EchoCanceller) -> float:
        return float(self._until[row]) - REACH_MS + canceller.lag_ms + TAIL_MS

    def _explained(self, row: int, *, surely: bool) -> bool:
        """The filter has taken out what came in of late, or left nothing in the last judged window that sounds. Of a
        caller who is known to speak nothing is taken away unless it is `surely` an echo."""
        canceller = self._cancellers.get(row)
        if canceller is None or self._now >= self._end(row, canceller):
            return False
        end, per_ms = int(self._sound.history.cursor[row, Cursor.VAD]), int(self._sound.per_ms[row])
        if surely:
            return canceller.removed_all(end, per_ms)
        return self._sound.is_below_gate(row, WINDOW_MS) or canceller.explains(end, per_ms)

    def _correlate(self, row: int) -> EchoCorrelation:
        history, per_ms = self._sound.history, int(self._sound.per_ms[row])
        end = int(history.cursor[row, Cursor.VAD])
        rx_audio = history.rx_audio[row, end - LOOK_MS * per_ms : end]
        tx_audio = history.tx_audio[row, max(end - (MOST_MS + LOOK_MS) * per_ms, 0) : end]
        noise, lag_ms = self._sound.levels.noise_power(row), self._adaptation.lag_ms(row)
        if lag_ms is not None:
            self._left_us -= CORRELATE_NEAR_US
            near = correlate_near(lag_ms, tx_audio, rx_audio, per_ms * 1000, noise)
            if near.correlation >= ECHO:
                return near
        self._left_us -= CORRELATE_US
        return correlate(tx_audio, rx_audio, per_ms * 1000, noise)

    def _verdict(self, row_state: _RowState, found: EchoCorrelation, window: VadWindow) -> bool | None:
        """True if it is an echo; None while that cannot be told."""
        again = abs(found.lag_ms - row_state.lag_ms) <= SAME_LAG_MS
        if found.correlation >= ECHO or (again and found.correlation >= EITHER):
            return True
        limit = next((least for ms, least in CALLER if window.onset_ms >= ms), 0.0)
        if found.correlation <= limit:
            return False
        if len(row_state.held) + 1 < HOLD_WINDOWS:
            return None
        return _mean(row_state.correlations) >= EITHER

    def _silent(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        row_state.pause += 1
        if row_state.pause >= PAUSE_WINDOWS and row_state.turn_state not in _CALLERS_TURN:
            row_state.caller = False
        if not row_state.held:
            return (window,)
        if row_state.pause < PAUSE_WINDOWS or row in self._waiting:
            row_state.held.append(window)
            return ()
        return self._flush(row, row_state, window, echo=True)

    def _flush(self, row: int, row_state: _RowState, window: VadWindow, *, echo: bool) -> Sequence[VadWindow]:
        self._waiting.pop(row, None)
        windows = [*row_state.held, window]
        row_state.held.clear()
        row_state.correlations.clear()
        return [replace(each, p=0.0) for each in windows] if echo else windows

    def _on_echo(self, row: int, row_state: _RowState, found: EchoCorrelation) -> None:
        canceller = self._cancellers.get(row)
        lag_ms = canceller.lag_ms if canceller is not None else self._adaptation.lag_ms(row)
        if lag_ms is not None and lag_ms - MOVED_MS <= found.lag_ms <= lag_ms + TAIL_MS:
            row_state.beyond_filter = 0
            return
        row_state.beyond_filter += 1
        if lag_ms is not None and row_state.beyond_filter < 2:
            return
        row_state.beyond_filter = 0
        self._drop(row)
        if self._create_filter is not None:
            self._adaptation.add(row, found.lag_ms)

    def _adapt(self) -> None:
        self._left_us = max(SHARE_US - self._running_us, LEAST_SHARE_US)
        if self._create_filter is None:
            return
        most_us = ADAPT_BEHIND_US if self._waiting else min(ADAPT_US, self._left_us // 2)
        try:
            for row, canceller in self._adaptation.adapt(self._create_filter, most_us):
                self._cancellers[row] = canceller
                _log.info("echo.found", row=row, lag_ms=round(canceller.lag_ms))
        except Exception as error:  # noqa: BLE001 - without the filter the call goes on
            self._give_up(error)
        self._left_us -= self._adaptation.spent_us

    def _cancel(self, row: int, canceller: EchoCanceller) -> None:
        try:
            canceller.process()
        except Exception as error:  # noqa: BLE001 - without the filter the call goes on
            self._give_up(error)
        else:
            if canceller.ineffective:
                _log.info("echo.none", row=row, lag_ms=round(canceller.lag_ms))
                self._drop(row)

    def _give_up(self, error: Exception) -> None:
        """The library is at fault: no line is cleaned from now on."""
        _log.error("echo.library_failed", error=repr(error), exc_info=error)
        self._create_filter = None
        for row in [*self._cancellers, *self._adaptation.rows]:
            self._drop(row)

    def _drop(self, row: int) -> None:
        self._adaptation.remove(row)
        canceller = self._cancellers.pop(row, None)
        if canceller is not None:
            canceller.close()
            cursor = self._sound.history.cursor
            cursor[row, Cursor.READY] = cursor[row, Cursor.END]


def _mean(correlations: Sequence[float]) -> float:
    return sum(correlations) / len(correlations) if correlations else 0.0
