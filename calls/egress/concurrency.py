"""Concurrency of outbound HTTP requests, shared fairly between organizations."""

from __future__ import annotations

from calls.fair_semaphore import FairSemaphore


class EgressConcurrency(FairSemaphore):
    """How many requests are under way at once: `most` in all, and at most `most_of_one` of each organization, so that
    those with slow servers leave room for the others, however many they are."""

    def __init__(self, limit: int = 128, owner_limit: int = 32) -> None:
        super().__init__(limit, owner_limit)
