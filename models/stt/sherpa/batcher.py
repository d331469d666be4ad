"""Batched decoding: each thread takes a piece of audio of every call that has one ready, all in one run of the network.

Nobody waits for a batch to fill: while one is decoded, pieces of other calls become ready, and they are the next one.
Those for whose text a caller waits go before the others, in batches of their own, for a small batch is done sooner.
"""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import structlog

from config.errors import TrunklineError

_FAVOURED: Final = 4
"""So many runs in a row are for those alone whom a caller waits for: what it takes to end a turn, and one more."""
_NICENESS: Final = 5
"""Decoding gives way to the threads that move sound."""

_log = structlog.get_logger()


class Decodable(Protocol):
    """A stream as its thread sees it. Every method is called by that thread alone."""

    @property
    def recognizer_stream(self) -> Any:
        """sherpa-onnx's stream."""

    @property
    def is_awaited(self) -> bool:
        """True if somebody waits for its text."""

    @property
    def must_run_alone(self) -> bool:
        """True if its next piece is to be decoded in a run of its own."""

    def prepare(self) -> bool:
        """Do all that needs no network; True when the next piece is ready for it."""

    def on_decoded(self) -> None:
        """The piece has been decoded."""

    def retry(self) -> bool:
        """A run has failed and lost what it had heard: begin anew, and be `alone` in that place; False: it cannot."""

    def fail(self, error: Exception) -> None:
        """Something went wrong in it."""


class Batcher:
    """One thread, and the streams that it decodes for."""

    def __init__(self, recognizer: Any, name: str, most: int) -> None:
        """At most so many streams are decoded in one run."""
        self._recognizer = recognizer
        self._most = most
        self._favoured = 0
        self._woken: SimpleQueue[Decodable | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self, stream: Decodable) -> None:
        """There is work in a stream. Returns at once, whatever the thread does; any thread."""
        self._woken.put(stream)

    def close(self) -> None:
        """Do what is ready, and stop; waits for it."""
        self._woken.put(None)
        self._thread.join()

    def _run(self) -> None:
        # On Linux this sets the niceness of the calling thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        active: dict[Decodable, None] = {}
        goes_on = True
        while goes_on or active:
            if not active and (stream := self._woken.get()) is not None:
                active[stream] = None
            elif not active:
                return
            goes_on = self._take_woken(active) and goes_on
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
        """One piece of every stream; those that have none left are not active any more."""
        for stream in list(active):
            if not _prepared(stream):
                del active[stream]
        batch = self._chosen(active)
        if not batch:
            return
        for stream in batch:
            active[stream] = active.pop(stream)
        try:
            self._recognizer.decode_streams([stream.recognizer_stream for stream in batch])
        except Exception as error:  # noqa: BLE001 - what the network had heard is lost for all turns of the batch
            _log.warning("stt.run_failed", turns=len(batch), error=str(error))
            for stream in batch:
                if len(batch) == 1 or not _retried(stream):
                    _failed(stream, error)
            return
        for stream in batch:
            try:
                stream.on_decoded()
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends this turn alone and is logged there
                _failed(stream, error)

    def _chosen(self, active: dict[Decodable, None]) -> list[Decodable]:
        """Of those whom a caller waits for, or of all, whoever was decoded longest ago."""
        awaited = [stream for stream in active if stream.is_awaited]
        if awaited and self._favoured < _FAVOURED:
            self._favoured += 1
            return self._together(awaited)
        self._favoured = 0
        return self._together(list(active))

    def _together(self, streams: list[Decodable]) -> list[Decodable]:
        """The first ones that can be decoded in one run."""
        if streams and streams[0].must_run_alone:
            return streams[:1]
        return [stream for stream in streams if not stream.must_run_alone][: self._most]


def _retried(stream: Decodable) -> bool:
    try:
        return stream.retry()
    except Exception as error:  # noqa: BLE001 - its turn is lost, for the reason why the run failed
        _log.error("stt.again_failed", error=str(error), exc_info=True)
        return False


def _prepared(stream: Decodable) -> bool:
    try:
        return stream.prepare()
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends this turn alone and is logged there
        _failed(stream, error)
        return False


def _failed(stream: Decodable, error: Exception) -> None:
    _log.error("stt.failed", error=str(error), exc_info=not isinstance(error, TrunklineError))
    stream.fail(error)
