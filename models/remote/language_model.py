"""A language model behind `/v1/chat/completions`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Protocol

from models.errors import RemoteModelError
from models.protocols import ChatPrompt, LlmOutput, Measured, TextDelta
from models.remote.chat_request import CHARACTERS_PER_TOKEN, STREAM_OPTIONS, ChatRequestBuilder
from models.remote.chat_stream_parser import ChatStreamParser
from models.remote.client import RemoteModelClient, RequestAttempt, RequestBody, ResponseBody
from models.remote.json_safety import parse_json
from models.remote.sse_parser import MOST_BYTES as MOST_AT_ONCE
from models.remote.sse_parser import SseParser

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of an answer, with all that its protocol puts around each word."""
USAGE_S: Final = 0.1
"""What an answer took comes within this time after it, or not at all."""
MOST_UNTOLD: Final = 3
_DONE: Final = "[DONE]"
_PATH: Final = "/chat/completions"


class RequestWriter(Protocol):
    """Writes a request; `counted`: one that asks how many tokens it took."""

    def __call__(self, *, counted: bool) -> bytes:
        """UTF-8 JSON."""


class RemoteLanguageModel:
    """See `LanguageModel`. Calls of tools come when the answer is complete: one that breaks off has called none."""

    measured: Measured = "on another machine"

    def __init__(self, endpoint: RemoteModelClient) -> None:
        self.name = endpoint.model.name
        self.context_length: Final = endpoint.model.context_length
        self._endpoint = endpoint
        self._requests = ChatRequestBuilder(endpoint.model)
        self._counts = True  # whether to ask the server to count
        self._untold = 0  # answers in a row of which it did not say what they took
        self._ids = (f"call{number % 100_000:05d}" for number in itertools.count(1))

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. Raises `RemoteModelError`; it is asked again by itself only before the first
        part."""
        with self._endpoint.attempt() as turn:
            async with aclosing(
                self._with_retries(turn, prompt, partial(self._requests.streaming_request, prompt))
            ) as parts:
                async for part in parts:
                    yield part

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`. Time for the first word is all of the time: nobody waits at the
        telephone. Raises `RemoteModelError` also for what is no JSON, or was cut off."""
        with self._endpoint.attempt(self._endpoint.model.timeouts.total_s) as turn:
            async with aclosing(
                self._with_retries(turn, prompt, partial(self._requests.json_request, prompt, schema))
            ) as parts:
                said = [part.text async for part in parts if isinstance(part, TextDelta)]
            parse_json(text := "".join(said), counts=False)
        return text

    async def _with_retries(
        self, turn: RequestAttempt, prompt: ChatPrompt, write: RequestWriter
    ) -> AsyncGenerator[LlmOutput, None]:
        counted = self._counts
        body = RequestBody(write(counted=counted))
        while True:
            try:
                async with aclosing(self._once(turn, prompt, body)) as parts:
                    async for part in parts:
                        turn.begun, self._counts = True, counted
                        yield part
                return
            except RemoteModelError as trouble:
                if counted and trouble.kind == "refused" and STREAM_OPTIONS in trouble.message and not turn.begun:
                    counted = False  # there are servers that refuse what they do not know
                    body = RequestBody(write(counted=False))
                else:
                    await self._endpoint.wait_to_retry(turn, trouble)

    async def _once(
        self, turn: RequestAttempt, prompt: ChatPrompt, body: RequestBody
    ) -> AsyncGenerator[LlmOutput, None]:
        """The answer to one request."""
        answer = ChatStreamParser(self._ids)
        said = False
        try:
            async with (
                self._endpoint.request(turn, _PATH, body, max_bytes=MOST_BYTES) as reading,
                aclosing(self._texts(turn, reading, answer)) as texts,
            ):
                async for text in texts:
                    said = True
                    yield TextDelta(text)
        finally:
            self._count_tokens(prompt, answer)
        calls = answer.calls()
        if not (said or calls):
            raise RemoteModelError("broken", "answers nothing", counts=False)
        for call in calls:
            yield call

    def _count_tokens(self, prompt: ChatPrompt, answer: ChatStreamParser) -> None:
        """What the server says that an answer took. It cannot say so of one that was broken off: that is estimated."""
        if prompt.tokens is None or not answer.characters:
            return
        believed = self._requests.estimated_tokens(prompt), answer.characters // CHARACTERS_PER_TOKEN
        prompt.tokens.count_reported(*(answer.usage or believed))

    async def _texts(
        self, turn: RequestAttempt, reading: ResponseBody, answer: ChatStreamParser
    ) -> AsyncGenerator[str, None]:
        """What is to be said, until the answer is complete. Until something of it has come, the time for the first word
        runs; then that between two words."""
        clock, limits = self._endpoint.clock, self._endpoint.model.timeouts
        whole_until = clock() + limits.total_s
        until, seen = turn.first_word_by, 0
        async with aclosing(_data(reading, lambda: min(until, whole_until))) as chunks:
            async for data in chunks:
                if data.strip() == _DONE:
                    break
                if text := answer.feed(parse_json(data)):
                    yield text
                if answer.finished:
                    await self._read_usage(chunks, answer)
                    break
                if answer.progress > seen and (turn.begun or answer.has_calls):
                    seen, until = answer.progress, clock() + limits.between_words_s
            else:
                if not answer.finished:
                    raise RemoteModelError("unreachable", "broke off")
        if rest := answer.rest():
            yield rest

    async def _read_usage(self, chunks: AsyncGenerator[str, None], answer: ChatStreamParser) -> None:
        """What the answer took comes behind it, usually at once. It is not waited for long: the caller hears the
        last sentence only then. A server that never tells is not waited for at all."""
        if answer.usage is not None or self._untold >= MOST_UNTOLD:
            return
        with suppress(RemoteModelError, TimeoutError):  # the answer itself is complete
            async with asyncio.timeout(USAGE_S):
                async for data in chunks:
                    if data.strip() != _DONE:
                        answer.feed(parse_json(data))
                    if answer.usage is not None or data.strip() == _DONE:
                        break
        self._untold = 0 if answer.usage is not None else self._untold + 1


async def _data(reading: ResponseBody, until: Callable[[], float]) -> AsyncGenerator[str, None]:
    """The JSON texts of an answer: one, where the server does not stream."""
    if reading.content_type == "application/json":
        content = bytearray()
        while chunk := await reading.read(until()):
            content += chunk
            if len(content) > MOST_AT_ONCE:  # all calls wait while JSON is read
                raise RemoteModelError("broken", "sends an answer that is longer than it may be")
        yield content.decode("utf-8", "replace")
        return
    events = SseParser()
    while chunk := await reading.read(until()):
        for event in events.feed(chunk):
            yield event
    for event in events.finish():
        yield event
