"""Echo guard: keeps the agent's own voice, returned by a loudspeaker or the network, from taking turns.

A call costs nothing while the agent is silent, or while nothing comes back that sounds like speech. A window that does
is correlated with the audio sent a moment ago (`media.echo.delay_estimator`) before turn detection gets it. If it is an
echo, a filter adapts to it (`media.echo.canceller`); from then on voice activity detection, levels, speech recognition
and the end-of-turn model of this call get the audio without the echo. Until then, and where the filter is not good
enough, a window of echo counts as one without speech.

All calls share one thread: neither correlation nor adaptation may exceed a budget per tick, however many calls have an
echo. Windows that cannot be correlated now are held; filters adapt one after the other
(`media.echo.adaptation_queue`)."""

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
from media.echo.delay_estimator import CORRELATION_MS, MAX_DELAY_MS, EchoCorrelation, correlate, correlate_near
from media.echo.speex import TAIL_MS, AdaptiveFilter, SpeexLibrary
from media.turn_taking.state import TurnState
from media.vad.input_pipeline import InputPipeline, VadWindow
from media.vad.silero import WINDOW_MS

MAX_ECHO_MS: Final = 700.0
"""Time after the end of the agent's speech in which its echo may arrive while the delay is not known yet."""
ECHO_CORRELATION: Final = 0.45
"""Correlation from which on a window is an echo,"""
CALLER_CORRELATIONS: Final = ((112.0, 0.33), (80.0, 0.28), (48.0, 0.20))
"""and below which it is the caller: (sound so far in ms, correlation). A short sound is less certain."""
UNDECIDED_CORRELATION: Final = 0.35
"""Mean correlation from which on a window that stays undecided for `MAX_HELD_WINDOWS` is an echo."""
MAX_HELD_WINDOWS: Final = 4
BUDGET_US: Final = 7000
"""Budget of all filters and correlations in a tick, microseconds, by the known costs of the work: the same audio always
takes the same ticks. A window beyond the budget waits for the next tick, in order of arrival, as long as windows may be
held; then it counts as speech, unless a filter already adapts to a known echo of its call."""
MIN_BUDGET_US: Final = 4000
"""Minimum budget of adaptation and correlations, however many filters run."""
ADAPT_BUDGET_US: Final = 4000
"""Budget of adaptation,"""
ADAPT_WAITING_BUDGET_US: Final = 1000
"""and while windows wait to be correlated."""
CORRELATE_US: Final = 700
CORRELATE_NEAR_US: Final = 250
SAME_LAG_MS: Final = 3.0
"""Windows that correlate by chance do so at different delays."""
LAG_CHANGE_MS: Final = 10.0
"""The delay has changed when an echo is found so far before the beginning of the filter, or after its end."""
CONFIRM_WINDOWS: Final = 2
"""Windows that confirm a caller in a call with an echo."""
SILENT_WINDOWS: Final = 3
"""Windows without speech after which sound over the agent is correlated anew."""
_CALLERS_TURN: Final = frozenset({TurnState.SPEECH, TurnState.SILENCE})
_log = structlog.get_logger()


@dataclass(slots=True)
class _RowState:
    """State of a row while an echo is possible."""

    held: list[VadWindow] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    lag_ms: float = -1e9  # of the last correlation
    caller_speaking: bool = False
    windows_without_speech: int = 0
    beyond_filter: int = 0  # correlations with an echo outside of the filter's range
    turn_state: TurnState = TurnState.IDLE  # at the last window


class EchoGuard:
    """Echo detection and cancellation of all rows."""

    def __init__(
        self, rows: int, input_pipeline: InputPipeline, load: Callable[[], SpeexLibrary] = SpeexLibrary
    ) -> None:
        """Without the library (`load` raises `StartupError`) windows are correlated, and no echo is cancelled."""
        self._input = input_pipeline
        self.holding = np.zeros(rows, np.bool_)
        """Rows with held windows: their further windows have to pass here."""
        self._echo_until = np.full(rows, -np.inf)
        self._now = 0.0
        self._cancellers: dict[int, EchoCanceller] = {}
        self._adaptation = AdaptationQueue(input_pipeline.history, input_pipeline.per_ms)
        self._rows: dict[int, _RowState] = {}
        self._budget_us = BUDGET_US  # left in this tick
        self._running_us = 0  # cost of the running filters in the last tick
        self._waiting: dict[int, None] = {}  # rows with held windows that were not correlated, in order
        self._create_filter: Callable[[int], AdaptiveFilter] | None = None
        try:
            self._create_filter = load().create_filter
        except StartupError as error:
            _log.error("echo.library_missing", error=str(error))

    def reset(self, row: int) -> None:
        """Begin or end a call in a row."""
        self._echo_until[row] = -np.inf
        self.holding[row] = False
        self._rows.pop(row, None)
        self._waiting.pop(row, None)
        self._drop_filter(row)

    def process(self, now_ms: float, audible: NDArray[np.bool_]) -> None:
        """Once a tick, after all audio was appended: note the rows in which the agent is audible, continue the
        adaptation, and cancel the echo where a filter is ready and an echo may arrive."""
        self._now = now_ms
        self._echo_until[audible] = now_ms + MAX_ECHO_MS
        self._adapt()
        cursor = self._input.history.cursor
        waiting = [
            (row, canceller) for row, canceller in self._cancellers.items() if now_ms < self._echo_end(row, canceller)
        ]
        self._running_us = sum(FRAME_US[round(self._input.per_ms[row] * 1000)] for row, _ in waiting)
        before = [int(cursor[row, Cursor.READY]) for row, _ in waiting]
        self._input.mark_all_ready()
        for (row, canceller), ready in zip(waiting, before, strict=True):
            cursor[row, Cursor.READY] = ready
            self._cancel(row, canceller)

    def is_echo_possible(self, row: int, now_ms: float) -> bool:
        """True if the audio that arrives now may contain an echo of the agent."""
        return bool(now_ms < self._echo_until[row])

    def filter_window(self, row: int, window: VadWindow, speech: bool, turn_state: TurnState) -> Sequence[VadWindow]:
        """The windows that turn detection gets now, in order: none while the voice is undecided, all that were held
        once it is decided; those of an echo have probability 0. `speech`: the window has the probability of speech.
        While the caller has the turn (`turn_state`), no window is held."""
        row_state = self._rows.setdefault(row, _RowState())
        row_state.turn_state = turn_state
        windows = self._decide(row, row_state, window, speech)
        self.holding[row] = bool(row_state.held)
        return windows

    def rows_due(self) -> Iterator[int]:
        """At the end of a tick: the rows whose windows are to be correlated now, or cannot be held any longer.
        `release_held` each before taking the next."""
        for row in list(self._waiting):
            if self._budget_us > 0 or len(self._rows[row].held) >= MAX_HELD_WINDOWS:
                yield row

    def release_held(self, row: int) -> Sequence[VadWindow]:
        """Release the windows of a row of `rows_due`, as `filter_window` returns them."""
        del self._waiting[row]
        row_state = self._rows[row]
        window = row_state.held.pop()
        windows = (
            self._decide_by_correlation(row, row_state, window)
            if self._budget_us > 0
            else self._decide_uncorrelated(row, row_state, window)
        )
        self.holding[row] = bool(row_state.held)
        return windows

    def _decide(self, row: int, row_state: _RowState, window: VadWindow, speech: bool) -> Sequence[VadWindow]:
        turn_state = row_state.turn_state
        if turn_state is TurnState.IDLE:
            row_state.caller_speaking = False  # the last speech has ended
        if self._is_pure_echo(row, surely=row_state.caller_speaking or turn_state in _CALLERS_TURN):
            return self._flush(row, row_state, window, echo=True)
        if not speech:
            return self._on_silent_window(row, row_state, window)
        row_state.windows_without_speech = 0
        if row_state.caller_speaking:
            return (window,)
        if row not in self._waiting and self._budget_us > CORRELATE_US * len(self._waiting):
            return self._decide_by_correlation(row, row_state, window)
        if turn_state in _CALLERS_TURN:
            return self._decide_uncorrelated(row, row_state, window)
        self._waiting[row] = None
        row_state.held.append(window)
        return ()

    def _decide_by_correlation(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        match = self._correlate(row)
        row_state.correlations.append(match.correlation)
        echo = self._verdict(row_state, match, window)
        if echo is False and row in self._cancellers and len(row_state.correlations) < CONFIRM_WINDOWS:
            echo = None
        row_state.lag_ms = match.lag_ms
        if echo is None and row_state.turn_state not in _CALLERS_TURN:
            row_state.held.append(window)
            return ()
        if echo:
            self._on_echo(row, row_state, match)
        else:
            row_state.caller_speaking = echo is False
        return self._flush(row, row_state, window, echo=bool(echo))

    def _decide_uncorrelated(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        """Decide without a correlation, for which no budget was left. In a call whose filter is adapting, an echo is
        more likely than a caller."""
        echo = (
            _mean(row_state.correlations) >= UNDECIDED_CORRELATION
            if row_state.correlations
            else self._adaptation.lag_ms(row) is not None
        )
        return self._flush(row, row_state, window, echo=echo)

    def _echo_end(self, row: int, canceller: EchoCanceller) -> float:
        return float(self._echo_until[row]) - MAX_ECHO_MS + canceller.lag_ms + TAIL_MS

    def _is_pure_echo(self, row: int, *, surely: bool) -> bool:
        """True if the filter has removed the recent audio, or left no sound in the last judged window. `surely`: only
        if it has removed nearly all, so that nothing of a caller who is known to speak is lost."""
        canceller = self._cancellers.get(row)
        if canceller is None or self._now >= self._echo_end(row, canceller):
            return False
        end, per_ms = int(self._input.history.cursor[row, Cursor.VAD]), int(self._input.per_ms[row])
        if surely:
            return canceller.is_pure_echo(end, per_ms)
        return self._input.is_below_gate(row, WINDOW_MS) or canceller.may_be_pure_echo(end, per_ms)

    def _correlate(self, row: int) -> EchoCorrelation:
        history, per_ms = self._input.history, int(self._input.per_ms[row])
        end = int(history.cursor[row, Cursor.VAD])
        rx_audio = history.rx_audio[row, end - CORRELATION_MS * per_ms : end]
        tx_audio = history.tx_audio[row, max(end - (MAX_DELAY_MS + CORRELATION_MS) * per_ms, 0) : end]
        noise, lag_ms = self._input.levels.noise_power(row), self._adaptation.lag_ms(row)
        if lag_ms is not None:
            self._budget_us -= CORRELATE_NEAR_US
            near = correlate_near(lag_ms, tx_audio, rx_audio, per_ms * 1000, noise)
            if near.correlation >= ECHO_CORRELATION:
                return near
        self._budget_us -= CORRELATE_US
        return correlate(tx_audio, rx_audio, per_ms * 1000, noise)

    def _verdict(self, row_state: _RowState, match: EchoCorrelation, window: VadWindow) -> bool | None:
        """True for an echo, False for the caller, None while undecided."""
        again = abs(match.lag_ms - row_state.lag_ms) <= SAME_LAG_MS
        if match.correlation >= ECHO_CORRELATION or (again and match.correlation >= UNDECIDED_CORRELATION):
            return True
        limit = next((highest for ms, highest in CALLER_CORRELATIONS if window.onset_ms >= ms), 0.0)
        if match.correlation <= limit:
            return False
        if len(row_state.held) + 1 < MAX_HELD_WINDOWS:
            return None
        return _mean(row_state.correlations) >= UNDECIDED_CORRELATION

    def _on_silent_window(self, row: int, row_state: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        row_state.windows_without_speech += 1
        if row_state.windows_without_speech >= SILENT_WINDOWS and row_state.turn_state not in _CALLERS_TURN:
            row_state.caller_speaking = False
        if not row_state.held:
            return (window,)
        if row_state.windows_without_speech < SILENT_WINDOWS or row in self._waiting:
            row_state.held.append(window)
            return ()
        return self._flush(row, row_state, window, echo=True)

    def _flush(self, row: int, row_state: _RowState, window: VadWindow, *, echo: bool) -> Sequence[VadWindow]:
        self._waiting.pop(row, None)
        windows = [*row_state.held, window]
        row_state.held.clear()
        row_state.correlations.clear()
        return [replace(each, p=0.0) for each in windows] if echo else windows

    def _on_echo(self, row: int, row_state: _RowState, match: EchoCorrelation) -> None:
        canceller = self._cancellers.get(row)
        lag_ms = canceller.lag_ms if canceller is not None else self._adaptation.lag_ms(row)
        if lag_ms is not None and lag_ms - LAG_CHANGE_MS <= match.lag_ms <= lag_ms + TAIL_MS:
            row_state.beyond_filter = 0
            return
        row_state.beyond_filter += 1
        if lag_ms is not None and row_state.beyond_filter < 2:
            return
        row_state.beyond_filter = 0
        self._drop_filter(row)
        if self._create_filter is not None:
            self._adaptation.add(row, match.lag_ms)

    def _adapt(self) -> None:
        self._budget_us = max(BUDGET_US - self._running_us, MIN_BUDGET_US)
        if self._create_filter is None:
            return
        budget_us = ADAPT_WAITING_BUDGET_US if self._waiting else min(ADAPT_BUDGET_US, self._budget_us // 2)
        try:
            for row, canceller in self._adaptation.adapt(self._create_filter, budget_us):
                self._cancellers[row] = canceller
                _log.info("echo.found", row=row, lag_ms=round(canceller.lag_ms))
        except Exception as error:  # noqa: BLE001 - the call continues without the filter
            self._disable_cancellation(error)
        self._budget_us -= self._adaptation.spent_us

    def _cancel(self, row: int, canceller: EchoCanceller) -> None:
        try:
            canceller.process()
        except Exception as error:  # noqa: BLE001 - the call continues without the filter
            self._disable_cancellation(error)
        else:
            if canceller.ineffective:
                _log.info("echo.none", row=row, lag_ms=round(canceller.lag_ms))
                self._drop_filter(row)

    def _disable_cancellation(self, error: Exception) -> None:
        """The library has failed: from now on no echo is cancelled."""
        _log.error("echo.library_failed", error=repr(error), exc_info=error)
        self._create_filter = None
        for row in [*self._cancellers, *self._adaptation.rows]:
            self._drop_filter(row)

    def _drop_filter(self, row: int) -> None:
        self._adaptation.remove(row)
        canceller = self._cancellers.pop(row, None)
        if canceller is not None:
            canceller.close()
            cursor = self._input.history.cursor
            cursor[row, Cursor.READY] = cursor[row, Cursor.END]


def _mean(correlations: Sequence[float]) -> float:
    return sum(correlations) / len(correlations) if correlations else 0.0
