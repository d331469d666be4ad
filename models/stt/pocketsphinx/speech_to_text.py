"""Speech to text by pocketsphinx: US English, with partial results, without a download."""

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
from models.stt.pocketsphinx.dither import WidebandInput
from models.stt.pocketsphinx.narrowband_adaptation import NarrowbandInput, load_narrowband_adaptation
from models.stt.pocketsphinx.phrase_spotter import SPOTTING_OPTIONS, PocketsphinxSpotter, keyphrase_list
from models.stt.transcript_future import TranscriptFuture

NAME: Final = "pocketsphinx"
_TELEPHONE_RATE: Final = 8000
_MIN_PIECE_MS: Final = 60
"""Minimum length of a decoded piece of audio: the lag of partial words."""
_TIME_SLICE_MS: Final = 240
"""A worker switches to the next stream after this much audio."""
_MAX_BACKLOG_MS: Final = 30_000
"""A longer queue means that the machine does not keep up: the oldest audio is dropped."""
_TUNING: Final[Mapping[str, str]] = {
    # The second pass runs at the end of the turn, where the caller waits: 25 ms for a second of speech, and is little
    # better than the search through the first pass's lattice, which takes 10 ms in all.
    "fwdflat": "no",
    "bestpath": "yes",
    # A third less work than without a limit, for the same words.
    "maxhmmpf": "3000",
}
_WIDEBAND_MEAN: Final = "50.6,-0.9,6.2,17.4,-1.7,-0.7,3.9,-6.7,-3.1,-2.2,4.6,1.2,2.0"
"""The initial cepstral mean of a wide-band call: that of several voices after a while."""
_DISCARD: Final = "discard"

_log = structlog.get_logger()
_Work = Samples | TranscriptFuture | str
MAX_TIMED_S: Final = 6.0
"""Longest utterance whose words get times, s."""


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
        self._word_starts_s: Sequence[float] = ()
        # Below: only the worker that runs `step`.
        self._decoder: Decoder | None = None
        self._input = _input_of(rate)
        self._channel_mean: str | None = None
        self._flushed_text = ""  # the turn's words before the open utterance
        self._flushed_starts_s: list[float] | None = []  # their beginnings, None: unknown
        self._decoded, self._flushed = 0, 0  # samples of the turn at `RATE`, and before the open utterance
        self._error: ModelError | None = None

    @property
    def backlog_s(self) -> float:
        """Seconds of queued audio."""
        return self._queued / self._rate

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the stream's rate; returns at once."""
        with self._lock:
            if self._closed or not len(samples):
                return
            self._work.append(np.array(samples, dtype=np.int16))
            self._queued += len(samples)
            behind = self._drop_backlog()
            if self._queued >= self._rate * _MIN_PIECE_MS // 1000:
                self._schedule()
        if behind:
            _log.warning("stt.behind", waiting_ms=_MAX_BACKLOG_MS)

    def partial(self) -> str:
        """The words recognized so far in this turn."""
        return self._partial

    async def flush(self) -> str:
        """The final text so far. What is fed afterwards is recognized as an utterance of its own."""
        return await self._request(TranscriptFuture(ends_turn=False))

    async def drain(self) -> str:
        """Wait until all audio fed so far has been decoded; returns the partial text."""
        return await self._request(TranscriptFuture(only_waits=True))

    async def end_turn(self) -> str:
        """The final text of this turn. Raises `ModelError`, also when the stream is closed meanwhile."""
        request = TranscriptFuture(ends_turn=True)
        text = await self._request(request)
        self._word_starts_s = request.word_starts_s
        return text

    def word_starts_s(self) -> Sequence[float]:
        """See `TimesWords`."""
        return self._word_starts_s

    async def _request(self, request: TranscriptFuture) -> str:
        with self._lock:
            if self._closed:
                raise ModelError("the recognizer's stream is closed")
            self._work.append(request)
            self._behind = False
            self._schedule()
        return await request.future

    def reset(self) -> None:
        """Discard what was fed since the last `end_turn`."""
        with self._lock:
            if self._closed:
                return
            while self._work and isinstance(last := self._work[-1], np.ndarray):
                self._queued -= len(last)
                self._work.pop()
            self._work.append(_DISCARD)
            self._schedule()

    def close(self) -> None:
        """Free the stream; a pending `end_turn` raises `ModelError`. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = [work for work in self._work if isinstance(work, TranscriptFuture)]
            self._work.clear()
            self._queued = 0
            self._work.append(_DISCARD)
            self._schedule()
        for request in waiting:
            request.resolve("", ModelError("the recognizer's stream was closed"))

    def step(self) -> bool:
        """Do the next piece of work; for `WorkerThreads`. While it waits for a decoder the stream counts as
        scheduled."""
        work: _Work | None = None
        try:
            if self._needs_decoder():
                self._decoder = self._pool.acquire(self._wake)
                if self._decoder is None:
                    return False
                self._decoder.start(self._channel_mean)
            work = self._next_work()
            self._execute(work)
        except Exception as error:  # noqa: BLE001 - any error ends this turn alone and is logged there
            self._fail(error, work)
        with self._lock:
            self._scheduled = bool(self._work)
            return self._scheduled

    def _wake(self) -> None:
        self._workers.submit(self)

    def _schedule(self) -> None:
        """Submit the stream to the workers; the lock is held."""
        if not self._scheduled:
            self._scheduled = True
            self._workers.submit(self)

    def _drop_backlog(self) -> bool:
        """Drop the oldest block of too long a queue; the lock is held. Returns True the first time in a turn."""
        if self._queued <= self._rate * _MAX_BACKLOG_MS // 1000:
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

    def _next_work(self) -> _Work:
        """The next piece of work: up to `_TIME_SLICE_MS` of audio as one array, or a request."""
        blocks: list[Samples] = []
        length = 0
        with self._lock:
            while self._work and length < self._rate * _TIME_SLICE_MS // 1000:
                work = self._work[0]
                if not isinstance(work, np.ndarray):
                    break
                blocks.append(work)
                length += len(work)
                self._work.popleft()
            self._queued -= length
            return np.concatenate(blocks) if blocks else self._work.popleft()

    def _execute(self, work: _Work) -> None:
        if isinstance(work, np.ndarray):
            self._decode(work)
        elif isinstance(work, TranscriptFuture) and work.only_waits:
            work.resolve(self._partial, self._error)
        elif isinstance(work, TranscriptFuture):
            if work.ends_turn:
                words, error, work.word_starts_s = self._end_turn(keep_channel=True)
                work.resolve(words, error)
            else:
                work.resolve(*self._flush_utterance())
        else:
            self._end_turn(keep_channel=False)

    def _decode(self, sound: Samples) -> None:
        if self._decoder is None:  # The turn has failed: `end_turn` raises the error.
            return
        pushed = self._input.push(sound)
        self._decoded += len(pushed)
        self._decoder.process(pushed)
        words = _joined(self._flushed_text, self._decoder.hypothesis())
        if words != self._partial:
            self._partial = words
            if words:
                self._on_words(words)

    def _flush_utterance(self) -> tuple[str, ModelError | None]:
        """End the utterance, because the search through its lattice works at its end alone; the turn continues in a new
        one. Silence adds no words to that, so that `end_turn` returns the same text."""
        if self._decoder is None:
            return "", self._error
        self._decoder.end()
        self._partial = self._flushed_text = _joined(self._flushed_text, self._decoder.hypothesis())
        self._flushed_starts_s = self._starts_s(self._decoder)
        self._flushed = self._decoded
        self._decoder.continue_utterance()
        return self._flushed_text, None

    def _starts_s(self, decoder: Decoder) -> list[float] | None:
        """The beginnings of the turn's words, up to the utterance that has just ended; None after an utterance longer
        than `MAX_TIMED_S`, as music and noise often are."""
        if self._flushed_starts_s is None or self._decoded - self._flushed > MAX_TIMED_S * RATE:
            return None
        return [*self._flushed_starts_s, *(self._flushed / RATE + start for start in decoder.word_starts_s())]

    def _end_turn(self, keep_channel: bool) -> tuple[str, ModelError | None, Sequence[float]]:
        """End the turn; returns its words and their beginnings. `keep_channel=False` for noise, which has no
        information on the caller's line."""
        decoder, self._decoder = self._decoder, None
        error, self._error = self._error, None
        flushed, self._flushed_text = self._flushed_text, ""
        self._partial = ""
        self._input = _input_of(self._rate)
        try:
            if decoder is None:
                return "", error, ()
            decoder.end()
            words = _joined(flushed, decoder.hypothesis())
            starts_s = self._starts_s(decoder)
            if keep_channel and words:
                self._channel_mean = decoder.channel_mean()
        except ModelError:
            if decoder is not None:
                self._pool.discard(decoder)
            raise
        finally:
            self._flushed_starts_s, self._decoded, self._flushed = [], 0, 0
        self._pool.release(decoder)
        return words, error, starts_s or ()

    def _fail(self, error: Exception, work: _Work | None) -> None:
        """The turn has failed: `end_turn` raises the error; other calls are not affected."""
        _log.error("stt.failed", error=str(error), exc_info=not isinstance(error, TrunklineError))
        failure = ModelError(f"speech recognition failed: {error}")
        decoder, self._decoder = self._decoder, None
        self._flushed_text = ""
        if decoder is not None:
            self._pool.discard(decoder)
        if isinstance(work, TranscriptFuture):
            work.resolve("", failure)
        else:
            self._error = failure


class PocketsphinxSpeechToText:
    """The recognizer for all calls: a pool of decoders and a worker thread per core.

    Narrow-band calls (8 kHz) and wide-band calls (16 kHz) need different decoders."""

    cost_source: CostSource = "timed with a sentence"

    name = NAME
    languages = ("en",)

    def __init__(self, threads: int | None = None, decoders: int | None = None) -> None:
        """Load the first narrow-band decoders, by default one per core and at least two; up to six per core are loaded
        when as many callers speak at once. Wide-band ones are loaded on demand. Raises `StartupError`."""
        cores = os.cpu_count() or 2
        library = load_library()
        base = _model_options()
        ready = decoders or max(2, cores)
        limit = max(ready, 6 * cores)
        self._folder = tempfile.TemporaryDirectory(prefix="trunkline-")
        telephone = telephone_options(Path(self._folder.name))
        self._options = {_TELEPHONE_RATE: telephone, RATE: base}
        self._pools = {
            _TELEPHONE_RATE: DecoderPool(lambda: Decoder(library, telephone), ready, limit),
            RATE: DecoderPool(lambda: Decoder(library, base), 0, limit),
        }
        self._library = library
        self._spotter_pools: dict[tuple[int, tuple[str, ...]], DecoderPool] = {}
        self._decoder_limit = limit
        self.threads = threads or max(2, cores)
        self._workers = WorkerThreads(self.threads, NAME)
        self._streams: WeakSet[PocketsphinxStream] = WeakSet()

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> PocketsphinxStream:
        """A stream for one call; see `SpeechToText`. It recognizes English whatever the language is, and no words
        outside its dictionary. Raises `ValueError` for a rate other than 8000 and 16000."""
        if rate not in self._pools:
            raise ValueError(f"rate {rate} Hz: only 8000 and 16000 are supported")
        if language is not None and not language.lower().startswith("en"):
            _log.warning("stt.language_unsupported", model=NAME, language=language)
        stream = PocketsphinxStream(self._workers, self._pools[rate], rate, on_words)
        self._streams.add(stream)
        return stream

    def open_spotter(
        self, *, rate: int, phrases: Sequence[str], on_phrase: Callable[[str], None]
    ) -> PocketsphinxSpotter:
        """See `SpotsPhrases`. Its decoders (28 MB each) are loaded when as many calls need them. Raises `ValueError`
        for a rate other than 8000 and 16000."""
        if rate not in self._pools:
            raise ValueError(f"rate {rate} Hz: only 8000 and 16000 are supported")
        pool = self._spotter_pool(rate, tuple(phrases))
        return PocketsphinxSpotter(self._workers, pool, _input_of(rate), rate, phrases, on_phrase)

    def _spotter_pool(self, rate: int, phrases: tuple[str, ...]) -> DecoderPool:
        if (rate, phrases) not in self._spotter_pools:
            self._spotter_pools[rate, phrases] = DecoderPool(
                lambda: self._load_spotting_decoder(rate, phrases), 0, self._decoder_limit
            )
        return self._spotter_pools[rate, phrases]

    def _load_spotting_decoder(self, rate: int, phrases: tuple[str, ...]) -> Decoder:
        """On a worker thread. pocketsphinx reads the phrases from a file."""
        options = {key: value for key, value in self._options[rate].items() if key in SPOTTING_OPTIONS}
        with tempfile.NamedTemporaryFile("w", dir=self._folder.name, suffix=".list") as file:
            file.write(keyphrase_list(phrases))
            file.flush()
            return Decoder(self._library, options | {"kws": file.name})

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: the longest backlog of all streams."""
        return max((stream.backlog_s for stream in list(self._streams)), default=0.0)

    def cpu_time_s(self) -> float:
        """CPU time of its threads, s."""
        return self._workers.cpu_time_s()

    def close(self) -> None:
        """Close all streams, stop the threads and free the decoders; waits for the pieces that are being decoded.
        Idempotent."""
        for stream in list(self._streams):
            stream.close()
        self._workers.close()
        for pool in (*self._pools.values(), *self._spotter_pools.values()):
            pool.close()
        self._folder.cleanup()


def _joined(flushed: str, words: str) -> str:
    return f"{flushed} {words}".strip()


def _input_of(rate: int) -> NarrowbandInput | WidebandInput:
    return NarrowbandInput() if rate == _TELEPHONE_RATE else WidebandInput()


def telephone_options(folder: Path) -> dict[str, str]:
    """The options of a narrow-band decoder. Writes the transformation of its models to `folder`: pocketsphinx reads it
    from there each time a decoder is loaded."""
    adaptation = load_narrowband_adaptation()
    transformation = folder / "telephone.mllr"
    transformation.write_text(adaptation.mllr())
    return _model_options() | {"mllr": str(transformation), "cmninit": adaptation.cmninit()}


def _model_options() -> dict[str, str]:
    folder = model_path()
    return {
        "hmm": str(folder / "en-us"),
        "lm": str(folder / "en-us.lm.bin"),
        "dict": str(folder / "cmudict-en-us.dict"),
        "cmninit": _WIDEBAND_MEAN,
        "loglevel": "FATAL",  # each decoder sets the library's level anew
        **_TUNING,
    }
