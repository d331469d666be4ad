"""Spots phrases in speech of which the recognizer understands too little, such as announcements in noise.

A keyphrase search compares each phrase with a loop of all phones: it costs a tenth of recognition, and finds phrases
of three words and more in noise in which the recognizer's words are wrong. It says nothing about other words."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import structlog

from config.errors import TrunklineError
from media.audio_port import Samples
from models.runtime.worker_threads import WorkerThreads
from models.stt.pocketsphinx.bindings import Decoder
from models.stt.pocketsphinx.decoder_pool import DecoderPool
from models.stt.pocketsphinx.dither import WidebandInput
from models.stt.pocketsphinx.narrowband_adaptation import NarrowbandInput

PIECE_MS: Final = 200
"""Audio that is searched at once, ms: the lag of a phrase."""
MAX_BACKLOG_MS: Final = 5000
"""A longer queue means that the machine does not keep up: the oldest audio is dropped."""

SPOTTING_OPTIONS: Final = ("hmm", "dict", "cmninit", "mllr", "loglevel")
"""The settings of recognition that a keyphrase search has, too."""
_THRESHOLD: Final = "1e-20"
"""Likelihood ratio to a loop of all phones from which on a phrase counts."""

_log = structlog.get_logger()


def keyphrase_list(phrases: Sequence[str]) -> str:
    """The phrases as pocketsphinx reads them."""
    return "".join(f"{phrase} /{_THRESHOLD}/\n" for phrase in phrases)


class PocketsphinxSpotter:
    """Spots phrases in one call; see `PhraseSpotter`. Its work is done in order, by one worker at a time. After an
    error, which is logged, it spots nothing."""

    def __init__(
        self,
        workers: WorkerThreads,
        pool: DecoderPool,
        audio_input: NarrowbandInput | WidebandInput,
        rate: int,
        phrases: Sequence[str],
        on_phrase: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._pool = pool
        self._input = audio_input
        self._piece = rate * PIECE_MS // 1000
        self._max_queued = rate * MAX_BACKLOG_MS // 1000
        self._phrases = phrases
        self._on_phrase = on_phrase
        self._lock = threading.Lock()
        self._searched = threading.Condition(self._lock)
        self._blocks: deque[Samples] = deque()
        self._queued = 0
        self._scheduled = False
        self._closed = False
        self._decoder: Decoder | None = None  # only the worker that runs `step`

    def wait_searched(self) -> None:
        """Wait until what was fed has been searched, but for an incomplete piece."""
        with self._lock:
            self._searched.wait_for(lambda: not self._scheduled)

    def feed(self, samples: Samples) -> None:
        """Queue mono samples; returns at once."""
        with self._lock:
            if self._closed or not len(samples):
                return
            self._blocks.append(np.array(samples, dtype=np.int16))
            self._queued += len(samples)
            while self._queued > self._max_queued:
                self._queued -= len(self._blocks.popleft())
            if self._queued >= self._piece:
                self._schedule()

    def close(self) -> None:
        """Free it. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._blocks.clear()
            self._queued = 0
            self._schedule()

    def step(self) -> bool:
        """Search what is queued; for `WorkerThreads`. While it waits for a decoder it counts as scheduled."""
        try:
            if not self._search():
                return False
        except Exception as error:  # noqa: BLE001 - any error ends spotting alone and is logged here
            _log.error("stt.spotting_failed", error=str(error), exc_info=not isinstance(error, TrunklineError))
            self._fail()
        with self._lock:
            must_release = self._closed and self._decoder is not None
            self._scheduled = self._queued >= self._piece or must_release
            if not self._scheduled:
                self._searched.notify_all()
            return self._scheduled

    def _search(self) -> bool:
        """Returns False if there is no decoder yet: then the pool submits this again."""
        if self._closed:
            self._release()
            return True
        if self._decoder is None:
            self._decoder = self._pool.acquire(lambda: self._workers.submit(self))
            if self._decoder is None:
                return False
            self._decoder.start(None)
        with self._lock:
            blocks = list(self._blocks)
            self._blocks.clear()
            self._queued = 0
        if blocks:
            self._decoder.process(self._input.push(np.concatenate(blocks)))
            self._report(self._decoder)
        return True

    def _report(self, decoder: Decoder) -> None:
        """Report what was found, after which the search begins anew."""
        heard = decoder.hypothesis()
        if not heard:
            return
        decoder.end()
        decoder.continue_utterance()
        for phrase in self._phrases:
            if phrase in heard:
                self._on_phrase(phrase)

    def _release(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder is None:
            self._pool.pass_on()
        else:
            decoder.end()
            self._pool.release(decoder)

    def _fail(self) -> None:
        with self._lock:
            self._closed = True
            self._blocks.clear()
            self._queued = 0
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            self._pool.discard(decoder)

    def _schedule(self) -> None:
        """Submit itself to the workers; the lock is held."""
        if not self._scheduled:
            self._scheduled = True
            self._workers.submit(self)
