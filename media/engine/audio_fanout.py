"""Fans the caller's audio out to speech recognition and end-of-turn detection during a turn, and to the recording
always."""

from __future__ import annotations

from typing import Final

import numpy as np

from media.audio_history import Cursor, Rows
from media.engine.call_audio import CallAudio
from media.vad.input_pipeline import InputPipeline

PREROLL_MS: Final = 300
"""Audio before the start of speech that speech recognition gets too (pre-roll)."""
RECORD_MS: Final = 500
"""Audio that a recording is given at a time."""


class AudioFanout:
    """Feeds the sinks and recordings of all rows. Raises whatever they raise."""

    def __init__(self, rows: int, sound: InputPipeline) -> None:
        self._sound = sound
        self._cursor = sound.history.cursor
        self._feeding = np.zeros(rows, np.bool_)

    def reset(self, row: int) -> None:
        """A call begins or ends in a row: nothing is fed."""
        self._feeding[row] = False

    def begin_turn(self, row: int, began_ms: float) -> None:
        """A turn has begun: from 300 ms before `began_ms` on, both sinks are fed."""
        cursor = self._cursor[row]
        end = int(cursor[Cursor.END])
        back = int((float(self._sound.arrival[row]) - began_ms + PREROLL_MS) * float(self._sound.per_ms[row]))
        cursor[Cursor.SPEECH_SINK] = max(int(cursor[Cursor.SPEECH_SINK]), end - back, 0)
        self._feeding[row] = True

    def feed(self, call: CallAudio, row: int) -> None:
        """Feed the speech sink and the end-of-turn sink with what has come, while a turn is open."""
        sinks = [each for each in (call.speech_sink, call.end_of_turn_sink) if each is not None]
        if self._feeding[row] and sinks:
            ready, fed = int(self._cursor[row, Cursor.READY]), int(self._cursor[row, Cursor.SPEECH_SINK])
            if ready > fed:
                self._cursor[row, Cursor.SPEECH_SINK] = ready
                sound = self._sound.history.rx_audio[row, fed:ready].copy()
                if self._sound.dtmf.active[row]:
                    sound[:] = 0  # a recognizer may find words in a key
                for sink in sinks:
                    sink.feed(sound)

    def end_turn(self, call: CallAudio, row: int, *, forget: bool) -> None:
        """The turn is over, or (`forget`) it was dropped."""
        self.feed(call, row)
        self._feeding[row] = False
        if forget and call.speech_sink is not None:
            call.speech_sink.reset()
        if call.end_of_turn_sink is not None:
            call.end_of_turn_sink.reset()

    def recordings_due(self) -> Rows:
        """Rows whose recording is to have its next piece."""
        waiting = self._cursor[:, Cursor.END] - self._cursor[:, Cursor.RECORDED]
        return np.flatnonzero(waiting >= RECORD_MS * self._sound.per_ms)

    def record(self, call: CallAudio, row: int) -> None:
        """Append to the recording both sides of what it has not been given yet."""
        end, recorded = (int(self._cursor[row, c]) for c in (Cursor.END, Cursor.RECORDED))
        self._cursor[row, Cursor.RECORDED] = end
        if call.recording is not None and end > recorded:
            history = self._sound.history
            rx_audio, tx_audio = history.original(row, recorded, end), history.tx_audio[row, recorded:end]
            call.recording.append(rx_audio.copy(), tx_audio.copy())
