"""Connects speech recognition and end-of-turn detection to the turn taking of a call. Calls and replays of recordings
share these rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from media.engine.audio_fanout import PREROLL_MS
from media.engine.call_audio import CallAudio, CallEventListener, EndOfTurnSink, SpeechSink
from media.engine.engine import AudioEngine
from media.recording import Recording
from media.turn_taking.settings import TurnSettings
from models.end_of_turn.backchannels import is_backchannel
from models.protocols import TimesWords


class TurnTranscriber(Protocol):
    """A recognizer's stream, at the end of a turn."""

    async def end_turn(self) -> str:
        """The final text of the turn; the next turn begins. Raises `ModelError`."""


def add_call(
    engine: AudioEngine,
    slot: int,
    settings: TurnSettings,
    listener: CallEventListener,
    *,
    stt: SpeechSink,
    end_of_turn: EndOfTurnSink,
    end_of_turn_latency_ms: float,
    recording: Recording | None = None,
) -> CallAudio:
    """Add a call to the engine, which feeds the caller's turns to `stt` and `end_of_turn` and queries the latter
    `end_of_turn_latency_ms` before it needs the answer. Raises what `AudioEngine.add` raises."""
    audio = engine.add(slot, settings, listener, recording, end_of_turn_latency_ms)
    audio.speech_sink, audio.end_of_turn_sink = stt, end_of_turn
    return audio


def report_partial_transcript(audio: CallAudio, text: str, language: str | None) -> None:
    """Tell turn taking that the recognizer has other words for the open turn. Words interrupt the agent, unless they
    are backchannels alone in that `language` (a BCP 47 tag). Any thread."""
    audio.on_transcript(is_backchannel(text, language))


async def final_transcript(stt: TurnTranscriber) -> str:
    """The words of the turn that has ended; "" if it has none and so gets no response. Raises `ModelError`."""
    return (await stt.end_turn()).strip()


def word_starts_ms(stt: object, speech_start_ms: float) -> Sequence[float]:
    """The beginnings of the words of the turn that `final_transcript` has returned, which began at `speech_start_ms`,
    on the same clock; empty if the recognizer does not know them."""
    starts_s = stt.word_starts_s() if isinstance(stt, TimesWords) else ()
    return [max(speech_start_ms, speech_start_ms - PREROLL_MS + start_s * 1000) for start_s in starts_s]
