"""Errors of remote models."""

from __future__ import annotations

from typing import Final, Literal

from config.errors import ModelError

RemoteFailureKind = Literal["unreachable", "late", "busy", "failing", "refused", "broken", "resting"]
"""unreachable: no connection, or the connection broke. late: a timeout. busy: status 429 or 503. failing: another 5xx.
refused: another status, or the egress rules forbid the request. broken: a malformed response. resting: the circuit
breaker is open."""


class RemoteModelError(ModelError):
    """A request to a remote model failed. `retry_after_s`: seconds of the server's `Retry-After`. The message holds no
    key and at most an excerpt of the server's text."""

    def __init__(
        self, what: RemoteFailureKind, message: str, *, retry_after_s: float | None = None, counts: bool = True
    ) -> None:
        """`counts`: the failure counts for the server's circuit breaker; False if it is specific to the request."""
        super().__init__(message)
        self.kind: Final = what
        self.retry_after_s: Final = retry_after_s
        self.counts_against_server: Final = counts and what != "resting"

    @property
    def retryable(self) -> bool:
        """True if a retry may succeed."""
        return self.kind in ("unreachable", "busy", "failing")


def failure_reason(error: Exception) -> str:
    """Why a model failed: a `RemoteFailureKind`; `failed` for another model's failure, `fault` for an unexpected
    exception."""
    if isinstance(error, RemoteModelError):
        return error.kind
    return "failed" if isinstance(error, ModelError) else "fault"
