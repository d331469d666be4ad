"""The requests to remote models, for those who look after them: the last one, counts, and those under way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from config.clock import utc_now
from models.remote.request_queue import RequestQueue


@dataclass(frozen=True)
class RequestOutcome:
    """How a request ended. `problem`: why it failed, None for one that succeeded."""

    at: datetime
    problem: str | None


class RemoteOutcomes:
    """The last outcome and the counts by the model's name. For one event loop."""

    def __init__(self) -> None:
        self._outcomes: dict[str, RequestOutcome] = {}
        self.queues: dict[str, RequestQueue] = {}
        """Of the models that calls use, by name."""
        self.counts = Counter[tuple[str, str]]()
        """Requests by the model's name and their outcome: "ok" or a `RemoteFailureKind`; retries do not count, those
        that were not sent do."""
        self.connections = Counter[tuple[str, str]]()
        """HTTP responses by the model's name and their connection: "kept" or "new"."""

    def record(self, name: str, problem: str | None) -> None:
        """A request to the model has ended."""
        self._outcomes[name] = RequestOutcome(utc_now(), problem)

    def of(self, name: str) -> RequestOutcome | None:
        """The last outcome; None before the first one."""
        return self._outcomes.get(name)
