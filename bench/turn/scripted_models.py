"""Models whose words and times are set: at once, so that what remains is our own share of the time, or as long after as
good ones of today take. They wait without burning CPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from media.audio_port import Samples
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import (
    END_CALL,
    ChatPrompt,
    LlmOutput,
    SpeechToTextStream,
    SynthesizedSpeech,
    TextDelta,
    ToolCall,
    VoiceSettings,
)
from models.tts.flite.text_to_speech import FliteTextToSpeech

WORDS = "hello there"
HANG_UP = ToolCall(END_CALL, END_CALL, "{}")
"""The end of an answer after which the agent hangs up."""


@dataclass(frozen=True)
class Delays:
    """How long the models take, s. `text`: from the end of sound to its text; `settled_text`: the same when nothing but
    silence has come since it was asked for before, as a recognizer that decodes along has nothing left to do then.
    `token`: from the prompt to the answer. `sentence`: to speak a sentence."""

    text: float = 0.0
    settled_text: float = 0.0
    token: float = 0.0
    sentence: float = 0.0


NONE: Final = Delays()
REALISTIC: Final = Delays(text=0.08, settled_text=0.005, token=0.15, sentence=0.06)
QUIET: Final = 100
"""A peak under this (int16) is silence: 0.3 % of full scale, more than what G.711 leaves of it."""


class InstantSttStream:
    """Knows the words as soon as there is sound."""

    def __init__(self, on_words: Callable[[str], None]) -> None:
        self._on_words = on_words
        self._fed = False

    def feed(self, samples: Samples) -> None:
        """Any sound is the words."""
        if not self._fed:
            self._fed = True
            self._on_words(WORDS)

    def partial(self) -> str:
        """The words, once there was sound."""
        return WORDS if self._fed else ""

    async def flush(self) -> str:
        """At once."""
        return self.partial()

    async def end_turn(self) -> str:
        """At once."""
        text, self._fed = self.partial(), False
        return text

    def reset(self) -> None:
        """Nothing was heard."""
        self._fed = False

    def close(self) -> None:
        """Nothing to free."""


class DelayedSttStream(InstantSttStream):
    """Knows the words as soon as there is sound, and takes its time to be sure of them."""

    def __init__(self, on_words: Callable[[str], None], delays: Delays) -> None:
        super().__init__(on_words)
        self._delays = delays
        self._undecoded = False  # sound came since the text was asked for last
        self._ready_at = 0.0  # `loop.time()` at which the text of what was asked for is there

    def feed(self, samples: Samples) -> None:
        """Silence needs no decoding."""
        super().feed(samples)
        if not self._undecoded and np.abs(samples.astype(np.int32)).max(initial=0) >= QUIET:
            self._undecoded = True

    async def flush(self) -> str:
        """After `Delays.text`."""
        await self._decoded()
        return self.partial()

    async def end_turn(self) -> str:
        """After `Delays.text` or `Delays.settled_text`."""
        await self._decoded()
        return await super().end_turn()

    async def _decoded(self) -> None:
        now = asyncio.get_running_loop().time()
        takes = self._delays.text if self._undecoded else self._delays.settled_text
        self._undecoded, self._ready_at = False, max(self._ready_at, now + takes)
        await asyncio.sleep(self._ready_at - now)


class ScriptedStt:
    """`models.protocols.SpeechToText`."""

    name = "scripted-ear"

    def __init__(self, delays: Delays = NONE) -> None:
        self._delays = delays

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """A stream."""
        return DelayedSttStream(on_words, self._delays) if self._delays.text else InstantSttStream(on_words)


class ScriptedLlm:
    """Always gives the same answer."""

    name = "scripted-language"

    def __init__(self, answer: str, delays: Delays = NONE) -> None:
        self._text = answer
        self._delays = delays

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """After `Delays.token`, all of it."""
        if self._delays.token:
            await asyncio.sleep(self._delays.token)
        yield TextDelta(self._text)


class ScriptedTts:
    """flite, remembered from the first time on."""

    name = "scripted-voice"

    def __init__(self, delays: Delays = NONE) -> None:
        self._flite = FliteTextToSpeech()
        self._delays = delays
        self._known: dict[tuple[str, int], SynthesizedSpeech] = {}

    def voices(self) -> Sequence[str]:
        """Those of flite."""
        return self._flite.voices()

    def language_of(self, voice: str) -> str | None:
        """English."""
        return self._flite.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """After `Delays.sentence`, but for the first time."""
        if self._delays.sentence:
            await asyncio.sleep(self._delays.sentence)
        key = (text, settings.rate)
        if key not in self._known:
            self._known[key] = await self._flite.synthesize(text, settings)
        return self._known[key]

    def close(self) -> None:
        """End flite's thread."""
        self._flite.close()


class CertainTurnDetector:
    """Every turn is over when it is asked; its own stream for all calls."""

    name = "sure"
    latency_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> CertainTurnDetector:
        """The same for all."""
        return self

    def feed(self, samples: Samples) -> None:
        """Sound says nothing."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Always."""
        answer(1.0)

    def reset(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to free."""


def scripted_models(answer: str, delays: Delays = NONE) -> Catalogue:
    """A catalogue of these."""
    language = ScriptedLlm(answer, delays)
    info = LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True)
    return Catalogue(ScriptedStt(delays), {info: language}, [ScriptedTts(delays)], CertainTurnDetector())
