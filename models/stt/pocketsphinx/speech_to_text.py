"""Speech to text by pocketsphinx: US English, words while the caller speaks, no download."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from weakref import WeakSet

import numpy as np
import structlog

from config.errors import ModelError, TrunklineError
from media.audio_port import Samples
from models.protocols import CostSource
from models.runtime.worker_threads import WorkerThreads
from models.stt.pocketsphinx.bindings import RATE, Decoder, load_library, model_path
from models.stt.pocketsphinx.decoder_pool import DecoderPool
from models.stt.pocketsphinx.dither import DitheredWideBand
from models.stt.pocketsphinx.telephone_band import TelephoneBand, load_adaptation
from models.stt.text_future import TextFuture

NAME: Final = "pocketsphinx"
_TELEPHONE_RATE: Final = 8000
_STEP_MS: Final = 60
"""Sound is decoded in pieces of at least this length: what partial words lag behind."""
_TURN_MS: Final = 240
"""A worker goes on to the next stream after this much sound."""
_BACKLOG_MS: Final = 30_000
"""More than this waiting means that the machine does not keep up: the oldest sound is dropped."""
_TUNING: Final[Mapping[str, str]] = {
    # The second pass runs at the end of the turn, where the caller waits: 25 ms for a second of speech, and hears
    # little better than the search through the first pass's lattice, which takes 10 ms in all.
    "fwdflat": "no",
    "bestpath": "yes",
    # A third less work than without a limit, for the same words.
    "maxhmmpf": "3000",
}
_WIDE_MEAN: Final = "50.6,-0.9,6.2,17.4,-1.7,-0.7,3.9,-6.7,-3.1,-2.2,4.6,1.2,2.0"
"""The cepstral mean that a wide-band call starts with: that of several voices after a while."""
_DISCARD: Final = "discard"

_log = structlog.get_logger()
_Work = Samples | TextFuture | str


class PocketsphinxStream:
    """One call's stream; see `SpeechToTextStream`. Its work is done in order, by one worker at a time."""

    def __init__(self, workers: WorkerThreads, pool: DecoderPool, rate: int, on_words: Callable[[str], None]) -> None:
        self._workers = workers
        self._pool = pool
        self._rate = rate
        self._on_words = on_words
        self._lock = threading.Lock()
        self._work: deque[_Work] = deque()
        self._queued = 0
        self._scheduled = False
        self._closed = False
        self._behind = False
        self._partial = ""
        # The rest belongs to the worker that runs `step`.
        self._decoder: Decoder | None = None
        self._band = _band_of(rate)
        self._channel_mean: str | None = None
        self._settled = ""  # the turn's words before the utterance that is open
        self._error: ModelError | None = None

    @property
    def backlog_s(self) -> float:
        """Seconds of sound that nobody has listened to yet."""
        return self._queued / self._rate

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the stream's rate; returns at once."""
        with self._lock:
            if self._closed or not len(samples):
                return
            self._work.append(np.array(samples, dtype=np.int16))
            self._queued += len(samples)
            behind = self._drop_backlog()
            if self._queued >= self._rate * _STEP_MS // 1000:
                self._schedule()
        if behind:
            _log.warning("stt.behind", waiting_ms=_BACKLOG_MS)

    def partial(self) -> str:
        """The words recognized so far in this turn."""
        return self._partial

    async def flush(self) -> str:
        """The final text so far. It stays: what is fed afterwards is heard as an utterance of its own."""
        return await self._request(TextFuture(ends=False))

    async def decoded(self) -> str:
        """The words so far as `partial` has them, once all that was fed has been decoded; none of them is final."""
        return await self._request(TextFuture(only_waits=True))

    async def end_turn(self) -> str:
        """The final text of this turn. Raises `ModelError`, also when the stream is closed meanwhile."""
        return await self._request(TextFuture(ends=True))

    async def _request(self, request: TextFuture) -> str:
        with self._lock:
            if self._closed:
                raise ModelError("the recognizer's stream is closed")
            self._work.append(request)
            self._behind = False
            self._schedule()
        return await request.future

    def reset(self) -> None:
        """Forget what was fed since the last `end_turn`."""
        with self._lock:
            if self._closed:
                return
            while self._work and isinstance(last := self._work[-1], np.ndarray):
                self._queued -= len(last)
                self._work.pop()
            self._work.append(_DISCARD)
            self._schedule()

    def close(self) -> None:
        """Free the stream; whoever waits in `end_turn` gets a `ModelError`. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = [work for work in self._work if isinstance(work, TextFuture)]
            self._work.clear()
            self._queued = 0
            self._work.append(_DISCARD)
            self._schedule()
        for request in waiting:
            request.resolve("", ModelError("the recognizer's stream was closed"))

    def step(self) -> bool:
        """Do the next piece of work; for `WorkerThreads`. While it waits for a decoder it counts as scheduled."""
        work: _Work | None = None
        try:
            if self._needs_decoder():
                self._decoder = self._pool.acquire(self._wake)
                if self._decoder is None:
                    return False
                self._decoder.start(self._channel_mean)
            work = self._take()
            self._do(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this turn alone and is logged there
            self._fail(error, work)
        with self._lock:
            self._scheduled = bool(self._work)
            return self._scheduled

    def _wake(self) -> None:
        self._workers.submit(self)

    def _schedule(self) -> None:
        """Ask for a worker; the lock is held."""
        if not self._scheduled:
            self._scheduled = True
            self._workers.submit(self)

    def _drop_backlog(self) -> bool:
        """Drop the oldest block when too much waits; the lock is held. True the first time in a turn."""
        if self._queued <= self._rate * _BACKLOG_MS // 1000:
            return False
        oldest = next(index for index, work in enumerate(self._work) if isinstance(work, np.ndarray))
        self._queued -= len(cast(Samples, self._work[oldest]))
        del self._work[oldest]
        first, self._behind = not self._behind, True
        return first

    def _needs_decoder(self) -> bool:
        with self._lock:
            sound = bool(self._work) and isinstance(self._work[0], np.ndarray)
        return sound and self._decoder is None and self._error is None

    def _take(self) -> _Work:
        """The next piece: up to `_TURN_MS` of sound as one array, or a request."""
        blocks: list[Samples] = []
        length = 0
        with self._lock:
            while self._work and length < self._rate * _TURN_MS // 1000:
                work = self._work[0]
                if not isinstance(work, np.ndarray):
                    break
                blocks.append(work)
                length += len(work)
                self._work.popleft()
            self._queued -= length
            return np.concatenate(blocks) if blocks else self._work.popleft()

    def _do(self, work: _Work) -> None:
        if isinstance(work, np.ndarray):
            self._decode(work)
        elif isinstance(work, TextFuture) and work.only_waits:
            work.resolve(self._partial, self._error)
        elif isinstance(work, TextFuture):
            work.resolve(*(self._end_turn(keep_channel=True) if work.ends else self._flush_utterance()))
        else:
            self._end_turn(keep_channel=False)

    def _decode(self, sound: Samples) -> None:
        if self._decoder is None:  # The turn has failed already: `end_turn` says so.
            return
        self._decoder.process(self._band.push(sound))
        words = _joined(self._settled, self._decoder.hypothesis())
        if words != self._partial:
            self._partial = words
            if words:
                self._on_words(words)

    def _flush_utterance(self) -> tuple[str, ModelError | None]:
        """End the utterance, for the search through its lattice works at its end alone; the turn goes on in a new one.
        Silence adds no words to it, so that `end_turn` tells the same then."""
        if self._decoder is None:
            return "", self._error
        self._decoder.end()
        self._partial = self._settled = _joined(self._settled, self._decoder.hypothesis())
        self._decoder.go_on()
        return self._settled, None

    def _end_turn(self, keep_channel: bool) -> tuple[str, ModelError | None]:
        """End the turn; what was noise says nothing about the caller's line."""
        decoder, self._decoder = self._decoder, None
        error, self._error = self._error, None
        settled, self._settled = self._settled, ""
        self._partial = ""
        self._band = _band_of(self._rate)
        if decoder is None:
            return "", error
        try:
            decoder.end()
            words = _joined(settled, decoder.hypothesis())
            if keep_channel and words:
                self._channel_mean = decoder.channel_mean()
        except ModelError:
            self._pool.discard_decoder(decoder)
            raise
        self._pool.release(decoder)
        return words, error

    def _fail(self, error: Exception, work: _Work | None) -> None:
        """This turn is lost; the call hears of it in `end_turn`, the other calls do not."""
        _log.error("stt.failed", error=str(error), exc_info=not isinstance(error, TrunklineError))
        failure = ModelError(f"speech recognition failed: {error}")
        decoder, self._decoder = self._decoder, None
        self._settled = ""
        if decoder is not None:
            self._pool.discard_decoder(decoder)
        if isinstance(work, TextFuture):
            work.resolve("", failure)
        else:
            self._error = failure


class PocketsphinxSpeechToText:
    """The recognizer for all calls: a pool of decoders and a worker thread per core.

    A telephone call (8 kHz) and a wide-band call (16 kHz) need decoders of different make."""

    cost_source: CostSource = "timed with a sentence"

    name = NAME

    def __init__(self, threads: int | None = None, decoders: int | None = None) -> None:
        """Load the first telephone decoders, by default one per core and at least two; as many as six per core are
        loaded when that many callers speak at once. Wide-band ones come when needed. Raises `StartupError`."""
        cores = os.cpu_count() or 2
        library = load_library()
        base = _model_options()
        ready = decoders or max(2, cores)
        limit = max(ready, 6 * cores)
        adaptation = load_adaptation()
        # pocketsphinx reads the transformation from a file, each time that it loads a decoder.
        self._folder = tempfile.TemporaryDirectory(prefix="trunkline-")
        transformation = Path(self._folder.name) / "telephone.mllr"
        transformation.write_text(adaptation.mllr())
        telephone = base | {"mllr": str(transformation), "cmninit": adaptation.cmninit()}
        self._pools = {
            _TELEPHONE_RATE: DecoderPool(lambda: Decoder(library, telephone), ready, limit),
            RATE: DecoderPool(lambda: Decoder(library, base), 0, limit),
        }
        self.threads = threads or max(2, cores)
        self._workers = WorkerThreads(self.threads, NAME)
        self._streams: WeakSet[PocketsphinxStream] = WeakSet()

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> PocketsphinxStream:
        """A stream for one call; see `SpeechToText`. It hears English whatever the language is, and knows no words
        besides its dictionary's. Raises `ValueError` for a rate other than 8000 and 16000."""
        if rate not in self._pools:
            raise ValueError(f"rate {rate} Hz: 8000 or 16000 are possible")
        if language is not None and not language.lower().startswith("en"):
            _log.warning("stt.language_unsupported", model=NAME, language=language)
        stream = PocketsphinxStream(self._workers, self._pools[rate], rate, on_words)
        self._streams.add(stream)
        return stream

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: as much sound as waits to be heard of the caller who is the furthest behind."""
        return max((stream.backlog_s for stream in list(self._streams)), default=0.0)

    def cpu_time_s(self) -> float:
        """Seconds of a core that its threads have taken."""
        return self._workers.cpu_time_s()

    def close(self) -> None:
        """Close all streams, stop the threads and free the decoders; waits for the pieces that are being decoded.
        Idempotent."""
        for stream in list(self._streams):
            stream.close()
        self._workers.close()
        for pool in self._pools.values():
            pool.close()
        self._folder.cleanup()


def _joined(settled: str, words: str) -> str:
    return f"{settled} {words}".strip()


def _band_of(rate: int) -> TelephoneBand | DitheredWideBand:
    return TelephoneBand() if rate == _TELEPHONE_RATE else DitheredWideBand()


def _model_options() -> dict[str, str]:
    folder = model_path()
    return {
        "hmm": str(folder / "en-us"),
        "lm": str(folder / "en-us.lm.bin"),
        "dict": str(folder / "cmudict-en-us.dict"),
        "cmninit": _WIDE_MEAN,
        "loglevel": "FATAL",  # each decoder sets the library's level anew
        **_TUNING,
    }
