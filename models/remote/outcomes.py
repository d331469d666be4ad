"""The last request to each remote model, for those who look after them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from config.clock import utc_now


@dataclass(frozen=True)
class RequestOutcome:
    """How a request ended. `problem`: why it failed, None for one that succeeded."""

    at: datetime
    problem: str | None


class RemoteOutcomes:
    """The last outcome by the model's name. For one event loop."""

    def __init__(self) -> None:
        self._outcomes: dict[str, RequestOutcome] = {}

    def record(self, name: str, problem: str | None) -> None:
        """A request to the model has ended."""
        self._outcomes[name] = RequestOutcome(utc_now(), problem)

    def of(self, name: str) -> RequestOutcome | None:
        """The last outcome; None before the first one."""
        return self._outcomes.get(name)
