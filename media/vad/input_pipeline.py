"""The input pipeline of the callers' audio, from the port to judged windows: it keeps, times and measures audio and
runs voice activity detection.

Sound has the time at which it arrived on the wire: when the jitter buffer let it go, less what waited in the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Cursor, Rows
from media.audio_port import INFO_ARRIVAL_NS, INFO_JITTER_MS, Samples
from media.dtmf.tone_detector import ToneDetector
from media.vad.energy import BLOCK_MS, BLOCKS, LevelMeter
from media.vad.silero import WINDOW_MS, Probabilities, SileroModel, VoiceActivityDetector

RATES: Final = (8000, 16000)
"""Sample rates that voice activity knows, Hz."""
_FRAME_MS: Final = BLOCK_MS * BLOCKS
_CLOCK_SHARE: Final = 0.05
"""Weight of a new observation of the arrival clock against its average (jitter buffers count in whole frames)."""
_CLOCK_JUMP_MS: Final = 100.0
"""An observation this far off is a new stream, not jitter."""
_AFTER_KEY_MS: Final = 150.0
"""So long after a key's tone nothing is speech: the voice activity model notices its end late,"""
_STILL_AFTER_KEY_MS: Final = 600.0
"""and in noise much later; so long, something must have stood out since."""


@dataclass(frozen=True, slots=True)
class DtmfKey:
    """A key that was heard in a row, and when its tone began to arrive."""

    row: int
    digit: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class VadWindow:
    """A judged window of a caller's sound, as `TurnDetector.on_vad_window` takes it: when its end arrived, the
    probability of speech, how long the sound before its end has been quiet, how long ago what stands out began, and
    whether it ends loud."""

    at_ms: float
    p: float
    quiet_ms: float
    onset_ms: float
    loud: bool


class InputPipeline:
    """The sound of all rows. `arrival` is when a row's newest sample arrived (ms of CLOCK_MONOTONIC, 0 before the
    first), `per_ms` its samples per ms."""

    def __init__(self, rows: int, model: SileroModel) -> None:
        self.history = AudioHistory(rows)
        self.levels = LevelMeter(rows)
        self.vad = VoiceActivityDetector(rows, model)
        self.dtmf = ToneDetector(rows, RATES)
        self._keys: list[DtmfKey] = []
        self.arrival = np.zeros(rows)
        self.per_ms = np.ones(rows)
        self._of_rate: dict[int, Rows] = {rate: np.zeros(0, np.intp) for rate in RATES}

    def open(self, row: int, rate: int) -> None:
        """A call begins in a row, at a rate of `RATES`."""
        self.history.open(row, rate)
        self.levels.open(row)
        self.vad.open(row)
        self.dtmf.open(row)
        self.arrival[row] = 0.0
        self.per_ms[row] = rate / 1000

    def set_rows(self, rate: int, rows: list[int]) -> None:
        """The rows at `rate` from now on, ascending."""
        self._of_rate[rate] = np.array(rows, np.intp)

    def append(
        self,
        rows: Rows,
        counts: NDArray[np.int64],
        sound: tuple[Samples, Samples],
        info: NDArray[np.int64],
        save: Callable[[int], None],
    ) -> None:
        """Add what was read: `counts` samples of each of `rows` of `sound` (heard, said: `int16[all rows, capacity]`);
        `info` is all rows' too. `save` is called with a row before its old sound is lost."""
        for row in rows[self.history.lacks_room(rows, counts)].tolist():
            save(row)
            self.history.make_room(row)
        self.history.append(rows, counts, *sound)
        observed = info[rows, INFO_ARRIVAL_NS] / 1e6 - info[rows, INFO_JITTER_MS]
        expected = self.arrival[rows] + counts / self.per_ms[rows]
        off = observed - expected
        jumped = np.abs(off) > _CLOCK_JUMP_MS
        self.arrival[rows] = np.where(jumped, observed, expected + _CLOCK_SHARE * off)

    def mark_all_ready(self) -> None:
        """Everything that has come may be judged."""
        self.history.cursor[:, Cursor.READY] = self.history.cursor[:, Cursor.END]

    def windows(self, talking: NDArray[np.bool_]) -> Iterator[tuple[Rows, Probabilities]]:
        """Measure and judge all that has come: rows with the probabilities of their next windows, until there is no
        whole window left. `talking` says for every row whether speech is open; it may change on the way."""
        for rate, members in self._of_rate.items():
            self._measure(rate, members)
            yield from self._detect_voice(rate, members, talking)

    def take_dtmf_keys(self) -> list[DtmfKey]:
        """The keys that were heard since this was asked last."""
        keys, self._keys = self._keys, []
        return keys

    def window(self, row: int, p: float) -> VadWindow:
        """What is known of the row's last judged window, which has the probability `p`."""
        end, level, voice = self.history.cursor[row, : Cursor.VAD + 1].tolist()
        per_ms = float(self.per_ms[row])
        past = (level - voice) / per_ms
        quiet = max(float(self.levels.quiet_ms[row]) - past, 0.0)
        onset = max(min(float(self.levels.onset_ms[row]), float(self.dtmf.since_ms[row])) - past, 0.0)
        at = float(self.arrival[row]) - (end - voice) / per_ms
        return VadWindow(at, p, quiet, onset, bool(self.levels.loud[row]))

    def is_below_gate(self, row: int, ms: float) -> bool:
        """Nothing has stood out of the noise in the last `ms` of the row's last judged window."""
        level, voice = self.history.cursor[row, Cursor.LEVEL : Cursor.VAD + 1].tolist()
        return bool(self.levels.below_gate_ms[row] >= ms + (level - voice) / self.per_ms[row])

    def measured_ms(self, row: int) -> float:
        """When the row's last measured sample arrived."""
        end, level = self.history.cursor[row, : Cursor.LEVEL + 1].tolist()
        return float(self.arrival[row]) - float((end - level) / self.per_ms[row])

    def _measure(self, rate: int, members: Rows) -> None:
        cursor, frame = self.history.cursor, rate * _FRAME_MS // 1000
        while True:
            rows = members[cursor[members, Cursor.READY] - cursor[members, Cursor.LEVEL] >= frame]
            if not len(rows):
                return
            self.levels.measure(rows, self.history.gather(rows, cursor[rows, Cursor.LEVEL], frame))
            cursor[rows, Cursor.LEVEL] += frame
            self._detect_dtmf(rate, rows)

    def _detect_dtmf(self, rate: int, rows: Rows) -> None:
        """Look for keys in the frame of each of `rows` that was measured just now."""
        sounding = self.levels.below_gate_ms[rows] < _FRAME_MS
        for key in self.dtmf.detect(self.history, rows, self.history.cursor[rows, Cursor.LEVEL], sounding, rate):
            self._keys.append(DtmfKey(key.row, key.digit, self.measured_ms(key.row) - key.began_ms))

    def _detect_voice(
        self, rate: int, members: Rows, talking: NDArray[np.bool_]
    ) -> Iterator[tuple[Rows, Probabilities]]:
        cursor, window = self.history.cursor, rate * WINDOW_MS // 1000
        while True:
            rows = members[cursor[members, Cursor.READY] - cursor[members, Cursor.VAD] >= window]
            if not len(rows):
                return
            p = self.vad.detect(self.history, self.levels, rows, rate, talking[rows])
            p[self._of_key(rows)] = 0.0  # whatever the model takes it for
            cursor[rows, Cursor.VAD] += window
            yield rows, p

    def _of_key(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the present sound of `rows` is that of a key, or the silence behind one."""
        since = self.dtmf.since_ms[rows]
        still = self.levels.below_gate_ms[rows] >= since - _AFTER_KEY_MS
        of_key: NDArray[np.bool_] = (since < _AFTER_KEY_MS) | (still & (since < _STILL_AFTER_KEY_MS))
        return of_key
