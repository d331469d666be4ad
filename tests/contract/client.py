"""A client of the API that checks on every response what the contract says of every response."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPMessage, HTTPResponse
from typing import Any, Final, Self

from tests.contract.published import Published

WINDOW_S: Final = 60
TIMEOUT_S: Final = 20.0
REFUSED: Final = {401: "Invalid API key", 405: "Method not allowed", 429: "Rate limit exceeded"}
BESIDE: Final = {401: {"details"}, 403: {"details", "quota"}, 413: {"quota"}}
"""What else errors of a status may tell."""
OF_LINKS: Final = {"signature": "This link's signature does not match", "expires": "This link has expired"}
"""What a 401 says by the field that its one detail names."""


@dataclass(frozen=True)
class Answer:
    """A response. `body` is None where it is no JSON."""

    status: int
    headers: HTTPMessage
    content: bytes
    body: Any

    @property
    def data(self) -> Any:
        """What the envelope holds."""
        return self.body["data"]

    @property
    def fields(self) -> set[str]:
        """The fields that a validation error names."""
        assert (self.status, self.body["error"]) == (400, "Validation failed"), (self.status, self.body)
        assert all(set(each) == {"field", "message"} and each["message"] for each in self.body["details"])
        return {each["field"] for each in self.body["details"]}


@dataclass
class Client:
    """Requests with one API key, or without one, over one connection."""

    port: int
    key: str | None
    published: Published
    _connection: HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self._connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def with_key(self, key: str | None) -> Self:
        """The same server, another caller."""
        return type(self)(self.port, key, self.published)

    def close(self) -> None:
        self._connection.close()

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A request below `/v1`, `path` with its query, 1 in place of `{n}`; `content` is sent as it is in place of a
        JSON body."""
        path = path.replace("{n}", "1")
        sent = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            content = json.dumps(body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        response, received = self._exchanged(method, f"/v1{path}", content, sent | dict(headers or {}))
        answer = Answer(response.status, response.headers, received, _json(response.headers, received))
        self._check(method, path.partition("?")[0], answer)
        return answer

    def _exchanged(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        try:
            self._connection.request(method, path, content, headers)
            response = self._connection.getresponse()
            return response, response.read()
        except BaseException:
            self._connection.close()
            raise

    def _check(self, method: str, path: str, answer: Answer) -> None:
        _check_headers(answer)
        if method == "HEAD":
            return
        media_type = answer.headers.get_content_type()
        problems = self.published.problems(method, path, answer.status, media_type, answer.body)
        assert problems == [], (method, path, answer.status, problems, answer.body)
        if answer.status >= 400:
            _check_error(answer)


def _json(headers: HTTPMessage, content: bytes) -> Any:
    if headers.get_content_type() != "application/json":
        return None
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    return json.loads(content.decode(), parse_constant=_no_json) if content else None


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _check_headers(answer: Answer) -> None:
    limit, remaining, reset = (int(answer.headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining", "Reset"))
    now = time.time()
    assert 0 <= remaining <= limit > 0
    assert now - 1 <= reset <= now + WINDOW_S + 1
    assert answer.headers["X-Request-Id"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def _check_error(answer: Answer) -> None:
    expected = REFUSED.get(answer.status)
    told = answer.body["error"]
    assert told, answer.body
    if answer.status == 400:
        assert answer.fields
        return
    if answer.status == 401:
        ((field, _),) = (tuple(each.values()) for each in answer.body["details"])
        expected = OF_LINKS.get(field, expected)
    assert set(answer.body) <= {"error", "retryAfter"} | BESIDE.get(answer.status, set()), answer.body
    if (expected is not None and "retryAfter" in answer.body) or answer.status in (401, 405):
        assert told == expected
