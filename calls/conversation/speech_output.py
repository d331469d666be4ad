"""Speech output of a call: normalizes sentences and synthesizes them at the call's rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from calls.conversation.speech_gate import SpeechGate
from config.errors import ModelError
from media.audio_port import Samples
from media.playout import Playout, Utterance
from models.protocols import SynthesizedSpeech, TextToSpeech, VoiceSettings, WordTiming
from models.tts.text_normalization import NormalizedText, normalize_for_speech

_MAX_INLINE_CHARACTERS: Final = 60
"""Longer sentences are normalized in a thread: shorter ones take less time than a thread takes to start, 1 ms at
most."""


class ResponsePlayout(Protocol):
    """What responses need of a `media.playout.Playout`."""

    def begin(self, text: str) -> Utterance:
        """Start an utterance, to which all samples written from now on belong."""

    def write(self, samples: Samples) -> bool:
        """Queue samples of the utterance."""

    def end(self) -> None:
        """End the utterance."""

    def expect_more(self, on: bool) -> None:
        """Announce that more utterances of the same response follow (or not)."""

    def played(self, utterance: Utterance) -> int:
        """Number of samples of an utterance that have been sent."""

    def flush(self) -> int:
        """Discard everything that has not been sent."""


class AgentOutput(Protocol):
    """What makes the sentences of responses perceptible, and how far they have come. `language`: BCP 47. `on_spoken` is
    called with every sentence that begins. None begins while `gate` is closed. `rate`: Hz."""

    @property
    def language(self) -> str | None:
        """The BCP 47 tag of the language."""

    @property
    def rate(self) -> int:
        """The rate of the samples, Hz."""

    @property
    def playout(self) -> ResponsePlayout:
        """The playout of the sentences."""

    @property
    def gate(self) -> SpeechGate:
        """Holds the sentences back."""

    @property
    def on_spoken(self) -> Callable[[str], None]:
        """Called with every sentence that is queued for playout."""

    async def synthesize(self, sentence: str) -> SynthesizedSpeech:
        """Returns a sentence for the playout; no samples for one that has nothing to say. Raises `ModelError`."""


@dataclass(frozen=True)
class SpeechOutput:
    """A voice, and the playout of its audio. `language_hint` is the BCP 47 tag of the agent's language, None for that
    of the voice. `on_spoken` is called with every sentence that is queued for playout. No sentence is queued while
    `gate` is closed."""

    tts: TextToSpeech
    settings: VoiceSettings
    playout: Playout
    language_hint: str | None = None
    on_spoken: Callable[[str], None] = lambda _: None
    gate: SpeechGate = field(default_factory=SpeechGate)

    @property
    def language(self) -> str | None:
        """The BCP 47 tag of the spoken language: the agent's, else the voice's."""
        return self.language_hint or self.tts.language_of(self.settings.voice)

    @property
    def rate(self) -> int:
        """The rate of the call, Hz."""
        return self.settings.rate

    async def synthesize(self, sentence: str) -> SynthesizedSpeech:
        """Returns the speech of a sentence at the call's rate; figures and signs are normalized to words. Its text and
        the ends of its words are those of the original sentence. No samples for a sentence without words. Raises
        `ModelError`."""
        spoken = await self._normalize(sentence)
        if not spoken.text:
            return SynthesizedSpeech(sentence, np.zeros(0, np.int16), self.settings.rate)
        speech = await self.tts.synthesize(spoken.text, self.settings)
        if speech.rate != self.settings.rate:
            raise ModelError(f"{self.tts.name} spoke at {speech.rate} Hz instead of {self.settings.rate} Hz")
        if spoken.text == sentence:
            return speech
        return SynthesizedSpeech(
            sentence, speech.samples, speech.rate, tuple(_written_words(speech.words, spoken, sentence))
        )

    async def _normalize(self, sentence: str) -> NormalizedText:
        if len(sentence) <= _MAX_INLINE_CHARACTERS:
            return normalize_for_speech(sentence, self.language)
        return await asyncio.to_thread(normalize_for_speech, sentence, self.language)


def _written_words(words: Sequence[WordTiming], spoken: NormalizedText, sentence: str) -> Iterator[WordTiming]:
    """Yields the ends of the original sentence's words. One that is spoken as several words ends with the last of
    them."""
    for word in words:
        end = spoken.original_end(word.char_end, sentence)
        if end is not None:
            yield WordTiming(end, word.sample_end)
