"""The recognition stream of one call on a streaming model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np
import structlog

from config.errors import ModelError
from media.audio_port import Samples
from models.stt.sherpa.batcher import Batcher
from models.stt.sherpa.chunk_timing import ChunkTiming
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE, input_converter
from models.stt.transcript_future import TranscriptFuture
from models.stt.word_times import starts_of_tokens

_MAX_BACKLOG_MS: Final = 30_000
"""A longer queue means that the machine does not keep up: the oldest audio is dropped."""
_TAIL_MS: Final = 100
_MAX_RETRY_S: Final = 30
"""The audio of a longer turn is not kept for a retry: the turn is lost when a run fails."""

_log = structlog.get_logger()
_Work = Samples | TranscriptFuture | Literal["discard"]


class Recognizer(Protocol):
    """The methods of sherpa-onnx's recognizer that a stream uses."""

    def is_ready(self, stream: Any, /) -> bool:
        """True if the audio of the next chunk is there."""

    def get_result(self, stream: Any, /) -> str:
        """The text so far."""

    def tokens(self, stream: Any, /) -> Sequence[str]:
        """The tokens of the text so far."""

    def timestamps(self, stream: Any, /) -> Sequence[float]:
        """The beginning of each token, s after the stream's."""


class SherpaStream:
    """See `SpeechToTextStream`. Other threads only append to its queue; all else is done by the decoding thread, so
    that nothing ever waits for that. Its streams of sherpa-onnx live as long as a turn."""

    def __init__(
        self,
        batcher: Batcher,
        recognizer: Recognizer,
        create_stream: Callable[[], Any],
        chunk_timing: ChunkTiming,
        rate: int,
        truecaser: Truecaser,
        on_words: Callable[[str], None],
    ) -> None:
        """`create_stream` makes sherpa-onnx's stream for a turn. Raises `ValueError` for an unsupported rate."""
        self._batcher = batcher
        self._recognizer = recognizer
        self._create_stream = create_stream
        self._chunk_timing = chunk_timing
        self._rate = rate
        self._truecaser = truecaser
        self._on_words = on_words
        self._work: deque[_Work] = deque()
        self._closed = False
        self._word_starts_s: Sequence[float] = ()
        # Samples of the call: `feed` writes `_fed`, the decoding thread the others.
        self._fed = 0
        self._consumed = 0
        self._wake_position = 0
        self._woken = False
        # Below: only the decoding thread.
        self._converter = input_converter(rate)
        self.recognizer_stream: Any = None
        self._accepted = 0
        self._chunks = 0
        # The turn's audio for a retry, and the chunks of it that a lost recognizer stream had decoded; -1: none was
        # lost.
        self._retry_audio: list[Samples] = []
        self._retry_samples = 0
        self._decoded_before = -1
        self._flushed = False
        self._behind = False
        self._partial = ""
        self._request: TranscriptFuture | None = None
        self._error: ModelError | None = None

    # Called by the call's threads.

    @property
    def backlog_s(self) -> float:
        """Seconds of queued audio beyond what the model needs for a chunk."""
        samples_needed = self._chunk_timing.first / self._converter.per_sample
        return 0.0 if self._closed else max(0.0, self._fed - self._consumed - samples_needed) / self._rate

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the stream's rate; returns at once."""
        if self._closed or not len(samples):
            return
        self._work.append(np.array(samples, dtype=np.int16))
        self._fed += len(samples)
        if self._fed >= self._wake_position and not self._woken:
            self._wake()

    def partial(self) -> str:
        """The words recognized so far in this turn."""
        return self._partial

    async def flush(self) -> str:
        """The final text so far; what is fed afterwards continues the turn."""
        return await self._send_request(TranscriptFuture())

    async def drain(self) -> str:
        """Wait until all chunks of the audio fed so far have been decoded; returns the partial text."""
        return await self._send_request(TranscriptFuture(only_waits=True))

    async def end_turn(self) -> str:
        """The final text of this turn. Raises `ModelError`, also when the stream is closed meanwhile."""
        request = TranscriptFuture(ends_turn=True)
        text = await self._send_request(request)
        self._word_starts_s = request.word_starts_s
        return text

    def word_starts_s(self) -> Sequence[float]:
        """See `TimesWords`."""
        return self._word_starts_s

    def reset(self) -> None:
        """Discard what was fed since the last `end_turn`."""
        self._work.append("discard")
        self._wake()

    def close(self) -> None:
        """Free the stream; a pending `end_turn` raises `ModelError`. Idempotent."""
        self._closed = True
        self._wake()

    async def _send_request(self, request: TranscriptFuture) -> str:
        self._work.append(request)
        if self._closed:
            request.resolve("", _closed())
        self._wake()
        return await request.future

    def _wake(self) -> None:
        self._woken = True
        self._batcher.wake(self)

    # Called by the decoding thread: `models.stt.sherpa.batcher.Decodable`.

    @property
    def is_awaited(self) -> bool:
        """True if a caller waits for its text."""
        return self._request is not None

    @property
    def must_run_alone(self) -> bool:
        """True if its next chunk is one with which a run has failed: it may fail again."""
        return self._chunks == self._decoded_before

    def prepare(self) -> bool:
        """Take in audio and answer requests, until the next chunk is ready or nothing is left to do."""
        if self._closed:
            self._drop_all()
            return False
        while True:
            if self.recognizer_stream is not None and self._recognizer.is_ready(self.recognizer_stream):
                return True
            if self._request is not None:
                self._answer(self._request)
            elif not self._next():
                return False

    def on_decoded(self) -> None:
        """A chunk has been decoded."""
        self._chunks += 1
        if self._chunks <= self._decoded_before:
            return
        words = self._truecaser.apply(self._recognizer.get_result(self.recognizer_stream))
        if words != self._partial:
            self._partial = words
            if words:
                self._on_words(words)

    def retry(self) -> bool:
        """After a failed run, in which its recognizer stream was lost: decode the turn again. Returns False if that is
        not possible."""
        if self._decoded_before >= 0 or self._retry_samples > _MAX_RETRY_S * self._rate:
            return False
        audio, self._retry_audio, self._retry_samples = self._retry_audio, [], 0
        self._decoded_before, self._chunks, self._accepted = self._chunks, 0, 0
        self.recognizer_stream = None
        self._converter = input_converter(self._rate)
        for samples in audio:
            self._accept(samples)
        return True

    def fail(self, error: Exception) -> None:
        """The turn has failed: `end_turn` raises the error."""
        self._end_turn()
        self._error = ModelError(f"speech recognition failed: {error}")
        if self._request is not None:
            self._answer(self._request)
        self._wake()

    def _next(self) -> bool:
        """Do the next piece of work; returns False when there is none that can be done now."""
        if not self._work:
            return self._wait_for_audio()
        work = self._work[0]
        if isinstance(work, np.ndarray):
            return self._take_in() or self._wait_for_audio()
        self._work.popleft()
        if not isinstance(work, TranscriptFuture):
            self._end_turn()
        else:
            if not work.only_waits:
                self._flush()
            self._request = work
        return True

    def _wait_for_audio(self) -> bool:
        """Set the position at which `feed` wakes the thread. Returns True if it is already reached."""
        self._wake_position = self._consumed + self._samples_missing()
        self._woken = False
        # Work that was appended before that line may not have woken the thread.
        return bool(self._work) and (self._fed >= self._wake_position or not self._only_sound())

    def _samples_missing(self) -> int:
        """Samples of the call that the next chunk needs."""
        missing = self._chunk_timing.samples_needed(self._chunks) - self._accepted
        return max(1, math.ceil(missing / self._converter.per_sample))

    def _only_sound(self) -> bool:
        return all(isinstance(work, np.ndarray) for work in tuple(self._work))

    def _take_in(self) -> bool:
        """Give the model the audio that its next chunk needs. Returns False while there is not enough."""
        self._drop_backlog()
        missing = self._samples_missing()
        if self._fed - self._consumed < missing and self._only_sound():
            return False
        blocks: list[Samples] = []
        while missing > 0 and self._work and isinstance(block := self._work[0], np.ndarray):
            blocks.append(block)
            missing -= len(block)
            self._consumed += len(block)
            self._work.popleft()
        if blocks and self._error is None:
            self._flushed = False
            self._accept(np.concatenate(blocks))
        return True

    def _drop_backlog(self) -> None:
        limit = self._rate * _MAX_BACKLOG_MS // 1000
        while self._fed - self._consumed > limit and isinstance(block := self._work[0], np.ndarray):
            self._consumed += len(block)
            self._work.popleft()
            if not self._behind:
                self._behind = True
                _log.warning("stt.behind", waiting_ms=_MAX_BACKLOG_MS)

    def _accept(self, samples: Samples) -> None:
        if self.recognizer_stream is None:
            self.recognizer_stream = self._create_stream()
        self._keep_for_retry(samples)
        sound = self._converter.push(samples)
        self._accepted += len(sound)
        # A list: sherpa-onnx would first convert each sample of an array to a Python object.
        self.recognizer_stream.accept_waveform(RATE, sound.tolist())

    def _keep_for_retry(self, samples: Samples) -> None:
        self._retry_samples += len(samples)
        if self._retry_samples <= _MAX_RETRY_S * self._rate:
            self._retry_audio.append(samples)
        else:
            self._retry_audio.clear()

    def _flush(self) -> None:
        """Append as much silence as the network's look-ahead, so that all audio is decoded, and a little more, because
        words are found a little after they were spoken."""
        if self.recognizer_stream is not None and not self._flushed:
            silence = self._chunk_timing.first // self._converter.per_sample + self._rate * _TAIL_MS // 1000
            self._accept(np.zeros(silence, np.int16))
            self._flushed = True

    def _answer(self, request: TranscriptFuture) -> None:
        self._request = None
        text, error = self._partial, self._error
        if request.ends_turn:
            request.word_starts_s = self._starts_s(text)
            self._end_turn()
        request.resolve(text if error is None else "", error)

    def _starts_s(self, text: str) -> Sequence[float]:
        stream = self.recognizer_stream
        if stream is None:
            return ()
        return starts_of_tokens(text, self._recognizer.tokens(stream), self._recognizer.timestamps(stream))

    def _end_turn(self) -> None:
        self.recognizer_stream = None
        self._converter = input_converter(self._rate)
        self._accepted = self._chunks = 0
        self._retry_audio = []
        self._retry_samples = 0
        self._decoded_before = -1
        self._flushed = self._behind = False
        self._partial = ""
        self._error = None

    def _drop_all(self) -> None:
        self._end_turn()
        waiting = [self._request] if self._request is not None else []
        self._request = None
        while self._work:
            if isinstance(work := self._work.popleft(), TranscriptFuture):
                waiting.append(work)
        for request in waiting:
            request.resolve("", _closed())


def _closed() -> ModelError:
    return ModelError("the recognizer's stream is closed")
