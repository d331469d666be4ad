"""The client of one remote model: timeouts within a caller's patience, retries before the first word, a circuit
breaker.

The HTTP client is passed in: it is the house's guarded one, which looks at the addresses that it connects to.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from config.errors import EgressError
from models.errors import RemoteFailureKind, RemoteModelError
from models.remote.circuit_breaker import CircuitBreaker, Permit
from models.remote.config import RemoteModel
from models.remote.json_safety import error_excerpt, parse_json

MOST_ERROR_BYTES: Final = 16 * 1024
"""Read of an answer that is an error."""
TRIES: Final = 3
PAUSES_S: Final = (0.1, 0.4)
"""Before the second and the third try, at least; half as much more by chance, so that calls do not come all at once."""
_SOON_ENOUGH_S: Final = 0.3
"""What must be left of the time for a try to be worth it."""
_TELLS_NOTHING: Final = 4
"""Characters that a key may begin with: many begin alike (`sk-`)."""

log = structlog.get_logger()


class HttpReader(Protocol):
    """An answer whose head is there."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up in any case of letters."""

    async def read(self, within_s: float) -> bytes:
        """The next bytes, b"" at the end. Raises `EgressError`."""


class HttpClient(Protocol):
    """Sends requests. It follows no redirects and bounds what comes."""

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
        """An answer, until the block ends. Raises `EgressError`."""


@dataclass(frozen=True)
class RequestBody:
    """What is sent."""

    content: bytes
    content_type: str = "application/json"


@dataclass
class RequestAttempt:
    """One answer that is wanted. `first_word_by`: when its first word must be there, by `clock`."""

    first_word_by: float
    begun: bool = False
    """Something of the answer was given on: it is not asked for again."""
    tries: int = 1


class ResponseBody:
    """An answer that is read, each read within its time."""

    def __init__(self, reader: HttpReader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self.content_type: Final = reader.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def read(self, until: float) -> bytes:
        """The next bytes, b"" at the end. Raises `RemoteModelError`."""
        left = until - self._clock()
        if left <= 0:
            raise RemoteModelError("late", "took too long")
        try:
            return await self._reader.read(left)
        except EgressError as error:
            raise _error_of(error) from error


class RemoteModelClient:
    """One remote model's server. `clock` gives seconds; between two tries there are `pauses_s`."""

    def __init__(self, model: RemoteModel, http: HttpClient) -> None:
        self.model: Final = model
        self.breaker: Final = CircuitBreaker()
        self.clock: Callable[[], float] = time.monotonic
        self.pauses_s = PAUSES_S
        self._http = http

    @contextmanager
    def attempt(self, first_s: float | None = None) -> Iterator[RequestAttempt]:
        """One answer, which the breaker must allow and hears about; `first_word_s`: seconds for its first word, by
        default those of the model's limits. Raises `RemoteModelError`, whose message names the model."""
        name = self.model.name
        if (permit := self.breaker.acquire(self.clock())) is None:
            wait_s = self.breaker.wait_s(self.clock())
            raise RemoteModelError("resting", f"{name} failed several times and is not asked for {wait_s:.0f} s")
        turn = RequestAttempt(self.clock() + (self.model.timeouts.first_word_s if first_s is None else first_s))
        try:
            yield turn
        except RemoteModelError as trouble:
            self._note(trouble, permit)
            message = self._without_key(f"{name} {trouble.message}")
            # Not from `trouble` itself: what a server repeats of the key would be told with it.
            raise RemoteModelError(trouble.kind, message, counts=trouble.counts_against_server) from trouble.__cause__
        except BaseException:
            if turn.begun:
                self.breaker.on_success()
            else:
                self.breaker.on_abandoned(permit)
            raise
        else:
            self.breaker.on_success()

    def _note(self, trouble: RemoteModelError, permit: Permit) -> None:
        if not trouble.counts_against_server:
            self.breaker.on_success()  # it is there and answers
        elif self.breaker.on_failure(permit, self.clock()):
            log.warning("remote_model.rests", model=self.model.name, seconds=round(self.breaker.wait_s(self.clock())))

    async def wait_to_retry(self, turn: RequestAttempt, trouble: RemoteModelError) -> None:
        """Wait until it may be asked once more. Raises `trouble` when that would not help, or come too late."""
        tries, turn.tries = turn.tries, turn.tries + 1
        if turn.begun or not trouble.retryable or tries >= TRIES:
            raise trouble
        least = self.pauses_s[tries - 1]
        pause_s = max(least * random.uniform(1.0, 1.5), trouble.retry_after_s or 0.0)
        if self.clock() + pause_s + _SOON_ENOUGH_S > turn.first_word_by:
            raise trouble
        log.info("remote_model.retried", model=self.model.name, what=trouble.kind, after_ms=round(pause_s * 1000))
        await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def request(
        self, turn: RequestAttempt, path: str, body: RequestBody | None, *, max_bytes: int, method: str = "POST"
    ) -> AsyncIterator[ResponseBody]:
        """Send one request, and read what is answered with a status of success. Raises `RemoteModelError`."""
        left = turn.first_word_by - self.clock()
        if left <= 0:
            raise RemoteModelError("late", "took too long")
        connect_s = min(self.model.timeouts.connect_s, left)
        try:
            async with self._http.open(
                method,
                f"{self.model.base_url}{path}",
                headers=self._headers(body),
                body=None if body is None else body.content,
                connect_s=connect_s,
                head_s=left,
                max_bytes=max_bytes,
            ) as reader:
                if not 200 <= reader.status < 300:
                    raise await self._status_error(reader, turn)
                yield ResponseBody(reader, self.clock)
        except EgressError as error:
            raise _error_of(error) from error

    def _headers(self, body: RequestBody | None) -> dict[str, str]:
        headers = {"Accept": "*/*"}
        if body is not None:
            headers["Content-Type"] = body.content_type
        if self.model.key is not None:
            headers["Authorization"] = f"Bearer {self.model.key}"
        return headers

    async def _status_error(self, reader: HttpReader, turn: RequestAttempt) -> RemoteModelError:
        """What a status that is no success says."""
        content = bytearray()
        try:
            while len(content) < MOST_ERROR_BYTES:
                chunk = await reader.read(max(0.01, min(0.5, turn.first_word_by - self.clock())))
                if not chunk:
                    break
                content += chunk
        except EgressError:
            content.clear()  # what it has to say is a courtesy
        status, said = reader.status, error_excerpt(bytes(content[:MOST_ERROR_BYTES]))
        message = f"answered with status {status}{f' ({said})' if said else ''}"
        return RemoteModelError(
            _kind_of(status), message,
            retry_after_s=_retry_after_s(reader.headers.get("Retry-After")),
            counts=status not in (400, 413, 422),
        )  # fmt: skip

    async def fetch(self, path: str, body: RequestBody | None, *, max_bytes: int, method: str = "POST") -> bytes:
        """A whole answer, asked for again where that may help, all within the limits. Raises `RemoteModelError`."""
        limits = self.model.timeouts
        whole_until = self.clock() + limits.total_s
        with self.attempt(min(limits.first_word_s, limits.total_s)) as turn:
            while True:
                try:
                    async with self.request(turn, path, body, max_bytes=max_bytes, method=method) as reading:
                        content = bytearray()
                        while chunk := await reading.read(min(self.clock() + limits.between_words_s, whole_until)):
                            content += chunk
                        return bytes(content)
                except RemoteModelError as trouble:
                    await self.wait_to_retry(turn, trouble)

    async def list_models(self) -> list[str]:
        """The names of the models that the server lists. Raises `RemoteModelError`."""
        listed = parse_json(await self.fetch("/models", None, max_bytes=1024 * 1024, method="GET"))
        entries = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(entries, list):
            raise RemoteModelError("broken", f"{self.model.name} lists no models")
        ids = (entry.get("id") for entry in entries if isinstance(entry, dict))
        return [each for each in ids if isinstance(each, str)]

    def _without_key(self, text: str) -> str:
        """A server's words are cut off at some length: the beginning of a key is not told either."""
        key = self.model.key
        if not key:
            return text
        for length in range(len(key), min(_TELLS_NOTHING, len(key) - 1), -1):
            text = text.replace(key[:length], "[key]")
        return text


def _error_of(error: EgressError) -> RemoteModelError:
    match error.kind:
        case "refused":
            return RemoteModelError("refused", f"cannot be used: {error.message}")
        case "timeout":
            return RemoteModelError("late", f"took too long: {error.message}")
        case "connection":
            return RemoteModelError("unreachable", f"cannot be reached: {error.message}")


def _kind_of(status: int) -> RemoteFailureKind:
    if status in (429, 503):
        return "busy"
    return "failing" if status >= 500 else "refused"


def _retry_after_s(retry_after: str | None) -> float | None:
    """Of a `Retry-After` that is a number; a date would be later than a caller waits."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 3600.0
