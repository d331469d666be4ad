"""Errors of a model on another machine."""

from __future__ import annotations

from typing import Final, Literal

from config.errors import ModelError

RemoteFailureKind = Literal["unreachable", "late", "busy", "failing", "refused", "broken", "resting"]
"""unreachable: no connection, or it broke off. late: a time-out. busy: 429 or 503. failing: another 5xx. refused: the
server, or our own rules, want no such request. broken: what came is no answer. resting: it failed often, so nobody asks
it."""


class RemoteModelError(ModelError):
    """One answer of a remote model failed. `retry_after_s` is what the server asked us to wait. A message holds no key,
    and of the server's own words only few."""

    def __init__(
        self, what: RemoteFailureKind, message: str, *, retry_after_s: float | None = None, counts: bool = True
    ) -> None:
        """`counts`: it says something about the server, not only about this request."""
        super().__init__(message)
        self.kind: Final = what
        self.retry_after_s: Final = retry_after_s
        self.counts_against_server: Final = counts and what != "resting"

    @property
    def retryable(self) -> bool:
        """True if to ask again could help."""
        return self.kind in ("unreachable", "busy", "failing")
