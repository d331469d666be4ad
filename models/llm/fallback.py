"""Failover between language models: when one fails, the next one answers, so that a caller is never left without an
answer.

What was already said of an answer stays said: the next model goes on behind it. It is told what that was, and where it
begins with the same words, those are not said again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, cast, runtime_checkable

import structlog

from config.errors import ModelError
from models.errors import RemoteModelError
from models.protocols import (
    ChatMessage,
    ChatPrompt,
    Closable,
    LanguageModel,
    LlmOutput,
    Measured,
    ReportsQueueWait,
    SupportsJsonSchema,
    SupportsPrefill,
    TextDelta,
)

GO_ON: Final = "(You were cut off. Go on from there. Do not repeat what you have said, and do not excuse yourself.)"
"""The last line of what the next model is asked."""
_WORD: Final = re.compile(r"[^\W_]+")
_MARKS: Final = ".!?\u2026。\uff01\uff1f"
_SENTENCE: Final = re.compile(rf"(?:^|(?<=[{_MARKS}]))\s*(?=\S)")
_ENDED: Final = re.compile(rf"[{_MARKS}:][\"'”\u2019)»]*\s*$")
_BETWEEN: Final = f" ,;:{_MARKS}"

log = structlog.get_logger()


@runtime_checkable
class CannotContinue(Protocol):
    """A language model that takes nothing up that another one began: it is asked what that was asked."""

    cannot_continue: bool


class FallbackLanguageModel:
    """Asks its models in order, the best first. See `LanguageModel`, and `SupportsJsonSchema` for those that can. A
    model that breaks fails like one that says so, but is told of as a fault."""

    measured: Measured = "as what it wraps"

    def __init__(self, name: str, models: Sequence[LanguageModel]) -> None:
        self.name = name
        self.models: Final = tuple(models)

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. A model that fails after it has called a tool has said enough: it is asked again
        with the tool's result. Raises `ModelError` when the last model fails too."""
        said: list[str] = []
        calls = 0
        for place, model in enumerate(self.models):
            behind = ContinuationFilter("".join(said)) if said else None
            try:
                async with _closing(model.respond(_continuation_prompt(model, prompt, "".join(said)))) as parts:
                    async for part in parts:
                        if not isinstance(part, TextDelta):
                            calls += 1
                            yield part
                        elif text := part.text if behind is None else behind.feed(part.text):
                            said.append(text)
                            yield TextDelta(text)
                if behind is not None and (text := behind.finish()):
                    yield TextDelta(text)
                return
            except Exception as error:
                failure = _log_failure(prompt.call_id, self.models[place:], error, "".join(said))
                if calls:
                    return
                if place + 1 == len(self.models):
                    raise failure from error

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`: by the best, if it can; the others are not expected to be asked."""
        if isinstance(self.models[0], SupportsPrefill):
            await self.models[0].prefill(prompt)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: for the first model; the others are for when it fails, not for when it is busy."""
        first = self.models[0]
        return first.expected_wait_s() if isinstance(first, ReportsQueueWait) else 0.0

    def close(self) -> None:
        """Close those that can be. Idempotent."""
        for model in self.models:
            if isinstance(model, Closable):
                model.close()

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`: by the first model that can and does."""
        able = [model for model in self.models if isinstance(model, SupportsJsonSchema)]
        for place, model in enumerate(able):
            try:
                return await cast(SupportsJsonSchema, model).complete_json(prompt, schema)
            except Exception as error:
                failure = _log_failure(prompt.call_id, able[place:], error, "")
                if place + 1 == len(able):
                    raise failure from error
        raise ModelError(f"{self.name} cannot be held to a form")


def _log_failure(call_id: str, models: Sequence[LanguageModel], error: Exception, said: str) -> ModelError:
    """Tell the log that the first of `models` failed. Returns it as an error of that model."""
    fault = not isinstance(error, ModelError)
    failure = error if isinstance(error, ModelError) else ModelError(f"{models[0].name} broke: {type(error).__name__}")
    known = isinstance(error, RemoteModelError) and error.kind == "resting"
    tell = log.error if fault else log.info if known else log.warning
    tell(
        "model.fell_back", call_id=call_id, model=models[0].name, to=models[1].name if models[1:] else None,
        error=failure.message, said_characters=len(said), exc_info=error if fault else None,
    )  # fmt: skip
    return failure


def flattened(models: Iterable[LanguageModel]) -> list[LanguageModel]:
    """The same in one chain: chains among them give their own models, and no name comes twice."""
    single: dict[str, LanguageModel] = {}
    for model in models:
        for each in flattened(model.models) if isinstance(model, FallbackLanguageModel) else [model]:
            single.setdefault(each.name, each)
    return list(single.values())


def _continuation_prompt(model: LanguageModel, prompt: ChatPrompt, said: str) -> ChatPrompt:
    """What the next model is asked when `said` was said."""
    if not said.strip() or isinstance(model, CannotContinue):
        return prompt
    talk = (*prompt.messages, ChatMessage("assistant", said), ChatMessage("user", GO_ON))
    return replace(prompt, messages=talk)


class ContinuationFilter:
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

    def finish(self) -> str:
        """What was held back, at the end of the answer: all of it, unless it was said already."""
        words = _words(self._held)
        if self._joined or not words or any(tail[: len(words)] == words for tail in self._tails):
            return ""
        return self._join([tail for tail in self._tails if self._agree(tail, words) and len(tail) <= len(words)])

    def _agree(self, tail: list[str], words: list[str]) -> bool:
        """True if they begin alike. What was said may have ended within its last word."""
        count = min(len(tail), len(words))
        if count == len(tail) and self._said[-1:].isalnum():
            return words[: count - 1] == tail[:-1] and words[count - 1].startswith(tail[-1])
        return words[:count] == tail[:count]

    def _join(self, likely: list[list[str]]) -> str:
        self._joined = True
        if not likely:
            return self._anew(self._held.lstrip())
        tail = max(likely, key=len)
        last = list(_WORD.finditer(self._held))[len(tail) - 1]
        rest = self._held[last.start() + _length(last[0], tail[-1]) :]
        if self._said[-1:].isalnum():
            return rest
        if rest[:1] in (".", ",") and rest[1:2].isdigit():  # a number was not over
            return rest[1:] if self._said.endswith(rest[0]) else self._anew(self._held.lstrip())
        return ("" if self._said[-1:].isspace() else " ") + rest.lstrip(_BETWEEN)

    def _anew(self, text: str) -> str:
        """An answer of other words. What begins like the inside of a sentence is taken for the rest of one that is
        open; before anything else an open sentence ends in a pause."""
        if _ENDED.search(self._said) or text[:1].islower() or text[:1].isdigit():
            return text if self._said[-1:].isspace() else f" {text}"
        return f"… {text}"


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _length(word: str, beginning: str) -> int:
    """Characters of a word that are `beginning`, which is casefolded: longer than what is written where there is ß."""
    return next(end for end in range(1, len(word) + 1) if len(word[:end].casefold()) >= len(beginning))


@asynccontextmanager
async def _closing(parts: AsyncIterator[LlmOutput]) -> AsyncIterator[AsyncIterator[LlmOutput]]:
    """The same; closed at the end, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
