"""Fallback between language models: if one fails, the next one takes over, so that the caller always gets a response.

The next model continues the partial response: it is prompted with the text so far, and repetitions of that text are
filtered out.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, cast, runtime_checkable

import structlog

from config.errors import ModelError
from models.errors import RemoteModelError, failure_reason
from models.llm.replicas import ReplicaOrder
from models.protocols import (
    ChatMessage,
    ChatPrompt,
    Closable,
    CostSource,
    LanguageModel,
    LlmOutput,
    ReportsQueueWait,
    SupportsJsonSchema,
    SupportsPrefill,
    TextDelta,
)
from models.runtime import request_context
from models.runtime.request_context import ModelFallback

CONTINUE_INSTRUCTION: Final = (
    "(You were cut off. Go on from there. Do not repeat what you have said, and do not excuse yourself.)"
)
"""The last message of the next model's prompt."""
_WORD: Final = re.compile(r"[^\W_]+")
_PUNCTUATION: Final = ".!?\u2026。\uff01\uff1f"
_SENTENCE_START: Final = re.compile(rf"(?:^|(?<=[{_PUNCTUATION}]))\s*(?=\S)")
_SENTENCE_ENDED: Final = re.compile(rf"[{_PUNCTUATION}:][\"'”\u2019)»]*\s*$")
_SEPARATORS: Final = f" ,;:{_PUNCTUATION}"

log = structlog.get_logger()


@runtime_checkable
class RestartsResponse(Protocol):
    """A language model that does not continue a partial response: on fallback it gets the original prompt."""

    restarts_response: bool


class FallbackLanguageModel:
    """Tries its models in order, the best first. See `LanguageModel`, and `SupportsJsonSchema`. An unexpected exception
    of a model is a failure too, and logged as an error."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, name: str, models: Sequence[LanguageModel], replicas: ReplicaOrder | None = None) -> None:
        """`replicas`: the models that each agent begins with in an order of its own."""
        self.name = name
        self.models: Final = tuple(models)
        self._replicas = replicas

    def _chain(self) -> Sequence[LanguageModel]:
        """The models in the order of the current call's agent."""
        if self._replicas is None:
            return self.models
        return self._replicas.ordered(self.models, request_context.current().agent_id)

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. A failure after a tool call ends the response, because the tool's result leads
        to the next one. Raises `ModelError` if the last model fails too."""
        emitted: list[str] = []
        calls = 0
        chain = self._chain()
        for index, model in enumerate(chain):
            continuation = ContinuationFilter("".join(emitted)) if emitted else None
            try:
                async with _closing_stream(
                    model.respond(_continuation_prompt(model, prompt, "".join(emitted)))
                ) as parts:
                    async for part in parts:
                        if not isinstance(part, TextDelta):
                            calls += 1
                            yield part
                        elif text := part.text if continuation is None else continuation.feed(part.text):
                            emitted.append(text)
                            yield TextDelta(text)
                if continuation is not None and (text := continuation.finish()):
                    yield TextDelta(text)
                return
            except Exception as error:
                failure = _report_failure(prompt.call_id, chain[index:], error, "".join(emitted))
                if calls:
                    return
                if index + 1 == len(chain):
                    raise failure from error

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`: of the first model only."""
        first = self._chain()[0]
        if isinstance(first, SupportsPrefill):
            await first.prefill(prompt)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: of the first model, because the others serve failures and not overload."""
        first = self.models[0]
        return first.expected_wait_s() if isinstance(first, ReportsQueueWait) else 0.0

    def close(self) -> None:
        """Close the models. Idempotent."""
        for model in self.models:
            if isinstance(model, Closable):
                model.close()

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`: by the first model that supports it and does not fail."""
        json_models = [model for model in self._chain() if isinstance(model, SupportsJsonSchema)]
        for index, model in enumerate(json_models):
            try:
                return await cast(SupportsJsonSchema, model).complete_json(prompt, schema)
            except Exception as error:
                failure = _report_failure(prompt.call_id, json_models[index:], error, "")
                if index + 1 == len(json_models):
                    raise failure from error
        raise ModelError(f"{self.name} does not support JSON Schema")


def _report_failure(call_id: str, models: Sequence[LanguageModel], error: Exception, emitted: str) -> ModelError:
    """Log that the first of `models` failed, and tell the call. Returns the failure as a `ModelError`."""
    is_fault = not isinstance(error, ModelError)
    failure = error if isinstance(error, ModelError) else ModelError(f"{models[0].name} broke: {type(error).__name__}")
    known = isinstance(error, RemoteModelError) and error.kind == "resting"
    write_log = log.error if is_fault else log.info if known else log.warning
    write_log(
        "model.fell_back", call_id=call_id, model=models[0].name, to=models[1].name if models[1:] else None,
        error=failure.message, said_characters=len(emitted), exc_info=error if is_fault else None,
    )  # fmt: skip
    to = models[1].name if models[1:] else None
    request_context.current().on_fallback(ModelFallback("llm", models[0].name, to, failure_reason(error)))
    return failure


def flatten_fallbacks(models: Iterable[LanguageModel]) -> list[LanguageModel]:
    """The models as one fallback chain: nested chains are expanded, and each name occurs once."""
    single: dict[str, LanguageModel] = {}
    for model in models:
        for chained in flatten_fallbacks(model.models) if isinstance(model, FallbackLanguageModel) else [model]:
            single.setdefault(chained.name, chained)
    return list(single.values())


def _continuation_prompt(model: LanguageModel, prompt: ChatPrompt, emitted: str) -> ChatPrompt:
    """The prompt that has a model continue the partial response `emitted`."""
    if not emitted.strip() or isinstance(model, RestartsResponse):
        return prompt
    messages = (*prompt.messages, ChatMessage("assistant", emitted), ChatMessage("user", CONTINUE_INSTRUCTION))
    return replace(prompt, messages=messages)


class ContinuationFilter:
    """Joins a continuation to the text already `emitted`. While the continuation repeats that text, from its beginning
    or from any sentence on, it is buffered; the rest either completes the open sentence or is a new one. Pure."""

    def __init__(self, emitted: str) -> None:
        self._emitted = emitted
        suffixes = [_words(emitted[match.end() :]) for match in _SENTENCE_START.finditer(emitted)]
        self._suffixes = [words for words in suffixes if words]
        self._buffer = ""
        self._is_joined = False

    def feed(self, text: str) -> str:
        """The next text to speak, "" while buffering."""
        if self._is_joined:
            return text
        self._buffer += text
        words = _words(self._buffer)
        if self._buffer[-1:].isalnum():  # the last word may still grow
            words = words[:-1]
        candidates = [suffix for suffix in self._suffixes if self._match(suffix, words)]
        if not words or any(len(suffix) >= len(words) for suffix in candidates):
            return ""
        return self._join(candidates)

    def finish(self) -> str:
        """The buffered text at the end of the response, unless it is a repetition."""
        words = _words(self._buffer)
        if self._is_joined or not words or any(suffix[: len(words)] == words for suffix in self._suffixes):
            return ""
        return self._join(
            [suffix for suffix in self._suffixes if self._match(suffix, words) and len(suffix) <= len(words)]
        )

    def _match(self, suffix: list[str], words: list[str]) -> bool:
        """True if one begins with the other. The emitted text may end within a word."""
        count = min(len(suffix), len(words))
        if count == len(suffix) and self._emitted[-1:].isalnum():
            return words[: count - 1] == suffix[:-1] and words[count - 1].startswith(suffix[-1])
        return words[:count] == suffix[:count]

    def _join(self, candidates: list[list[str]]) -> str:
        self._is_joined = True
        if not candidates:
            return self._as_new_sentence(self._buffer.lstrip())
        suffix = max(candidates, key=len)
        last = list(_WORD.finditer(self._buffer))[len(suffix) - 1]
        rest = self._buffer[last.start() + _prefix_length(last[0], suffix[-1]) :]
        if self._emitted[-1:].isalnum():
            return rest
        if rest[:1] in (".", ",") and rest[1:2].isdigit():  # a number was not over
            return rest[1:] if self._emitted.endswith(rest[0]) else self._as_new_sentence(self._buffer.lstrip())
        return ("" if self._emitted[-1:].isspace() else " ") + rest.lstrip(_SEPARATORS)

    def _as_new_sentence(self, text: str) -> str:
        """A continuation that repeats nothing. Text that begins like the inside of a sentence completes the open one;
        other text follows an ellipsis, if a sentence is open."""
        if _SENTENCE_ENDED.search(self._emitted) or text[:1].islower() or text[:1].isdigit():
            return text if self._emitted[-1:].isspace() else f" {text}"
        return f"… {text}"


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _prefix_length(word: str, beginning: str) -> int:
    """Characters of a word that its casefolded prefix `beginning` covers: casefolding may lengthen a text (ß)."""
    return next(end for end in range(1, len(word) + 1) if len(word[:end].casefold()) >= len(beginning))


@asynccontextmanager
async def _closing_stream(parts: AsyncIterator[LlmOutput]) -> AsyncIterator[AsyncIterator[LlmOutput]]:
    """Closes the stream at the end of the block, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
