"""The agent's words in a chat, in place of its speech: each sentence counts as heard as soon as it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from calls.conversation.event_queue import EventQueue
from calls.conversation.speech_gate import SpeechGate
from media.audio_port import Samples
from media.engine.call_audio import UtterancePlayed
from media.playout import Utterance
from media.turn_taking.events import AgentStarted, AgentStopped
from models.protocols import SynthesizedSpeech

RATE: Final = 1000
"""Of the samples that stand for written words, Hz: any will do, because nobody hears them."""
SAMPLES_OF_SENTENCE: Final = 1


class WrittenPlayout:
    """A `ResponsePlayout` that is done with each utterance at its end."""

    def __init__(self, events: EventQueue, now_ms: Callable[[], float]) -> None:
        self._events = events
        self._now_ms = now_ms
        self._position = 0
        self._current: Utterance | None = None
        self._is_writing = False

    def begin(self, text: str) -> Utterance:
        """Start an utterance."""
        now_ms = self._now_ms()
        self._current = Utterance(text, self._position, self._position, started_ms=now_ms)
        if not self._is_writing:
            self._is_writing = True
            self._events.on_media_events((AgentStarted(now_ms),))
        return self._current

    def write(self, samples: Samples) -> bool:
        """Add samples to the utterance; they count as played."""
        if self._current is None:
            return False
        self._position += len(samples)
        self._current.stop = self._position
        return True

    def end(self) -> None:
        """The utterance is complete, and played."""
        utterance, self._current = self._current, None
        if utterance is not None:
            utterance.ended, utterance.stopped_ms = True, self._now_ms()
            self._events.on_media_events((UtterancePlayed(utterance.stopped_ms, utterance),))

    def expect_more(self, on: bool) -> None:
        """Without more, the agent falls silent."""
        if not on and self._is_writing:
            self._is_writing = False
            self._events.on_media_events((AgentStopped(self._now_ms()),))

    def played(self, utterance: Utterance) -> int:
        """All of it."""
        return utterance.stop - utterance.start

    def flush(self) -> int:
        """There is nothing to discard. Returns the position."""
        return self._position


class WrittenOutput:
    """An `AgentOutput` without a voice. `language`: the BCP 47 tag of the agent's language, if it has one; `on_spoken`
    is called with each sentence."""

    rate: Final = RATE

    def __init__(self, playout: WrittenPlayout, language: str | None, on_spoken: Callable[[str], None]) -> None:
        self.playout: Final = playout
        self.language: Final = language
        self.on_spoken: Final = on_spoken
        self.gate: Final = SpeechGate()

    async def synthesize(self, sentence: str) -> SynthesizedSpeech:
        """Returns a sample that stands for the sentence; none for one without text."""
        length = SAMPLES_OF_SENTENCE if sentence.strip() else 0
        return SynthesizedSpeech(sentence, np.zeros(length, np.int16), RATE)
