"""The client of one remote model: timeouts, retries before the first token, a circuit breaker, and a limit of requests.

The HTTP client is a parameter: `calls.http_egress`, which checks the addresses that it connects to.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from config.errors import HttpEgressError
from models.errors import RemoteFailureKind, RemoteModelError
from models.remote.circuit_breaker import CircuitBreaker, CircuitState, Permit
from models.remote.config import RemoteModel
from models.remote.json_safety import error_excerpt, parse_json
from models.remote.outcomes import RemoteOutcomes
from models.remote.request_queue import DEFAULT_LIMIT, Priority, RequestQueue

MAX_ERROR_BYTES: Final = 16 * 1024
"""Bytes of an error response that are read."""
MAX_TRIES: Final = 3
RETRY_PAUSES_S: Final = (0.1, 0.4)
"""Least seconds before the second and the third try; up to half is added at random, so that retries spread."""
_MIN_TRY_S: Final = 0.3
"""Least remaining seconds for another try."""
MAX_RETRY_AFTER_S: Final = 1.0
"""A caller waits no longer for a server that asks to be asked later: the next model responds."""
MAX_QUEUE_WAIT_S: Final = 1.0
"""The same for a free place among this node's requests, and at most a quarter of the time for the first token."""
_UNTELLING_PREFIX: Final = 4
"""Characters of a key's prefix that need no masking, because many keys share them (`sk-`)."""

log = structlog.get_logger()


class HttpReader(Protocol):
    """A response after its headers."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""

    @property
    def reused(self) -> bool:
        """True if it came on the connection of an earlier request."""

    async def read(self, within_s: float) -> bytes:
        """The next bytes, b"" at the end. Raises `HttpEgressError`."""

    def complete(self) -> None:
        """What remains of the response is not needed: its connection can serve the next request."""


class HttpClient(Protocol):
    """Sends requests, without redirects and with bounded responses."""

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        connect_s: float,
        head_s: float,
        max_bytes: int,
    ) -> AbstractAsyncContextManager[HttpReader]:
        """The response, until the block ends. Raises `HttpEgressError`."""


@dataclass(frozen=True)
class RequestBody:
    """Content and type of a request's body."""

    content: bytes
    content_type: str = "application/json"


@dataclass
class RequestAttempt:
    """A request with its retries. `first_word_by`: deadline of the first token, by `clock`."""

    first_word_by: float
    begun: bool = False
    """True after the first part of the response was passed on: no retry."""
    tries: int = 1


class ResponseBody:
    """A response's body; each read has a deadline."""

    def __init__(self, reader: HttpReader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self.content_type: Final = reader.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def complete(self) -> None:
        """What remains of the response is not needed."""
        self._reader.complete()

    async def read(self, deadline_s: float) -> bytes:
        """The next bytes, b"" at the end. Raises `RemoteModelError`."""
        remaining_s = deadline_s - self._clock()
        if remaining_s <= 0:
            raise RemoteModelError("late", "took too long")
        try:
            return await self._reader.read(remaining_s)
        except HttpEgressError as error:
            raise _remote_error(error) from error


class RemoteModelClient:
    """The client of one remote model's server. `clock` returns seconds; `pauses_s` are those between tries."""

    def __init__(
        self,
        model: RemoteModel,
        http: HttpClient,
        outcomes: RemoteOutcomes | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        """`outcomes` gets how each request ended. `limit`: requests of this node that are under way at once."""
        self.model: Final = model
        self._outcomes = RemoteOutcomes() if outcomes is None else outcomes
        self.breaker: Final = CircuitBreaker()
        self.clock: Callable[[], float] = time.monotonic
        self.queue: Final = RequestQueue(model.name, limit, lambda: self.clock())
        self._outcomes.queues[model.name] = self.queue
        self.pauses_s = RETRY_PAUSES_S
        self._http = http

    @asynccontextmanager
    async def attempt(
        self, first_s: float | None = None, priority: Priority = Priority.LIVE
    ) -> AsyncIterator[RequestAttempt]:
        """A request that the limit and the circuit breaker permit, and which the breaker counts. `first_s`: seconds for
        the first token, by default the model's timeout. Raises `RemoteModelError`, whose message names the model."""
        first_s = self.model.timeouts.first_word_s if first_s is None else first_s
        attempt = RequestAttempt(self.clock() + first_s)
        outcome: str = "ok"
        try:
            if self.breaker.state(self.clock()) is CircuitState.OPEN:  # it does not wait for a place
                raise self._resting()
            async with self.queue.slot(priority, _queue_wait_s(priority, first_s)), self._counted(attempt):
                yield attempt
        except RemoteModelError as error:
            outcome = error.kind
            raise
        except BaseException:
            outcome = "ok" if attempt.begun else "cancelled"
            raise
        finally:
            self._outcomes.counts[self.model.name, outcome] += 1

    @asynccontextmanager
    async def _counted(self, attempt: RequestAttempt) -> AsyncIterator[None]:
        """The circuit breaker permits and counts the request of the block."""
        if (permit := self.breaker.acquire(self.clock())) is None:
            raise self._resting()
        try:
            yield
        except RemoteModelError as error:
            self._report_error(error, permit)
            message = self._without_key(f"{self.model.name} {error.message}")
            self._outcomes.record(self.model.name, message)
            # Not from `error` itself, whose message may hold the key.
            raise RemoteModelError(error.kind, message, counts=error.counts_against_server) from error.__cause__
        except BaseException:
            if attempt.begun:
                self.breaker.on_success()
            else:
                self.breaker.on_abandoned(permit)
            raise
        else:
            self.breaker.on_success()
            self._outcomes.record(self.model.name, None)

    def _resting(self) -> RemoteModelError:
        wait_s = self.breaker.wait_s(self.clock())
        message = f"{self.model.name} failed several times and is not asked for {wait_s:.0f} s"
        return RemoteModelError("resting", message)

    def _report_error(self, error: RemoteModelError, permit: Permit) -> None:
        if not error.counts_against_server:
            self.breaker.on_success()  # the server responds
        elif self.breaker.on_failure(permit, self.clock()):
            log.warning("remote_model.rests", model=self.model.name, seconds=round(self.breaker.wait_s(self.clock())))

    async def wait_to_retry(self, attempt: RequestAttempt, error: RemoteModelError) -> None:
        """Wait for the next try. Raises `error` if a retry would not help or come too late."""
        tries, attempt.tries = attempt.tries, attempt.tries + 1
        if attempt.begun or not error.retryable or tries >= MAX_TRIES:
            raise error
        if (error.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
            raise error
        min_pause_s = self.pauses_s[tries - 1]
        pause_s = max(min_pause_s * random.uniform(1.0, 1.5), error.retry_after_s or 0.0)
        if self.clock() + pause_s + _MIN_TRY_S > attempt.first_word_by:
            raise error
        log.info("remote_model.retried", model=self.model.name, what=error.kind, after_ms=round(pause_s * 1000))
        await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def request(
        self, attempt: RequestAttempt, path: str, body: RequestBody | None, *, max_bytes: int, method: str = "POST"
    ) -> AsyncIterator[ResponseBody]:
        """Send one request. The body of a successful response; raises `RemoteModelError` for another status."""
        remaining_s = attempt.first_word_by - self.clock()
        if remaining_s <= 0:
            raise RemoteModelError("late", "took too long")
        connect_s = min(self.model.timeouts.connect_s, remaining_s)
        try:
            async with self._http.open(
                method,
                f"{self.model.base_url}{path}",
                headers=self._headers(body),
                body=None if body is None else body.content,
                connect_s=connect_s,
                head_s=remaining_s,
                max_bytes=max_bytes,
            ) as reader:
                self._outcomes.connections[self.model.name, "kept" if reader.reused else "new"] += 1
                if not 200 <= reader.status < 300:
                    raise await self._status_error(reader, attempt)
                yield ResponseBody(reader, self.clock)
        except HttpEgressError as error:
            raise _remote_error(error) from error

    def _headers(self, body: RequestBody | None) -> dict[str, str]:
        headers = {"Accept": "*/*"}
        if body is not None:
            headers["Content-Type"] = body.content_type
        if self.model.key is not None:
            headers["Authorization"] = f"Bearer {self.model.key}"
        return headers

    async def _status_error(self, reader: HttpReader, attempt: RequestAttempt) -> RemoteModelError:
        """The error of a status that is no success, with an excerpt of the body."""
        content = bytearray()
        try:
            while len(content) < MAX_ERROR_BYTES:
                chunk = await reader.read(max(0.01, min(0.5, attempt.first_word_by - self.clock())))
                if not chunk:
                    break
                content += chunk
        except HttpEgressError:
            content.clear()  # the excerpt is optional
        status, excerpt = reader.status, error_excerpt(bytes(content[:MAX_ERROR_BYTES]))
        retry_after_s = _retry_after_s(reader.headers.get("Retry-After"))
        overloaded = status == 429 or (status == 503 and retry_after_s is not None)
        if overloaded:
            self.queue.on_refused(retry_after_s)
        message = f"answered with status {status}{f' ({excerpt})' if excerpt else ''}"
        return RemoteModelError(
            _failure_kind(status), message,
            retry_after_s=retry_after_s,
            counts=not overloaded and status not in (400, 413, 422),
        )  # fmt: skip

    async def fetch(
        self,
        path: str,
        body: RequestBody | None,
        *,
        max_bytes: int,
        method: str = "POST",
        priority: Priority = Priority.LIVE,
    ) -> bytes:
        """A complete response, with retries within the timeouts. Raises `RemoteModelError`."""
        limits = self.model.timeouts
        deadline_s = self.clock() + limits.total_s
        async with self.attempt(min(limits.first_word_s, limits.total_s), priority) as attempt:
            while True:
                try:
                    async with self.request(attempt, path, body, max_bytes=max_bytes, method=method) as response:
                        content = bytearray()
                        while chunk := await response.read(min(self.clock() + limits.between_words_s, deadline_s)):
                            content += chunk
                        return bytes(content)
                except RemoteModelError as error:
                    await self.wait_to_retry(attempt, error)

    async def list_models(self) -> list[str]:
        """The names of the server's models. Raises `RemoteModelError`."""
        answer = parse_json(await self.fetch("/models", None, max_bytes=1024 * 1024, method="GET"))
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            raise RemoteModelError("broken", f"{self.model.name} lists no models")
        ids = (entry.get("id") for entry in entries if isinstance(entry, dict))
        return [each for each in ids if isinstance(each, str)]

    def _without_key(self, text: str) -> str:
        """The text with the key masked, also a prefix of it, because an excerpt may cut the key."""
        key = self.model.key
        if not key:
            return text
        for length in range(len(key), min(_UNTELLING_PREFIX, len(key) - 1), -1):
            text = text.replace(key[:length], "[key]")
        return text


def _queue_wait_s(priority: Priority, first_s: float) -> float:
    """The longest wait for a place among this node's requests."""
    match priority:
        case Priority.LIVE:
            return min(MAX_QUEUE_WAIT_S, first_s / 4)
        case Priority.PREFILL:
            return 0.0
        case Priority.BACKGROUND:
            return first_s


def _remote_error(error: HttpEgressError) -> RemoteModelError:
    match error.kind:
        case "refused":
            return RemoteModelError("refused", f"cannot be used: {error.message}")
        case "timeout":
            return RemoteModelError("late", f"took too long: {error.message}")
        case "connection":
            return RemoteModelError("unreachable", f"cannot be reached: {error.message}")


def _failure_kind(status: int) -> RemoteFailureKind:
    if status in (429, 503):
        return "busy"
    return "failing" if status >= 500 else "refused"


def _retry_after_s(retry_after: str | None) -> float | None:
    """Seconds of `Retry-After`; an hour for a date, which is later than a caller waits."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 3600.0
