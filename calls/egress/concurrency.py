"""Concurrency of outbound HTTP requests, shared fairly between organizations."""

from __future__ import annotations

from calls.fair_semaphore import FairSemaphore


class EgressConcurrency(FairSemaphore):
    """The outbound requests that run at once: `limit` in all, and at most `owner_limit` of each organization, so that
    organizations with slow servers leave room for the others, however many they are."""

    def __init__(self, limit: int = 128, owner_limit: int = 32) -> None:
        super().__init__(limit, owner_limit)
