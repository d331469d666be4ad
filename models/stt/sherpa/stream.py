"""The recognition stream of one call on a streaming model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import numpy as np
import structlog

from config.errors import ModelError
from media.audio_port import Samples
from models.stt.sherpa.batcher import Batcher
from models.stt.sherpa.chunk_timing import ChunkTiming
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE, at_model_rate
from models.stt.text_future import TextFuture

_BACKLOG_MS: Final = 30_000
"""More than this waiting means that the machine does not keep up: the oldest sound is dropped."""
_TAIL_MS: Final = 100
_KEPT_S: Final = 30
"""Of a longer turn the sound is not kept: it is lost when a run fails."""

_log = structlog.get_logger()
_Work = Samples | TextFuture | Literal["discard"]


class Recognizer(Protocol):
    """What a stream needs of sherpa-onnx."""

    def is_ready(self, stream: Any, /) -> bool:
        """True if the next piece of sound is there."""

    def get_result(self, stream: Any, /) -> str:
        """The text so far."""


class SherpaStream:
    """See `SpeechToTextStream`. Others only append to what waits here; all else is done by the thread that decodes, so
    that nobody ever waits for it. Its streams of sherpa-onnx live as long as a turn."""

    def __init__(
        self,
        batcher: Batcher,
        recognizer: Recognizer,
        begin: Callable[[], Any],
        pace: ChunkTiming,
        rate: int,
        transcript: Truecaser,
        on_words: Callable[[str], None],
    ) -> None:
        """`begin` makes sherpa-onnx's stream for a turn. Raises `ValueError` for a wrong rate."""
        self._batcher = batcher
        self._recognizer = recognizer
        self._begin = begin
        self._pace = pace
        self._rate = rate
        self._transcript = transcript
        self._on_words = on_words
        self._work: deque[_Work] = deque()
        self._closed = False
        # Samples of the call: `fed` is written by who feeds, the others by the decoding thread alone.
        self._fed = 0
        self._taken = 0
        self._wake_at = 0
        self._woken = False
        # The rest belongs to the decoding thread.
        self._turn = at_model_rate(rate)
        self.recognizer_stream: Any = None
        self._accepted = 0
        self._pieces = 0
        # The turn's sound, and the pieces of it that a recognizer stream before this one had decoded; -1: there was
        # none before.
        self._kept: list[Samples] = []
        self._kept_length = 0
        self._heard_before = -1
        self._flushed = False
        self._behind = False
        self._partial = ""
        self._request: TextFuture | None = None
        self._error: ModelError | None = None

    # For the call.

    @property
    def backlog_s(self) -> float:
        """Seconds of sound that the model has not taken in, beyond what it needs for a piece."""
        needed = self._pace.first / self._turn.per_sample
        return 0.0 if self._closed else max(0.0, self._fed - self._taken - needed) / self._rate

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the stream's rate; returns at once."""
        if self._closed or not len(samples):
            return
        self._work.append(np.array(samples, dtype=np.int16))
        self._fed += len(samples)
        if self._fed >= self._wake_at and not self._woken:
            self._wake()

    def partial(self) -> str:
        """The words recognized so far in this turn."""
        return self._partial

    async def flush(self) -> str:
        """The final text so far; what is fed afterwards goes on from there."""
        return await self._ask(TextFuture())

    async def decoded(self) -> str:
        """The words so far as `partial` has them, once all that was fed and fills a piece has been decoded."""
        return await self._ask(TextFuture(only_waits=True))

    async def end_turn(self) -> str:
        """The final text of this turn. Raises `ModelError`, also when the stream is closed meanwhile."""
        return await self._ask(TextFuture(ends=True))

    def reset(self) -> None:
        """Forget what was fed since the last `end_turn`."""
        self._work.append("discard")
        self._wake()

    def close(self) -> None:
        """Free the stream; whoever waits in `end_turn` gets a `ModelError`. Idempotent."""
        self._closed = True
        self._wake()

    async def _ask(self, request: TextFuture) -> str:
        self._work.append(request)
        if self._closed:
            request.resolve("", _closed())
        self._wake()
        return await request.future

    def _wake(self) -> None:
        self._woken = True
        self._batcher.wake(self)

    # For the decoding thread: `models.stt.sherpa.batcher.Decodable`.

    @property
    def is_awaited(self) -> bool:
        """True if somebody waits for its text."""
        return self._request is not None

    @property
    def must_run_alone(self) -> bool:
        """True if its next piece is one with which a run has failed: it may fail again."""
        return self._pieces == self._heard_before

    def prepare(self) -> bool:
        """Take in sound and answer requests, until the next piece is ready or nothing is left to do."""
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
        """A piece has been decoded."""
        self._pieces += 1
        if self._pieces <= self._heard_before:
            return
        words = self._transcript.apply(self._recognizer.get_result(self.recognizer_stream))
        if words != self._partial:
            self._partial = words
            if words:
                self._on_words(words)

    def retry(self) -> bool:
        """After a run that failed, in which its recognizer stream was lost: begin the turn once more. False when that
        cannot be."""
        if self._heard_before >= 0 or self._kept_length > _KEPT_S * self._rate:
            return False
        kept, self._kept, self._kept_length = self._kept, [], 0
        self._heard_before, self._pieces, self._accepted = self._pieces, 0, 0
        self.recognizer_stream = None
        self._turn = at_model_rate(self._rate)
        for samples in kept:
            self._accept(samples)
        return True

    def fail(self, error: Exception) -> None:
        """This turn is lost; the call hears of it in `end_turn`."""
        self._end_turn()
        self._error = ModelError(f"speech recognition failed: {error}")
        if self._request is not None:
            self._answer(self._request)
        self._wake()

    def _next(self) -> bool:
        """The next piece of work; False when there is none that can be done now."""
        if not self._work:
            return self._wait()
        work = self._work[0]
        if isinstance(work, np.ndarray):
            return self._take_in() or self._wait()
        self._work.popleft()
        if not isinstance(work, TextFuture):
            self._end_turn()
        else:
            if not work.only_waits:
                self._flush()
            self._request = work
        return True

    def _wait(self) -> bool:
        """Say when to be woken. True when that is now."""
        self._wake_at = self._taken + self._missing()
        self._woken = False
        # What came before that line may have woken nobody.
        return bool(self._work) and (self._fed >= self._wake_at or not self._only_sound())

    def _missing(self) -> int:
        """Samples of the call that the next piece needs."""
        missing = self._pace.needed(self._pieces) - self._accepted
        return max(1, math.ceil(missing / self._turn.per_sample))

    def _only_sound(self) -> bool:
        return all(isinstance(work, np.ndarray) for work in tuple(self._work))

    def _take_in(self) -> bool:
        """Give the model as much of the sound as its next piece needs. False when that does not make one."""
        self._drop_backlog()
        missing = self._missing()
        if self._fed - self._taken < missing and self._only_sound():
            return False
        blocks: list[Samples] = []
        while missing > 0 and self._work and isinstance(block := self._work[0], np.ndarray):
            blocks.append(block)
            missing -= len(block)
            self._taken += len(block)
            self._work.popleft()
        if blocks and self._error is None:
            self._flushed = False
            self._accept(np.concatenate(blocks))
        return True

    def _drop_backlog(self) -> None:
        limit = self._rate * _BACKLOG_MS // 1000
        while self._fed - self._taken > limit and isinstance(block := self._work[0], np.ndarray):
            self._taken += len(block)
            self._work.popleft()
            if not self._behind:
                self._behind = True
                _log.warning("stt.behind", waiting_ms=_BACKLOG_MS)

    def _accept(self, samples: Samples) -> None:
        if self.recognizer_stream is None:
            self.recognizer_stream = self._begin()
        self._keep(samples)
        sound = self._turn.push(samples)
        self._accepted += len(sound)
        # A list: of an array each sample would become a Python object of its own first.
        self.recognizer_stream.accept_waveform(RATE, sound.tolist())

    def _keep(self, samples: Samples) -> None:
        self._kept_length += len(samples)
        if self._kept_length <= _KEPT_S * self._rate:
            self._kept.append(samples)
        else:
            self._kept.clear()

    def _flush(self) -> None:
        """Follow the sound by as much silence as the network looks ahead, so that all of it is decoded, and a little
        more, for words are heard a little after they were said."""
        if self.recognizer_stream is not None and not self._flushed:
            silence = self._pace.first // self._turn.per_sample + self._rate * _TAIL_MS // 1000
            self._accept(np.zeros(silence, np.int16))
            self._flushed = True

    def _answer(self, request: TextFuture) -> None:
        self._request = None
        text, error = self._partial, self._error
        if request.ends:
            self._end_turn()
        request.resolve(text if error is None else "", error)

    def _end_turn(self) -> None:
        self.recognizer_stream = None
        self._turn = at_model_rate(self._rate)
        self._accepted = self._pieces = 0
        self._kept = []
        self._kept_length = 0
        self._heard_before = -1
        self._flushed = self._behind = False
        self._partial = ""
        self._error = None

    def _drop_all(self) -> None:
        self._end_turn()
        waiting = [self._request] if self._request is not None else []
        self._request = None
        while self._work:
            if isinstance(work := self._work.popleft(), TextFuture):
                waiting.append(work)
        for request in waiting:
            request.resolve("", _closed())


def _closed() -> ModelError:
    return ModelError("the recognizer's stream is closed")
