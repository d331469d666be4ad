"""Ready decoders and the worker threads that run them for all streams.

A decoder is lent for one turn, not for one call: it takes 90 MB, and most callers are silent most of the time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

import structlog

from models.pocketsphinx_library import Decoder

_NICENESS: Final = 5
"""Decoding gives way to the threads that move sound."""

_log = structlog.get_logger()


class Job(Protocol):
    """Something with work to do in order: a stream."""

    def step(self) -> bool:
        """Do a little of it in a worker thread; True when more is waiting and nothing stands in its way."""


class Workers:
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


class DecoderPool:
    """Decoders of one make: `ready` of them at once, up to `limit` as they are asked for."""

    def __init__(self, load: Callable[[], Decoder], ready: int, limit: int) -> None:
        self._load = load
        self._limit = limit
        self._lock = threading.Lock()
        self._idle = [load() for _ in range(ready)]
        self._count = ready
        self._waiting: deque[Callable[[], None]] = deque()

    def lend(self, when_free: Callable[[], None]) -> Decoder | None:
        """A decoder, newly loaded (0.25 s) if none is idle; None at the limit: `when_free` is called once then, as soon
        as it is worth asking again. Raises `StartupError`."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._count >= self._limit:
                self._waiting.append(when_free)
                return None
            self._count += 1
            count = self._count
        try:
            decoder = self._load()
        except Exception:
            self._forget_one()
            raise
        _log.info("stt.decoder_added", decoders=count, limit=self._limit)
        return decoder

    def give_back(self, decoder: Decoder) -> None:
        """Take back a decoder that has ended its utterance."""
        with self._lock:
            self._idle.append(decoder)
            waiting = self._waiting.popleft() if self._waiting else None
        if waiting is not None:
            waiting()

    def drop(self, decoder: Decoder) -> None:
        """Take back a decoder that failed; it is freed, and another may be loaded in its place."""
        decoder.free()
        self._forget_one()

    def close(self) -> None:
        """Free all idle decoders; those on loan are freed by `drop`."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for decoder in idle:
            decoder.free()

    def _forget_one(self) -> None:
        with self._lock:
            self._count -= 1
            waiting = self._waiting.popleft() if self._waiting else None
        if waiting is not None:
            waiting()
