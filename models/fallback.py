"""Models in a chain: when one fails, the next one answers, so that a caller is never left without.

What was already said of an answer stays said: the next model goes on behind it. It is told what that was, and where it
begins with the same words, those are not said again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from config.errors import ModelError
from models.protocols import (
    AnswerPart,
    ChatMessage,
    ChatPrompt,
    Constrained,
    LanguageModel,
    Prepares,
    SaysWait,
    Speech,
    TextDelta,
    TextToSpeech,
    VoiceSettings,
)
from models.remote.trouble import RemoteTrouble

GO_ON: Final = "(You were cut off. Go on from there. Do not repeat what you have said, and do not excuse yourself.)"
"""The last line of what the next model is asked."""
_WORD: Final = re.compile(r"[^\W_]+")
_MARKS: Final = ".!?\u2026。\uff01\uff1f"
_SENTENCE: Final = re.compile(rf"(?:^|(?<=[{_MARKS}]))\s*(?=\S)")
_ENDED: Final = re.compile(rf"[{_MARKS}:][\"'”\u2019)»]*\s*$")
_BETWEEN: Final = f" ,;:{_MARKS}"

log = structlog.get_logger()


@runtime_checkable
class AnswersAlone(Protocol):
    """A language model that takes nothing up that another one began: it is asked what that was asked."""

    answers_alone: bool


class FallbackLanguageModel:
    """Asks its models in order, the best first. See `LanguageModel`, and `Constrained` for those that can."""

    def __init__(self, name: str, models: Sequence[LanguageModel]) -> None:
        self.name = name
        self.models: Final = tuple(models)

    async def answer(self, prompt: ChatPrompt) -> AsyncGenerator[AnswerPart, None]:
        """See `LanguageModel.answer`. A model that fails after it has called a tool has said enough: it is asked again
        with the tool's result. Raises the error of the last model."""
        said: list[str] = []
        calls = 0
        for place, model in enumerate(self.models):
            behind = Behind("".join(said)) if said else None
            try:
                async with _closing(model.answer(_taken_up(model, prompt, "".join(said)))) as parts:
                    async for part in parts:
                        if not isinstance(part, TextDelta):
                            calls += 1
                            yield part
                        elif text := part.text if behind is None else behind.feed(part.text):
                            said.append(text)
                            yield TextDelta(text)
                if behind is not None and (text := behind.rest()):
                    yield TextDelta(text)
                return
            except ModelError as error:
                self._tell(prompt.call_id, place, error, "".join(said))
                if calls:
                    return
                if place + 1 == len(self.models):
                    raise

    async def prepare(self, prompt: ChatPrompt) -> None:
        """See `Prepares.prepare`: by the best, if it can; the others are not expected to be asked."""
        if isinstance(self.models[0], Prepares):
            await self.models[0].prepare(prompt)

    def expected_wait_s(self) -> float:
        """See `SaysWait`: for the first model; the others are for when it fails, not for when it is busy."""
        first = self.models[0]
        return first.expected_wait_s() if isinstance(first, SaysWait) else 0.0

    @property
    def speed(self) -> Any:
        """Of the first model, as it was measured; None when it was not."""
        return getattr(self.models[0], "speed", None)

    def close(self) -> None:
        """Close those that can be. Idempotent."""
        for model in self.models:
            if callable(close := getattr(model, "close", None)):
                close()

    async def complete(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `Constrained.complete`: by the first model that can and does."""
        able = [model for model in self.models if isinstance(model, Constrained)]
        for place, model in enumerate(able):
            try:
                return await model.complete(prompt, schema)
            except ModelError as error:
                self._tell(prompt.call_id, place, error, "")
                if place + 1 == len(able):
                    raise
        raise ModelError(f"{self.name} cannot be held to a form")

    def _tell(self, call_id: str, place: int, error: ModelError, said: str) -> None:
        following = self.models[place + 1].name if place + 1 < len(self.models) else None
        known = isinstance(error, RemoteTrouble) and error.what == "resting"
        (log.info if known else log.warning)(
            "model.fell_back", call_id=call_id, model=self.models[place].name, to=following, error=error.message,
            said_characters=len(said),
        )  # fmt: skip


def _taken_up(model: LanguageModel, prompt: ChatPrompt, said: str) -> ChatPrompt:
    """What the next model is asked when `said` was said."""
    if not said.strip() or isinstance(model, AnswersAlone):
        return prompt
    talk = (*prompt.messages, ChatMessage("assistant", said), ChatMessage("user", GO_ON))
    return replace(prompt, messages=talk)


class Behind:
    """Puts an answer behind what was `said`. While the answer repeats that, from the beginning or from any sentence on,
    it is held back; what differs from then on is the sentence's own end, or a sentence of its own. Pure."""

    def __init__(self, said: str) -> None:
        self._said = said
        tails = [_words(said[match.end() :]) for match in _SENTENCE.finditer(said)]
        self._tails = [words for words in tails if words]
        self._held = ""
        self._joined = False

    def feed(self, text: str) -> str:
        """What is to be said next of the answer."""
        if self._joined:
            return text
        self._held += text
        words = _words(self._held)
        if self._held[-1:].isalnum():  # the last word may still grow
            words = words[:-1]
        likely = [tail for tail in self._tails if self._agree(tail, words)]
        if not words or any(len(tail) >= len(words) for tail in likely):
            return ""
        return self._join(likely)

    def rest(self) -> str:
        """What was held back, at the end of the answer: all of it, unless it was said already."""
        words = _words(self._held)
        if self._joined or not words or any(tail[: len(words)] == words for tail in self._tails):
            return ""
        return self._join([tail for tail in self._tails if self._agree(tail, words) and len(tail) <= len(words)])

    def _agree(self, tail: list[str], words: list[str]) -> bool:
        """Whether they begin alike. What was said may have ended within its last word."""
        count = min(len(tail), len(words))
        if count == len(tail) and self._said[-1:].isalnum():
            return words[: count - 1] == tail[:-1] and words[count - 1].startswith(tail[-1])
        return words[:count] == tail[:count]

    def _join(self, likely: list[list[str]]) -> str:
        self._joined = True
        if not likely:
            return self._anew(self._held.lstrip())
        tail = max(likely, key=len)
        place = list(_WORD.finditer(self._held))[len(tail) - 1].start() + len(tail[-1])
        rest = self._held[place:]
        if self._said[-1:].isalnum():
            return rest
        return ("" if self._said[-1:].isspace() else " ") + rest.lstrip(_BETWEEN)

    def _anew(self, text: str) -> str:
        """An answer of other words. What begins like the inside of a sentence is taken for the rest of one that is
        open; before anything else an open sentence ends in a pause."""
        if _ENDED.search(self._said) or text[:1].islower() or text[:1].isdigit():
            return text if self._said[-1:].isspace() else f" {text}"
        return f"… {text}"


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


@asynccontextmanager
async def _closing(parts: AsyncIterator[AnswerPart]) -> AsyncIterator[AsyncIterator[AnswerPart]]:
    """The same; closed at the end, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()


class FallbackTextToSpeech:
    """The voice of one call: the chosen one until it fails, from then on the other, so that it changes only once."""

    def __init__(self, first: TextToSpeech, other: TextToSpeech, other_voice: str) -> None:
        """`other_voice` is one of the voices of `other`."""
        self.name = first.name
        self._first = first
        self._other = other
        self._other_voice = other_voice
        self._fell = False

    def voices(self) -> Sequence[str]:
        """Those of the first."""
        return self._first.voices()

    def language_of(self, voice: str) -> str | None:
        """What the first says of it."""
        return self._first.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> Speech:
        """See `TextToSpeech.synthesize`. Raises what the other one raises."""
        if not self._fell:
            try:
                return await self._first.synthesize(text, settings)
            except ModelError as error:
                self._fell = True
                log.warning("voice.fell_back", voice=settings.voice, to=self._other_voice, error=error.message)
        return await self._other.synthesize(text, replace(settings, voice=self._other_voice))
