"""When periodic work runs, also after failures."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from calls.periodic_worker import PeriodicWorker
from storage.database.errors import DISK_FULL, StorageUnavailable

AWAY = "the database cannot be reached"


class Runs:
    """Work that records `is_due` of each run; runs in `failures` fail, the others return `done`."""

    def __init__(self, *failures: str | None, done: bool = True) -> None:
        self.failures = list(failures)
        self.done = done
        self.due: list[bool] = []
        self.worker: PeriodicWorker

    async def work(self) -> bool:
        self.due.append(self.worker.is_due)
        cause = self.failures.pop(0) if self.failures else None
        if cause is not None:
            raise StorageUnavailable(cause, unreachable=cause == AWAY)
        return self.done


async def run_for(seconds: float, worker: PeriodicWorker, runs: Runs, *, at_once: bool = True) -> None:
    runs.worker = worker
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await worker.run(runs.work, at_once=at_once)


async def test_work_runs_at_once_or_after_its_interval() -> None:
    first, later = Runs(), Runs()
    await run_for(0.02, PeriodicWorker("test.failed", 60, 60), first)
    await run_for(0.02, PeriodicWorker("test.failed", 60, 60), later, at_once=False)
    assert (first.due, later.due) == ([True], [])


async def test_work_that_is_woken_runs_besides_its_interval() -> None:
    runs, worker = Runs(), PeriodicWorker("test.failed", 60, 60)
    asyncio.get_running_loop().call_later(0.02, worker.wake)
    await run_for(0.3, worker, runs)
    assert runs.due == [True, False]


async def test_a_wake_does_not_postpone_the_interval() -> None:
    runs, worker = Runs(), PeriodicWorker("test.failed", 0.1, 60)
    for number in range(1, 100):
        asyncio.get_running_loop().call_later(0.01 * number, worker.wake)
    await run_for(1, worker, runs, at_once=False)
    assert sum(runs.due) >= 2


@pytest.mark.parametrize(("cause", "level"), [("locked", "warning"), (DISK_FULL, "debug")])
async def test_a_failure_is_logged_and_the_work_is_tried_again(cause: str, level: str) -> None:
    runs = Runs(cause)
    with capture_logs() as logs:
        await run_for(0.5, PeriodicWorker("test.failed", 60, 0.02, "warning"), runs)
    assert runs.due == [True, True]
    assert logs == [{"event": "test.failed", "log_level": level, "cause": f"storage: {cause}", "again_in_s": 0.02}]


async def test_an_outage_is_logged_once_by_each_worker_until_its_work_succeeds() -> None:
    runs = Runs(*[AWAY] * 3, None, "locked", "locked", AWAY, AWAY)
    with capture_logs() as logs:
        await run_for(0.5, PeriodicWorker("test.failed", 0.001, 0.001), runs)
    causes = [each["cause"].removeprefix("storage: ") for each in logs if each["log_level"] == "error"]
    assert causes == [AWAY, "locked", "locked", AWAY]


async def test_it_is_idle_once_a_run_completed_everything_without_another_wake() -> None:
    runs, worker = Runs(done=False), PeriodicWorker("test.failed", 60, 60)
    runs.worker = worker
    running = asyncio.create_task(worker.run(runs.work))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.wait_idle(), 0.02)
    runs.done = True
    worker.wake()
    await asyncio.wait_for(worker.wait_idle(), 5)
    running.cancel()


async def test_a_wake_during_the_rest_counts_for_the_run_after_it() -> None:
    runs, worker = Runs(), PeriodicWorker("test.failed", 60, 60)
    runs.worker = worker

    async def rest() -> None:
        worker.wake()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await worker.run(runs.work, rest=rest)
    assert len(runs.due) == 1


async def test_a_failure_has_its_cause_under_the_deprecated_field_too() -> None:
    with capture_logs() as logs:
        await run_for(0.02, PeriodicWorker("test.failed", 60, 60, deprecated_field="why"), Runs("locked"))
    (line,) = logs
    assert line["why"] == line["cause"] != ""
