"""Models that answer at once, so that what remains is our own share of the time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from media.ports import Samples
from models.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.flite_tts import FliteTextToSpeech
from models.protocols import (
    END_CALL,
    AnswerPart,
    ChatPrompt,
    Speech,
    SpeechToTextStream,
    TextDelta,
    ToolCall,
    VoiceSettings,
)

WORDS = "hello there"
HANG_UP = ToolCall(END_CALL, END_CALL, "{}")
"""The end of an answer after which the agent hangs up."""


class InstantEarStream:
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

    async def settle(self) -> str:
        """At once."""
        return self.partial()

    async def finish(self) -> str:
        """At once."""
        text, self._fed = self.partial(), False
        return text

    def discard(self) -> None:
        """Nothing was heard."""
        self._fed = False

    def close(self) -> None:
        """Nothing to free."""


class InstantEar:
    """`models.protocols.SpeechToText`."""

    name = "instant-ear"

    def open(self, *, rate: int, language: str | None, on_words: Callable[[str], None]) -> SpeechToTextStream:
        """A stream."""
        return InstantEarStream(on_words)


class InstantLanguage:
    """Always gives the same answer."""

    name = "instant-language"

    def __init__(self, answer: str) -> None:
        self._text = answer

    async def answer(self, prompt: ChatPrompt) -> AsyncIterator[AnswerPart]:
        """At once."""
        yield TextDelta(self._text)


class InstantVoice:
    """flite, remembered from the first time on; `prepare` fills the memory."""

    name = "instant-voice"

    def __init__(self) -> None:
        self._flite = FliteTextToSpeech()
        self._known: dict[tuple[str, int], Speech] = {}

    def voices(self) -> Sequence[str]:
        """Those of flite."""
        return self._flite.voices()

    async def synthesize(self, text: str, settings: VoiceSettings) -> Speech:
        """At once, but for the first time."""
        key = (text, settings.rate)
        if key not in self._known:
            self._known[key] = await self._flite.synthesize(text, settings)
        return self._known[key]

    def close(self) -> None:
        """End flite's thread."""
        self._flite.close()


class Sure:
    """Every turn is over when it is asked; its own stream for all calls."""

    name = "sure"
    ahead_ms = 0

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> Sure:
        """The same for all."""
        return self

    def feed(self, samples: Samples) -> None:
        """Sound says nothing."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Always."""
        answer(1.0)

    def discard(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to free."""


def instant_models(answer: str) -> Catalogue:
    """A catalogue of these."""
    language = InstantLanguage(answer)
    info = LanguageModelInfo(language_model_id(language.name), language.name, "builtin", 4096, True)
    return Catalogue(InstantEar(), {info: language}, [InstantVoice()], Sure())
