"""Fans the caller's audio out: to speech recognition and end-of-turn detection during a turn, and to the recording
always."""

from __future__ import annotations

from typing import Final

import numpy as np
import structlog

from media.audio_history import Cursor, Rows
from media.audio_port import Samples
from media.engine.call_audio import CallAudio
from media.vad.input_pipeline import InputPipeline

PREROLL_MS: Final = 300
"""Audio before the start of speech that the sinks get too (pre-roll)."""
RECORD_MS: Final = 500
"""Audio that a recording gets at a time."""


_log = structlog.get_logger()


class AudioFanout:
    """Feeds the sinks and recordings of all rows. Raises their errors."""

    def __init__(self, rows: int, input_pipeline: InputPipeline) -> None:
        self._input = input_pipeline
        self._cursor = input_pipeline.history.cursor
        self._feeding = np.zeros(rows, np.bool_)

    def reset(self, row: int) -> None:
        """Begin or end a call in a row: nothing is fed."""
        self._feeding[row] = False

    def begin_turn(self, row: int, speech_start_ms: float) -> None:
        """Begin a turn: from 300 ms before `speech_start_ms` on, both sinks are fed."""
        cursor = self._cursor[row]
        end = int(cursor[Cursor.END])
        preroll = int((float(self._input.arrival[row]) - speech_start_ms + PREROLL_MS) * float(self._input.per_ms[row]))
        cursor[Cursor.SPEECH_SINK] = max(int(cursor[Cursor.SPEECH_SINK]), end - preroll, 0)
        self._feeding[row] = True

    def feed(self, call: CallAudio, row: int) -> None:
        """Feed the audio that has arrived to the speech sink and the end-of-turn sink, while a turn is open."""
        sinks = [each for each in (call.speech_sink, call.end_of_turn_sink) if each is not None]
        if self._feeding[row] and sinks:
            ready, fed = int(self._cursor[row, Cursor.READY]), int(self._cursor[row, Cursor.SPEECH_SINK])
            if ready > fed:
                self._cursor[row, Cursor.SPEECH_SINK] = ready
                samples = self._input.history.rx_audio[row, fed:ready].copy()
                if self._input.dtmf.active[row]:
                    samples[:] = 0  # a recognizer may find words in a DTMF tone
                for sink in sinks:
                    sink.feed(samples)

    def end_turn(self, call: CallAudio, row: int, *, dropped: bool) -> None:
        """End the turn; `dropped`: speech recognition discards it."""
        self.feed(call, row)
        self._feeding[row] = False
        speech_sink, end_of_turn_sink = call.speech_sink, call.end_of_turn_sink
        if dropped and speech_sink is not None:
            speech_sink.reset()
        if end_of_turn_sink is not None:
            end_of_turn_sink.reset()

    def recordings_due(self) -> Rows:
        """Rows with a full piece of audio for their recording."""
        waiting = self._cursor[:, Cursor.END] - self._cursor[:, Cursor.RECORDED]
        return np.flatnonzero(waiting >= RECORD_MS * self._input.per_ms)

    def record(self, call: CallAudio, row: int) -> None:
        """Append both sides of the audio since the last piece to the recording. Silence without a stream counts only if
        audio follows: it may be the call's end."""
        end, recorded, live = (int(self._cursor[row, c]) for c in (Cursor.END, Cursor.RECORDED, Cursor.LIVE))
        self._cursor[row, Cursor.RECORDED] = end
        live = max(recorded, live)
        if call.recording is not None and live > recorded:
            history = self._input.history
            rx_audio, tx_audio = history.original(row, recorded, live), history.tx_audio[row, recorded:live]
            call.recording.append(rx_audio.copy(), tx_audio.copy())
        if call.recording is not None and end > live:
            call.recording.add_silence(end - live)

    def skip(self, call: CallAudio, row: int, frames: int) -> None:
        """So many frames after the audio that has arrived are lost: the recording goes on after them."""
        self.record(call, row)
        if call.recording is not None:
            call.recording.add_silence(frames)


def feed_taps(call: CallAudio, rx_audio: Samples, tx_audio: Samples) -> None:
    """Give both sides to those who listen in. A tap that fails ends alone."""
    for tap in call.taps:
        try:
            tap.on_audio(rx_audio, tx_audio)
        except Exception as error:  # noqa: BLE001 - who listens in must not end the call
            _log.error("media.tap_broken", slot=call.slot, error=repr(error), exc_info=error)
            call.remove_tap(tap)
            tap.on_end()
