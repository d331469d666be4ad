"""Scripted models: fixed words and fixed latencies. With no latency what remains is the server's own share of the time;
with typical ones they take as long as good models do today. They wait without using the CPU."""

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
"""The tool call at the end of an answer after which the agent hangs up."""


@dataclass(frozen=True)
class Delays:
    """Latencies of the models, s. `text`: from the end of speech to its text; `settled_text`: the same if only silence
    has followed since an earlier flush, because a streaming recognizer has nothing left to decode then.
    `token`: from the prompt to the answer. `sentence`: synthesis of a sentence."""

    text: float = 0.0
    settled_text: float = 0.0
    token: float = 0.0
    sentence: float = 0.0


NO_DELAYS: Final = Delays()
TYPICAL_DELAYS: Final = Delays(text=0.08, settled_text=0.005, token=0.15, sentence=0.06)
SILENCE_PEAK: Final = 100
"""Audio with a lower peak (int16) is silence: 0.3 % of full scale, more than the noise of G.711."""


class InstantSttStream:
    """Recognizes `WORDS` as soon as there is sound, without latency."""

    def __init__(self, on_words: Callable[[str], None]) -> None:
        self._on_words = on_words
        self._fed = False

    def feed(self, samples: Samples) -> None:
        """Any sound is recognized as `WORDS`."""
        if not self._fed:
            self._fed = True
            self._on_words(WORDS)

    def partial(self) -> str:
        """`WORDS`, or an empty text before any sound."""
        return WORDS if self._fed else ""

    async def flush(self) -> str:
        """Returns the text at once."""
        return self.partial()

    async def end_turn(self) -> str:
        """Returns the text at once."""
        text, self._fed = self.partial(), False
        return text

    def reset(self) -> None:
        """Forgets the sound."""
        self._fed = False

    def close(self) -> None:
        """Does nothing."""


class DelayedSttStream(InstantSttStream):
    """Recognizes `WORDS` as soon as there is sound, and returns the final text after a delay."""

    def __init__(self, on_words: Callable[[str], None], delays: Delays) -> None:
        super().__init__(on_words)
        self._delays = delays
        self._undecoded = False  # speech has come since the last flush
        self._ready_at = 0.0  # `loop.time()` at which the text of the last flush is ready

    def feed(self, samples: Samples) -> None:
        """Silence needs no decoding."""
        super().feed(samples)
        if not self._undecoded and np.abs(samples.astype(np.int32)).max(initial=0) >= SILENCE_PEAK:
            self._undecoded = True

    async def flush(self) -> str:
        """Returns the text after `Delays.text` or `Delays.settled_text`."""
        await self._decode()
        return self.partial()

    async def end_turn(self) -> str:
        """Returns the text after `Delays.text` or `Delays.settled_text`."""
        await self._decode()
        return await super().end_turn()

    async def _decode(self) -> None:
        now = asyncio.get_running_loop().time()
        delay_s = self._delays.text if self._undecoded else self._delays.settled_text
        self._undecoded, self._ready_at = False, max(self._ready_at, now + delay_s)
        await asyncio.sleep(self._ready_at - now)


class ScriptedStt:
    """A speech-to-text model that recognizes `WORDS`."""

    name = "scripted-stt"

    def __init__(self, delays: Delays = NO_DELAYS) -> None:
        self._delays = delays

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """Opens a stream, with delays if there are any."""
        return DelayedSttStream(on_words, self._delays) if self._delays.text else InstantSttStream(on_words)


class ScriptedLlm:
    """A language model that always gives the same answer."""

    name = "scripted-llm"

    def __init__(self, answer: str, delays: Delays = NO_DELAYS) -> None:
        self._text = answer
        self._delays = delays

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Yields the whole answer after `Delays.token`."""
        if self._delays.token:
            await asyncio.sleep(self._delays.token)
        yield TextDelta(self._text)


class ScriptedTts:
    """flite, which synthesizes every text only once."""

    name = "scripted-tts"

    def __init__(self, delays: Delays = NO_DELAYS) -> None:
        self._flite = FliteTextToSpeech()
        self._delays = delays
        self._known: dict[tuple[str, int], SynthesizedSpeech] = {}

    def voices(self) -> Sequence[str]:
        """The voices of flite."""
        return self._flite.voices()

    def language_of(self, voice: str) -> str | None:
        """The language of a voice of flite."""
        return self._flite.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Returns the speech after `Delays.sentence`; the first time later, because it is synthesized then."""
        if self._delays.sentence:
            await asyncio.sleep(self._delays.sentence)
        key = (text, settings.rate)
        if key not in self._known:
            self._known[key] = await self._flite.synthesize(text, settings)
        return self._known[key]

    def close(self) -> None:
        """Ends flite's thread."""
        self._flite.close()


class CertainTurnDetector:
    """An end-of-turn model for which every turn has ended; it is also its own stream."""

    name = "certain"
    latency_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> CertainTurnDetector:
        """Returns itself."""
        return self

    def feed(self, samples: Samples) -> None:
        """Ignores the audio."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Answers with probability 1."""
        answer(1.0)

    def reset(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def scripted_models(answer: str, delays: Delays = NO_DELAYS) -> Catalogue:
    """A catalogue of scripted models."""
    language = ScriptedLlm(answer, delays)
    info = LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True)
    return Catalogue(ScriptedStt(delays), {info: language}, [ScriptedTts(delays)], CertainTurnDetector())
