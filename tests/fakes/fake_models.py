"""Models for calls over real SIP: scripted speech recognition and language model, and flite as text to speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np

from bench.turn.scripted_models import HANG_UP, InstantSttStream
from config.settings import Settings
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.protocols import (
    ChatPrompt,
    LlmOutput,
    SpeechToText,
    SpeechToTextStream,
    SynthesizedSpeech,
    TextDelta,
    TextToSpeech,
    VoiceSettings,
)
from models.tts.flite.text_to_speech import FliteTextToSpeech
from tests.fakes.scripted_call import AlwaysEndOfTurn

BROKEN = "x-broken"
"""The language (a tag of private use), system prompt or text for which a model raises an exception."""


class CertainStt(SpeechToText):
    """Recognizes `bench.turn.scripted_models.WORDS` as soon as there is sound; raises for the language `BROKEN`."""

    name = "certain-stt"

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        if language == BROKEN:
            raise RuntimeError("the speech-to-text model fails")
        return InstantSttStream(on_words)


class PromptedLlm:
    """Answers with its system prompt up to END, at which it hangs up. The system prompt `BROKEN` makes it raise."""

    name = "prompted-llm"

    def __init__(self) -> None:
        self.prompts: list[ChatPrompt] = []

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        if prompt.system == BROKEN:
            raise RuntimeError("the language model fails")
        text, end, _ = prompt.system.partition("END")
        yield TextDelta(text)
        if end:
            yield HANG_UP


class FragileTts(TextToSpeech):
    """flite; raises for a text that contains `BROKEN`."""

    name = "fragile-tts"

    def __init__(self) -> None:
        self._flite = FliteTextToSpeech()

    def voices(self) -> Sequence[str]:
        return self._flite.voices()

    def language_of(self, voice: str) -> str | None:
        return self._flite.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        if BROKEN in text:
            raise RuntimeError("the text-to-speech model fails")
        return await self._flite.synthesize(text, settings)

    def close(self) -> None:
        self._flite.close()


def ready_models(_: Settings) -> Catalogue:
    """A catalogue of these models, as a model loader of the server."""
    language = PromptedLlm()
    info = LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True)
    return Catalogue(CertainStt(), {info: language}, [FragileTts()], AlwaysEndOfTurn())


class NamedVoices(TextToSpeech):
    """Voices of these names, all English, that are silent."""

    name = "named-voices"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def voices(self) -> Sequence[str]:
        return self._names

    def language_of(self, voice: str) -> str | None:
        return "en-US"

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        return SynthesizedSpeech(text, np.zeros(settings.rate, np.int16), settings.rate)


class NamedStt(CertainStt):
    """A recognizer of that name and language."""

    def __init__(self, name: str, language: str) -> None:
        self.name = name
        self.languages = (language,)


def listed_models(
    voices: Sequence[str], language_models: Sequence[LanguageModelInfo], recognized: Sequence[str] = ()
) -> Catalogue:
    """A catalogue whose models are only listed and chosen. `recognized`: languages with a recognizer of their own."""
    model = PromptedLlm()
    return Catalogue(
        CertainStt(), dict.fromkeys(language_models, model), [NamedVoices(voices)], AlwaysEndOfTurn(),
        {language: NamedStt(f"ear of {language}", language) for language in recognized},
    )  # fmt: skip
