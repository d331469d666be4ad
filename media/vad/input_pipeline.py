"""The input pipeline of the callers' audio, from the port to judged windows: it stores, times and measures audio and
runs voice activity detection.

The time of audio is its arrival on the wire: when the jitter buffer released it, less the depth of the buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Cursor, Rows
from media.audio_port import INFO_ARRIVAL_NS, INFO_JITTER_MS, INFO_LIVE_END, INFO_POSITION, Samples
from media.dtmf.tone_detector import ToneDetector
from media.vad.energy import BLOCK_MS, BLOCKS_PER_FRAME, LevelMeter
from media.vad.silero import WINDOW_MS, Probabilities, SileroModel, VoiceActivityDetector

RATES: Final = (8000, 16000)
"""Sample rates of the voice activity model, Hz."""
_FRAME_MS: Final = BLOCK_MS * BLOCKS_PER_FRAME
_CLOCK_SHARE: Final = 0.05
"""Weight of a new observation of the arrival clock in its average (jitter buffers count in whole frames)."""
_CLOCK_JUMP_MS: Final = 100.0
"""A larger deviation of an observation is a new stream, not jitter."""
_DTMF_GUARD_MS: Final = 150.0
"""Time after a DTMF tone in which nothing is speech, because the voice activity model detects the tone's end late,"""
_DTMF_SILENT_GUARD_MS: Final = 600.0
"""and in noise much later: up to this time only if no sound has stood out since."""


@dataclass(frozen=True, slots=True)
class DtmfKey:
    """A detected key in a row, and the arrival of its tone's beginning."""

    row: int
    digit: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class VadWindow:
    """A judged window of a caller's audio, as `TurnDetector.on_vad_window` takes it: the arrival of its end, the
    probability of speech, the quiet before its end, the time since the onset of the present sound, and whether it ends
    loud."""

    at_ms: float
    p: float
    quiet_ms: float
    onset_ms: float
    loud: bool


class InputPipeline:
    """The received audio of all rows. `arrival` is the arrival of a row's newest sample (ms of CLOCK_MONOTONIC, 0
    before the first), `per_ms` its samples per ms."""

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
        """Begin a call in a row, at a rate of `RATES`."""
        self.history.open(row, rate)
        self.levels.open(row)
        self.vad.open(row)
        self.dtmf.open(row)
        self.arrival[row] = 0.0
        self.per_ms[row] = rate / 1000

    def set_rows(self, rate: int, rows: list[int]) -> None:
        """Set the rows at `rate`, ascending."""
        self._of_rate[rate] = np.array(rows, np.intp)

    def append(
        self,
        rows: Rows,
        counts: NDArray[np.int64],
        audio: tuple[Samples, Samples],
        info: NDArray[np.int64],
        before_compaction: Callable[[int], None],
    ) -> None:
        """Append what was read: `counts` samples of each of `rows` of `audio` (received, sent: `int16[all rows,
        capacity]`); `info` has all rows too. `before_compaction` is called with a row before its old audio is lost."""
        for row in rows[self.history.needs_compaction(rows, counts)].tolist():
            before_compaction(row)
            self.history.compact(row)
        self.history.append(rows, counts, *audio)
        silent = np.maximum(info[rows, INFO_POSITION] + counts - info[rows, INFO_LIVE_END], 0)
        self.history.cursor[rows, Cursor.LIVE] = self.history.cursor[rows, Cursor.END] - silent
        observed = info[rows, INFO_ARRIVAL_NS] / 1e6 - info[rows, INFO_JITTER_MS]
        expected = self.arrival[rows] + counts / self.per_ms[rows]
        off = observed - expected
        jumped = np.abs(off) > _CLOCK_JUMP_MS
        self.arrival[rows] = np.where(jumped, observed, expected + _CLOCK_SHARE * off)

    def mark_all_ready(self) -> None:
        """All audio that has arrived may be judged."""
        self.history.cursor[:, Cursor.READY] = self.history.cursor[:, Cursor.END]

    def judged_windows(self, caller_speaking: NDArray[np.bool_]) -> Iterator[tuple[Rows, Probabilities]]:
        """Measure and judge all ready audio: yields rows with the probabilities of their next windows, until no whole
        window is left. `caller_speaking`: for every row whether speech is open; it may change between two results."""
        for rate, members in self._of_rate.items():
            if len(members):
                self._measure(rate, members)
                yield from self._detect_voice(rate, members, caller_speaking)

    def take_dtmf_keys(self) -> list[DtmfKey]:
        """The keys detected since the last call."""
        keys, self._keys = self._keys, []
        return keys

    def last_window(self, row: int, p: float) -> VadWindow:
        """The measurements of the row's last judged window, which has the probability `p`."""
        end, level, vad = self.history.cursor[row, : Cursor.VAD + 1].tolist()
        per_ms = float(self.per_ms[row])
        past = (level - vad) / per_ms
        quiet = max(float(self.levels.quiet_ms[row]) - past, 0.0)
        onset = max(min(float(self.levels.onset_ms[row]), float(self.dtmf.since_ms[row])) - past, 0.0)
        at = float(self.arrival[row]) - (end - vad) / per_ms
        return VadWindow(at, p, quiet, onset, bool(self.levels.loud[row]))

    def is_below_gate(self, row: int, ms: float) -> bool:
        """True if no sound has stood out of the noise in the last `ms` of the row's last judged window."""
        level, vad = self.history.cursor[row, Cursor.LEVEL : Cursor.VAD + 1].tolist()
        return bool(self.levels.below_gate_ms[row] >= ms + (level - vad) / self.per_ms[row])

    def measured_ms(self, row: int) -> float:
        """The arrival of the row's last measured sample."""
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
        """Detect DTMF in the frame of each of `rows` that was measured last."""
        sounding = self.levels.below_gate_ms[rows] < _FRAME_MS
        for key in self.dtmf.detect(self.history, rows, self.history.cursor[rows, Cursor.LEVEL], sounding, rate):
            self._keys.append(DtmfKey(key.row, key.digit, self.measured_ms(key.row) - key.age_ms))

    def _detect_voice(
        self, rate: int, members: Rows, caller_speaking: NDArray[np.bool_]
    ) -> Iterator[tuple[Rows, Probabilities]]:
        cursor, window = self.history.cursor, rate * WINDOW_MS // 1000
        while True:
            rows = members[cursor[members, Cursor.READY] - cursor[members, Cursor.VAD] >= window]
            if not len(rows):
                return
            p = self.vad.detect(self.history, self.levels, rows, rate, caller_speaking[rows])
            p[self._is_dtmf(rows)] = 0.0  # whatever the model's result
            cursor[rows, Cursor.VAD] += window
            yield rows, p

    def _is_dtmf(self, rows: Rows) -> NDArray[np.bool_]:
        """A mask over `rows`: True if the present audio is a DTMF tone, or the silence after one."""
        since = self.dtmf.since_ms[rows]
        silent_since = self.levels.below_gate_ms[rows] >= since - _DTMF_GUARD_MS
        is_dtmf: NDArray[np.bool_] = (since < _DTMF_GUARD_MS) | (silent_since & (since < _DTMF_SILENT_GUARD_MS))
        return is_dtmf
