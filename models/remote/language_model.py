"""Remote language model (`/v1/chat/completions`)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Protocol

from models.errors import RemoteModelError
from models.protocols import ChatPrompt, CostSource, LlmOutput, TextDelta
from models.remote.chat_request import CHARACTERS_PER_TOKEN, STREAM_OPTIONS, ChatRequestBuilder
from models.remote.chat_stream_parser import ChatStreamParser
from models.remote.client import RemoteModelClient, RequestAttempt, RequestBody, ResponseBody
from models.remote.json_safety import parse_json
from models.remote.request_queue import Priority
from models.remote.sse_parser import MAX_EVENT_BYTES, SseParser
from models.runtime import request_context

MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a response, at most, with the protocol's overhead per token."""
USAGE_TIMEOUT_S: Final = 0.1
"""Seconds to wait for the usage report after the response."""
MAX_ANSWERS_WITHOUT_USAGE: Final = 3
_DONE: Final = "[DONE]"
_PATH: Final = "/chat/completions"


class RequestFactory(Protocol):
    """Returns a request; `report_usage`: with a usage report."""

    def __call__(self, *, report_usage: bool) -> bytes:
        """UTF-8 JSON."""


class RemoteLanguageModel:
    """See `LanguageModel`. Tool calls are yielded when the response is complete, so that a broken one has none."""

    cost_source: CostSource = "remote"

    def __init__(self, client: RemoteModelClient) -> None:
        self.name = client.model.name
        self.context_length: Final = client.model.context_length
        self._client = client
        self._requests = ChatRequestBuilder(client.model)
        self._asks_for_usage = True  # False after the server has rejected the field
        self._answers_without_usage = 0  # responses in a row without a usage report
        self._ids = (f"call{number % 100_000:05d}" for number in itertools.count(1))

    async def respond(self, prompt: ChatPrompt) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. Retries only before the first part. Raises `RemoteModelError`."""
        async with (
            self._client.attempt() as attempt,
            aclosing(self._with_retries(attempt, prompt, partial(self._requests.streaming_request, prompt))) as parts,
        ):
            async for part in parts:
                yield part

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """See `SupportsJsonSchema.complete_json`. The first token may take the total timeout, because no caller waits
        for it alone. Raises `RemoteModelError` also for invalid or truncated JSON."""
        priority = Priority.LIVE if request_context.current().live else Priority.BACKGROUND
        async with self._client.attempt(self._client.model.timeouts.total_s, priority) as attempt:
            async with aclosing(
                self._with_retries(
                    attempt, prompt, partial(self._requests.json_request, prompt, schema, priority=priority)
                )
            ) as parts:
                has_text = [part.text async for part in parts if isinstance(part, TextDelta)]
            parse_json(text := "".join(has_text), counts=False)
        return text

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`: only of the prompt of a call that begins, because later the server has the
        prompt in its cache up to the last response. Raises `RemoteModelError`, also if there is no free place."""
        if prompt.messages:
            return
        body = RequestBody(self._requests.prefill_request(prompt))
        async with (
            self._client.attempt(priority=Priority.PREFILL) as attempt,
            self._client.request(attempt, _PATH, body, max_bytes=MAX_RESPONSE_BYTES) as response,
        ):
            while await response.read(attempt.first_word_by):
                pass

    async def _with_retries(
        self, attempt: RequestAttempt, prompt: ChatPrompt, write: RequestFactory
    ) -> AsyncGenerator[LlmOutput, None]:
        report_usage = self._asks_for_usage
        body = RequestBody(write(report_usage=report_usage))
        while True:
            try:
                async with aclosing(self._request_once(attempt, prompt, body)) as parts:
                    async for part in parts:
                        attempt.begun, self._asks_for_usage = True, report_usage
                        yield part
                return
            except RemoteModelError as error:
                if report_usage and error.kind == "refused" and STREAM_OPTIONS in error.message and not attempt.begun:
                    report_usage = False  # some servers reject unknown fields
                    body = RequestBody(write(report_usage=False))
                else:
                    await self._client.wait_to_retry(attempt, error)

    async def _request_once(
        self, attempt: RequestAttempt, prompt: ChatPrompt, body: RequestBody
    ) -> AsyncGenerator[LlmOutput, None]:
        """The response to one request."""
        parser = ChatStreamParser(self._ids)
        has_text = False
        try:
            async with (
                self._client.request(attempt, _PATH, body, max_bytes=MAX_RESPONSE_BYTES) as response,
                aclosing(self._text_deltas(attempt, response, parser)) as texts,
            ):
                async for text in texts:
                    has_text = True
                    yield TextDelta(text)
        finally:
            self._count_tokens(prompt, parser)
        calls = parser.calls()
        if not (has_text or calls):
            raise RemoteModelError("broken", "answers nothing", counts=False)
        for call in calls:
            yield call

    def _count_tokens(self, prompt: ChatPrompt, parser: ChatStreamParser) -> None:
        """Add the response's token usage: as reported, or an estimate if it broke off or has no report."""
        if prompt.tokens is None or not parser.characters:
            return
        estimate = self._requests.estimated_tokens(prompt), parser.characters // CHARACTERS_PER_TOKEN
        prompt.tokens.add_reported(*(parser.usage or estimate))

    async def _text_deltas(
        self, attempt: RequestAttempt, response: ResponseBody, parser: ChatStreamParser
    ) -> AsyncGenerator[str, None]:
        """The text until the response is complete. The first-token timeout applies until the first part, then that
        between tokens."""
        clock, limits = self._client.clock, self._client.model.timeouts
        answer_deadline_s = clock() + limits.total_s
        next_deadline_s, seen_progress = attempt.first_word_by, 0
        async with aclosing(_stream_data(response, lambda: min(next_deadline_s, answer_deadline_s))) as chunks:
            async for data in chunks:
                if data.strip() == _DONE:
                    break
                if text := parser.feed(parse_json(data)):
                    yield text
                if parser.finished:
                    await self._read_usage(chunks, parser)
                    break
                if parser.progress > seen_progress and (attempt.begun or parser.has_calls):
                    seen_progress, next_deadline_s = parser.progress, clock() + limits.between_words_s
            else:
                if not parser.finished:
                    raise RemoteModelError("unreachable", "broke off")
        response.complete()
        if rest := parser.rest():
            yield rest

    async def _read_usage(self, chunks: AsyncGenerator[str, None], parser: ChatStreamParser) -> None:
        """Read the usage report after the response, which usually comes at once. The wait is short, because it delays
        the last sentence; it is skipped for a server that never reports."""
        if parser.usage is not None or self._answers_without_usage >= MAX_ANSWERS_WITHOUT_USAGE:
            return
        with suppress(RemoteModelError, TimeoutError):  # the response itself is complete
            async with asyncio.timeout(USAGE_TIMEOUT_S):
                async for data in chunks:
                    if data.strip() != _DONE:
                        parser.feed(parse_json(data))
                    if parser.usage is not None or data.strip() == _DONE:
                        break
        self._answers_without_usage = 0 if parser.usage is not None else self._answers_without_usage + 1


async def _stream_data(response: ResponseBody, next_deadline_s: Callable[[], float]) -> AsyncGenerator[str, None]:
    """The JSON texts of a response: of each event, or one if the server does not stream."""
    if response.content_type == "application/json":
        content = bytearray()
        while chunk := await response.read(next_deadline_s()):
            content += chunk
            if len(content) > MAX_EVENT_BYTES:  # parsing blocks the event loop
                raise RemoteModelError("broken", "sends an answer that is longer than it may be")
        yield content.decode("utf-8", "replace")
        return
    events = SseParser()
    while chunk := await response.read(next_deadline_s()):
        for event in events.feed(chunk):
            yield event
    for event in events.finish():
        yield event
