"""Worker threads that decode the streams of all calls."""

from __future__ import annotations

import os
import threading
import time
from queue import SimpleQueue
from typing import Final, Protocol

import structlog

_NICENESS: Final = 5
"""Decoding gives way to the threads that move sound."""

_log = structlog.get_logger()


class Job(Protocol):
    """Something with work to do in order: a stream."""

    def step(self) -> bool:
        """Do a little of it in a worker thread; True when more is waiting and nothing stands in its way."""


class WorkerThreads:
    """A few threads that give each waiting job a step in turn. A job is in the queue at most once: it sees to that."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._clocks: list[int] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue one step of `job`."""
        self._queue.put(job)

    def worked_s(self) -> float:
        """Seconds of a core that the threads have taken; while they are there."""
        return sum(time.clock_gettime(clock) for clock in list(self._clocks))

    def close(self) -> None:
        """Let the threads finish the steps that are queued, and wait for them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        # On Linux this sets the niceness of the calling thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        while (job := self._queue.get()) is not None:
            if job.step():
                self._queue.put(job)
