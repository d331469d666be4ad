"""Worker threads that run the jobs of all calls in turn."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Final, Protocol

import structlog

from models.runtime.thread_priority import lower_thread_priority

_NICENESS: Final = 5
"""Niceness of the threads, so that audio threads have priority."""

_log = structlog.get_logger()


class Job(Protocol):
    """Work in steps, such as a recognition stream."""

    def step(self) -> bool:
        """Do one step in a worker thread. Returns True if the next step can follow."""


class WorkerThreads:
    """Threads that run one step of each queued job in turn. A job queues itself at most once."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._cpu_clocks: list[int] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue one step of `job`."""
        self._queue.put(job)

    def cpu_time_s(self) -> float:
        """CPU seconds that the running threads have used."""
        return sum(time.clock_gettime(clock) for clock in list(self._cpu_clocks))

    def close(self) -> None:
        """Finish the queued steps, and wait for the threads' end."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        lower_thread_priority(_NICENESS)
        self._cpu_clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        while (job := self._queue.get()) is not None:
            if job.step():
                self._queue.put(job)
