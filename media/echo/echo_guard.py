"""The agent must not take its own voice for the caller's, when it comes back from a loudspeaker or the network.

Nothing is done for a line while the agent is silent, or while nothing comes back that sounds like speech. When a
window does, it is compared with what was said a moment ago (`media.echo.delay_estimator`) before turn taking hears of
it. If it is an echo, a filter learns it (`media.echo.canceller`), and from then on voice activity, levels, ear and
judge of this line get the sound without it. Until then, and where the filter is not good enough, a window that is an
echo holds no speech.

All calls share one thread: neither comparing nor learning may take more than a set share of a tick, however many lines
have an echo. What cannot be compared now is held; lines learn one after the other (`media.echo.adaptation_queue`).
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
    """What is known of the sound of a row that came while an echo was possible."""

    held: list[VadWindow] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    lag_ms: float = -1e9  # of the last look
    caller: bool = False  # it is the caller who speaks
    pause: int = 0  # windows without speech
    elsewhere: int = 0  # looks that found an echo where the filter does not reach
    state: TurnState = TurnState.IDLE  # of turn taking, at the last window


class EchoGuard:
    """The echoes of all rows."""

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
        waiting = [(row, line) for row, line in self._cancellers.items() if now_ms < self._end(row, line)]
        self._running_us = sum(FRAME_US[round(self._sound.per_ms[row] * 1000)] for row, _ in waiting)
        before = [int(cursor[row, Cursor.READY]) for row, _ in waiting]
        self._sound.mark_all_ready()
        for (row, line), ready in zip(waiting, before, strict=True):
            cursor[row, Cursor.READY] = ready
            self._cancel(row, line)

    def is_echo_possible(self, row: int, now_ms: float) -> bool:
        """Whether an echo of the agent may be in what comes now."""
        return bool(now_ms < self._until[row])

    def filter_window(self, row: int, window: VadWindow, speech: bool, state: TurnState) -> Sequence[VadWindow]:
        """The windows that turn taking is to hear of now, in order: none while it cannot be told yet whose voice this
        is, all that were held when it can; those of an echo have no probability. `speech` says that the window has the
        probability of speech. While the caller has the turn (`state`), nothing is held."""
        doubt = self._rows.setdefault(row, _RowState())
        doubt.state = state
        windows = self._filtered(row, doubt, window, speech)
        self.holding[row] = bool(doubt.held)
        return windows

    def held_due(self) -> Iterator[int]:
        """At the end of a tick: the rows whose turn to be compared has come, or which can wait no longer. Each is to be
        `settled` before the next is asked for."""
        for row in list(self._waiting):
            if self._left_us > 0 or len(self._rows[row].held) >= HOLD_WINDOWS:
                yield row

    def release(self, row: int) -> Sequence[VadWindow]:
        """The windows of a row that is `due`, as `judge` returns them."""
        del self._waiting[row]
        doubt = self._rows[row]
        window = doubt.held.pop()
        windows = self._compared(row, doubt, window) if self._left_us > 0 else self._uncompared(row, doubt, window)
        self.holding[row] = bool(doubt.held)
        return windows

    def _filtered(self, row: int, doubt: _RowState, window: VadWindow, speech: bool) -> Sequence[VadWindow]:
        state = doubt.state
        if state is TurnState.IDLE:
            doubt.caller = False  # whoever spoke last has ended
        if self._explained(row, surely=doubt.caller or state in _CALLERS_TURN):
            return self._flush(row, doubt, window, echo=True)
        if not speech:
            return self._silent(row, doubt, window)
        doubt.pause = 0
        if doubt.caller:
            return (window,)
        if row not in self._waiting and self._left_us > CORRELATE_US * len(self._waiting):
            return self._compared(row, doubt, window)
        if state in _CALLERS_TURN:
            return self._uncompared(row, doubt, window)
        self._waiting[row] = None
        doubt.held.append(window)
        return ()

    def _compared(self, row: int, doubt: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        look = self._correlate(row)
        doubt.shares.append(look.correlation)
        echo = self._verdict(doubt, look, window)
        if echo is False and row in self._cancellers and len(doubt.shares) < CONFIRM_WINDOWS:
            echo = None
        doubt.lag_ms = look.lag_ms
        if echo is None and doubt.state not in _CALLERS_TURN:
            doubt.held.append(window)
            return ()
        if echo:
            self._on_echo(row, doubt, look)
        else:
            doubt.caller = echo is False
        return self._flush(row, doubt, window, echo=bool(echo))

    def _uncompared(self, row: int, doubt: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        """There was no time to look any closer. A line whose echo was found and that still learns more likely has that
        again than a caller."""
        echo = _mean(doubt.shares) >= EITHER if doubt.shares else self._adaptation.lag_ms(row) is not None
        return self._flush(row, doubt, window, echo=echo)

    def _end(self, row: int, line: EchoCanceller) -> float:
        return float(self._until[row]) - REACH_MS + line.lag_ms + TAIL_MS

    def _explained(self, row: int, *, surely: bool) -> bool:
        """The filter has taken out what came in of late, or left nothing in the last judged window that sounds. Of a
        caller who is known to speak nothing is taken away unless it is `surely` an echo."""
        line = self._cancellers.get(row)
        if line is None or self._now >= self._end(row, line):
            return False
        end, per_ms = int(self._sound.history.cursor[row, Cursor.VAD]), int(self._sound.per_ms[row])
        if surely:
            return line.removed_all(end, per_ms)
        return self._sound.is_below_gate(row, WINDOW_MS) or line.explains(end, per_ms)

    def _correlate(self, row: int) -> EchoCorrelation:
        history, per_ms = self._sound.history, int(self._sound.per_ms[row])
        end = int(history.cursor[row, Cursor.VAD])
        heard = history.rx_audio[row, end - LOOK_MS * per_ms : end]
        said = history.tx_audio[row, max(end - (MOST_MS + LOOK_MS) * per_ms, 0) : end]
        noise, lag_ms = self._sound.levels.noise_power(row), self._adaptation.lag_ms(row)
        if lag_ms is not None:
            self._left_us -= CORRELATE_NEAR_US
            near = correlate_near(lag_ms, said, heard, per_ms * 1000, noise)
            if near.correlation >= ECHO:
                return near
        self._left_us -= CORRELATE_US
        return correlate(said, heard, per_ms * 1000, noise)

    def _verdict(self, doubt: _RowState, look: EchoCorrelation, window: VadWindow) -> bool | None:
        """Whether it is an echo; None when that cannot be told yet."""
        again = abs(look.lag_ms - doubt.lag_ms) <= SAME_LAG_MS
        if look.correlation >= ECHO or (again and look.correlation >= EITHER):
            return True
        limit = next((share for ms, share in CALLER if window.onset_ms >= ms), 0.0)
        if look.correlation <= limit:
            return False
        if len(doubt.held) + 1 < HOLD_WINDOWS:
            return None
        return _mean(doubt.shares) >= EITHER

    def _silent(self, row: int, doubt: _RowState, window: VadWindow) -> Sequence[VadWindow]:
        doubt.pause += 1
        if doubt.pause >= PAUSE_WINDOWS and doubt.state not in _CALLERS_TURN:
            doubt.caller = False
        if not doubt.held:
            return (window,)
        if doubt.pause < PAUSE_WINDOWS or row in self._waiting:
            doubt.held.append(window)
            return ()
        return self._flush(row, doubt, window, echo=True)

    def _flush(self, row: int, doubt: _RowState, window: VadWindow, *, echo: bool) -> Sequence[VadWindow]:
        self._waiting.pop(row, None)
        windows = [*doubt.held, window]
        doubt.held.clear()
        doubt.shares.clear()
        return [replace(each, p=0.0) for each in windows] if echo else windows

    def _on_echo(self, row: int, doubt: _RowState, look: EchoCorrelation) -> None:
        line = self._cancellers.get(row)
        lag_ms = line.lag_ms if line is not None else self._adaptation.lag_ms(row)
        if lag_ms is not None and lag_ms - MOVED_MS <= look.lag_ms <= lag_ms + TAIL_MS:
            doubt.elsewhere = 0
            return
        doubt.elsewhere += 1
        if lag_ms is not None and doubt.elsewhere < 2:
            return
        doubt.elsewhere = 0
        self._drop(row)
        if self._create_filter is not None:
            self._adaptation.add(row, look.lag_ms)

    def _adapt(self) -> None:
        self._left_us = max(SHARE_US - self._running_us, LEAST_SHARE_US)
        if self._create_filter is None:
            return
        most_us = ADAPT_BEHIND_US if self._waiting else min(ADAPT_US, self._left_us // 2)
        try:
            for row, line in self._adaptation.adapt(self._create_filter, most_us):
                self._cancellers[row] = line
                _log.info("echo.found", row=row, lag_ms=round(line.lag_ms))
        except Exception as error:  # noqa: BLE001 - without the filter the call goes on
            self._give_up(error)
        self._left_us -= self._adaptation.spent_us

    def _cancel(self, row: int, line: EchoCanceller) -> None:
        try:
            line.process()
        except Exception as error:  # noqa: BLE001 - without the filter the call goes on
            self._give_up(error)
        else:
            if line.ineffective:
                _log.info("echo.none", row=row, lag_ms=round(line.lag_ms))
                self._drop(row)

    def _give_up(self, error: Exception) -> None:
        """The library is at fault: no line is cleaned from now on."""
        _log.error("echo.library_failed", error=repr(error), exc_info=error)
        self._create_filter = None
        for row in [*self._cancellers, *self._adaptation.rows]:
            self._drop(row)

    def _drop(self, row: int) -> None:
        self._adaptation.remove(row)
        line = self._cancellers.pop(row, None)
        if line is not None:
            line.close()
            cursor = self._sound.history.cursor
            cursor[row, Cursor.READY] = cursor[row, Cursor.END]


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares) if shares else 0.0
