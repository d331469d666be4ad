"""Batched decoding: each thread takes the next chunk of every call that has one ready, all in one run of the network.

A batch does not wait until it is full: chunks that become ready during a run are the next batch. Streams whose text is
awaited go first, in batches of their own, because a small batch takes less time."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import structlog

from config.errors import TrunklineError
from models.runtime.thread_priority import lower_thread_priority

_MAX_AWAITED_RUNS: Final = 4
"""Maximum number of runs in a row for awaited streams alone: those that end a turn, and one more."""
_NICENESS: Final = 5
"""Decoding has a lower priority than the threads of the audio."""

_log = structlog.get_logger()


class Decodable(Protocol):
    """A stream as seen by the decoding thread, which alone calls its methods."""

    @property
    def recognizer_stream(self) -> Any:
        """sherpa-onnx's stream."""

    @property
    def is_awaited(self) -> bool:
        """True if a caller waits for its text."""

    @property
    def must_run_alone(self) -> bool:
        """True if its next chunk must be decoded in a run of its own."""

    def prepare(self) -> bool:
        """Do all work that needs no network; returns True when the next chunk is ready for it."""

    def on_decoded(self) -> None:
        """The chunk has been decoded."""

    def retry(self) -> bool:
        """A run has failed and lost the recognizer's state: start the turn again, and run that chunk alone; returns
        False if it cannot."""

    def fail(self, error: Exception) -> None:
        """Its work has raised an error."""


class Batcher:
    """One decoding thread, and its streams."""

    def __init__(self, recognizer: Any, name: str, max_batch: int) -> None:
        """`max_batch`: streams in one run."""
        self._recognizer = recognizer
        self._max_batch = max_batch
        self._awaited_runs = 0
        self._woken: SimpleQueue[Decodable | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self, stream: Decodable) -> None:
        """A stream has work. Returns at once; any thread."""
        self._woken.put(stream)

    def close(self) -> None:
        """Do the work that is ready, then stop the thread; waits for it."""
        self._woken.put(None)
        self._thread.join()

    def _run(self) -> None:
        lower_thread_priority(_NICENESS)
        active: dict[Decodable, None] = {}
        running = True
        while running or active:
            if not active and (stream := self._woken.get()) is not None:
                active[stream] = None
            elif not active:
                return
            running = self._take_woken(active) and running
            self._step(active)

    def _take_woken(self, active: dict[Decodable, None]) -> bool:
        """False when the thread is to stop."""
        try:
            while (stream := self._woken.get_nowait()) is not None:
                active[stream] = None
        except Empty:
            return True
        return False

    def _step(self, active: dict[Decodable, None]) -> None:
        """Decode one chunk of every active stream; streams without a ready chunk become inactive."""
        for stream in list(active):
            if not _try_prepare(stream):
                del active[stream]
        batch = self._select_batch(active)
        if not batch:
            return
        for stream in batch:
            active[stream] = active.pop(stream)
        try:
            self._recognizer.decode_streams([stream.recognizer_stream for stream in batch])
        except Exception as error:  # noqa: BLE001 - the recognizer's state is lost for all turns of the batch
            _log.warning("stt.run_failed", turns=len(batch), error=str(error))
            for stream in batch:
                if len(batch) == 1 or not _try_retry(stream):
                    _fail(stream, error)
            return
        for stream in batch:
            try:
                stream.on_decoded()
            except Exception as error:  # noqa: BLE001 - any error ends this turn alone and is logged there
                _fail(stream, error)

    def _select_batch(self, active: dict[Decodable, None]) -> list[Decodable]:
        """Of the awaited streams, or of all, those that were decoded longest ago."""
        awaited = [stream for stream in active if stream.is_awaited]
        if awaited and self._awaited_runs < _MAX_AWAITED_RUNS:
            self._awaited_runs += 1
            return self._batch_of(awaited)
        self._awaited_runs = 0
        return self._batch_of(list(active))

    def _batch_of(self, streams: list[Decodable]) -> list[Decodable]:
        """The first streams that can be decoded in one run."""
        if streams and streams[0].must_run_alone:
            return streams[:1]
        return [stream for stream in streams if not stream.must_run_alone][: self._max_batch]


def _try_retry(stream: Decodable) -> bool:
    try:
        return stream.retry()
    except Exception as error:  # noqa: BLE001 - its turn fails with the error of the run
        _log.error("stt.again_failed", error=str(error), exc_info=True)
        return False


def _try_prepare(stream: Decodable) -> bool:
    try:
        return stream.prepare()
    except Exception as error:  # noqa: BLE001 - any error ends this turn alone and is logged there
        _fail(stream, error)
        return False


def _fail(stream: Decodable, error: Exception) -> None:
    _log.error("stt.failed", error=str(error), exc_info=not isinstance(error, TrunklineError))
    stream.fail(error)
