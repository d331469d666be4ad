"""A periodic task goes on after a failure, and ends with its block."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from api.periodic_task import PeriodicTask
from storage.database.errors import StorageUnavailable


async def test_a_failure_is_logged_and_the_work_is_run_again_until_the_block_ends() -> None:
    away = StorageUnavailable("the database cannot be reached", unreachable=True)
    failures: list[Exception] = [StorageUnavailable("locked"), ValueError("wrong"), away, away, away]
    runs, succeeded = 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if failures:
            raise failures.pop(0)
        succeeded.set()

    with capture_logs() as logs:
        async with PeriodicTask("test.failed", 0.001, work).running("test"):
            await asyncio.wait_for(succeeded.wait(), 10)
    ended_after = runs
    await asyncio.sleep(0.01)
    assert runs == ended_after
    logged = [(each["event"], each["log_level"]) for each in logs]
    levels = ["warning", "error", "warning", "debug", "debug"]  # an outage once
    assert logged == [("test.failed", level) for level in levels]


async def test_the_first_run_waits_for_the_interval_unless_it_is_to_begin_at_once() -> None:
    runs: list[str] = []

    async def first() -> None:
        runs.append("at once")

    async def later() -> None:
        runs.append("later")

    now = PeriodicTask("test.failed", 60, first).running("first", at_once=True)
    async with now, PeriodicTask("test.failed", 60, later).running("later"):
        await asyncio.sleep(0.01)
    assert runs == ["at once"]
