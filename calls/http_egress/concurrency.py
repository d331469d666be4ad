"""Concurrency limits of outbound HTTP requests, shared fairly by organizations."""

from __future__ import annotations

from calls.fair_semaphore import FairSemaphore


class HttpEgressConcurrency(FairSemaphore):
    """Concurrent outbound requests: `limit` in all, and at most `owner_limit` of each organization, so that any number
    of organizations with slow servers leaves slots for the others."""

    def __init__(self, limit: int = 128, owner_limit: int = 32) -> None:
        super().__init__(limit, owner_limit)
