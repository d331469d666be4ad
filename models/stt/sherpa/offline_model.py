"""Speech to text by offline models of sherpa-onnx, which transcribe whole turns: Whisper, Moonshine, SenseVoice,
Parakeet.

Their texts are better than those of streaming models, but there are no partial results while the caller speaks. Mostly
they are the second pass after a streaming one (`models.stt.two_pass`); alone they transcribe the turn so far
repeatedly, at growing lengths."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from queue import SimpleQueue
from typing import Any, Final
from weakref import WeakSet

import numpy as np
import structlog

from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import CostSource
from models.runtime.thread_priority import lower_thread_priority
from models.stt.sherpa.speed_measurement import offline_speed
from models.stt.sherpa.tokens import Tokens
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE, Sound, input_converter
from models.stt.transcript_future import TranscriptFuture

_MAX_BATCH: Final = 8
"""Turns in one run."""
_MAX_PIECE_S: Final = 25
"""Whisper's maximum is 30 s: a longer turn is cut where it is quietest."""
_CUT_RANGE_S: Final = 5
_PAUSE_SAMPLES: Final = RATE // 10
_TRAILING_SILENCE: Final = np.zeros(RATE // 2, np.float32)
"""Silence after every turn: the last word needs it, and some models need no less."""
_NICENESS: Final = 5
_FIRST_INTERIM_MS: Final = 600
"""Audio after which the first interim text is made, for words that interrupt the agent."""
_INTERIM_GROWTH: Final = 1.5
"""Growth of the turn from one interim text to the next: in all three times the work of one transcription."""

_WHISPER_CODES: Final = {"iw": "he", "nb": "no", "jv": "jw", "fil": "tl", "cmn": "zh"}
"""Primary BCP 47 tags for which Whisper has another code."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class _Job:
    """A turn to transcribe. `is_wanted` returns False once its text is not needed any more; `on_result` is called from
    the worker thread."""

    blocks: Sequence[Samples]
    rate: int
    language: str | None
    is_wanted: Callable[[], bool]
    on_result: Callable[[str, ModelError | None], None]
    since: float = field(default_factory=time.monotonic)


class OfflineSpeechToText:
    """A loaded model and the thread that runs it, for several turns at a time."""

    cost_source: CostSource = "measured on load"

    def __init__(
        self,
        name: str,
        recognizer: Any,
        tokens: Tokens,
        *,
        languages: Sequence[str],
        whisper_languages: Collection[str] | None = None,
    ) -> None:
        """`recognizer` is sherpa-onnx's; `whisper_languages`: the language codes of a Whisper model, None for other
        models. Measures its speed, for a few seconds."""
        self.name = name
        self.languages = tuple(languages)
        self._recognizer = recognizer
        self._tokens = tokens
        self._whisper_languages = whisper_languages
        self.speed = offline_speed(recognizer)
        # True for each job; False ends the thread.
        self._woken: SimpleQueue[bool] = SimpleQueue()
        self._awaited: deque[_Job] = deque()
        self._interim: deque[_Job] = deque()
        self._streams: WeakSet[OfflineStream] = WeakSet()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> OfflineStream:
        """A stream for one call; see `SpeechToText`. Raises `ValueError` for a rate other than 8000 and 16000."""
        input_converter(rate)
        stream = OfflineStream(self, rate, language, on_words, Truecaser(self._tokens.case, language, hot_words))
        self._streams.add(stream)
        return stream

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """The text of mono int16 audio at `rate` Hz. Cancelling it withdraws a job that has not begun. Raises
        `ModelError`."""
        request = TranscriptFuture()
        self.submit(blocks, rate, language, lambda: not request.future.done(), request.resolve, awaited=True)
        return await request.future

    def submit(
        self,
        blocks: Sequence[Samples],
        rate: int,
        language: str | None,
        is_wanted: Callable[[], bool],
        on_result: Callable[[str, ModelError | None], None],
        *,
        awaited: bool = False,
    ) -> None:
        """Queue a turn; returns at once. `on_result` is not called if `is_wanted` is False when the job is due.
        `awaited`: a caller waits for the text, so that it goes before the others."""
        if not self._thread.is_alive():
            on_result("", ModelError("the recognizer is closed"))
            return
        (self._awaited if awaited else self._interim).append(_Job(blocks, rate, language, is_wanted, on_result))
        self._woken.put(True)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: the age of the oldest queued job."""
        waiting = [jobs[0].since for jobs in (self._awaited.copy(), self._interim.copy()) if jobs]
        return max(0.0, time.monotonic() - min(waiting)) if waiting else 0.0

    def close(self) -> None:
        """Close all streams and stop the thread; waits for the current run. Idempotent."""
        for stream in list(self._streams):
            stream.close()
        self._woken.put(False)
        self._thread.join()
        while jobs := self._next():
            for job in jobs:
                self._answer(job, "", ModelError("the recognizer is closed"))

    def _run(self) -> None:
        lower_thread_priority(_NICENESS)
        while self._woken.get():
            jobs = [job for job in self._next() if self._is_wanted(job)]
            for _, group in groupby(sorted(jobs, key=self._group), key=self._group):
                self._recognize(list(group))

    def _next(self) -> list[_Job]:
        """The oldest awaited jobs, or else the oldest interim ones."""
        jobs = self._awaited or self._interim
        return [jobs.popleft() for _ in range(min(_MAX_BATCH, len(jobs)))]

    def _is_wanted(self, job: _Job) -> bool:
        try:
            return job.is_wanted()
        except Exception as error:  # noqa: BLE001 - any error fails this turn alone
            self._fail_jobs([job], error)
            return False

    def _answer(self, job: _Job, text: str, error: ModelError | None) -> None:
        try:
            job.on_result(text, error)
        except Exception as callback_error:  # noqa: BLE001 - the thread serves other calls too
            _log.error("stt.answer_failed", model=self.name, error=str(callback_error), exc_info=True)

    def _fail_jobs(self, jobs: Sequence[_Job], error: Exception) -> None:
        _log.error("stt.failed", model=self.name, error=str(error), exc_info=True)
        for job in jobs:
            self._answer(job, "", ModelError(f"speech recognition failed: {error}"))

    def _group(self, job: _Job) -> str:
        """The language of a Whisper run, which is the same for all of its turns; "" for detection."""
        return "" if self._whisper_languages is None else whisper_language(job.language, self._whisper_languages)

    def _recognize(self, jobs: Sequence[_Job]) -> None:
        try:
            texts = self._transcribe_batch(jobs)
        except Exception as error:  # noqa: BLE001 - any error fails these turns alone
            self._fail_jobs(jobs, error)
            return
        for job, text in zip(jobs, texts, strict=True):
            self._answer(job, text, None)

    def _transcribe_batch(self, jobs: Sequence[_Job]) -> list[str]:
        if self._whisper_languages is not None:
            self._recognizer.config.model_config.whisper.language = self._group(jobs[0])
            self._recognizer.recognizer.set_config(self._recognizer.config)
        streams: list[list[Any]] = []
        for job in jobs:
            streams.append([])
            for piece in split_at_pauses(_upsampled(job)):
                stream = self._recognizer.create_stream()
                stream.accept_waveform(RATE, _as_list(np.concatenate([piece, _TRAILING_SILENCE])))
                streams[-1].append(stream)
        if any(streams):
            self._recognizer.decode_streams([stream for each in streams for stream in each])
        return [" ".join(" ".join(stream.result.text for stream in each).split()) for each in streams]


class OfflineStream:
    """One call's stream without a streaming model; see `SpeechToTextStream`."""

    def __init__(
        self,
        model: OfflineSpeechToText,
        rate: int,
        language: str | None,
        on_words: Callable[[str], None],
        truecaser: Truecaser,
    ) -> None:
        self._model = model
        self._rate = rate
        self._language = language
        self._on_words = on_words
        self._truecaser = truecaser
        self._closed = False
        self._begin_turn()

    def feed(self, samples: Samples) -> None:
        """Store mono samples at the stream's rate; returns at once."""
        if self._closed or not len(samples):
            return
        turn = self._turn
        turn.blocks.append(np.array(samples, dtype=np.int16))
        turn.length += len(samples)
        if turn.length >= turn.interim_at and not turn.interim_pending:
            turn.interim_pending = True
            is_wanted = lambda: turn is self._turn  # noqa: E731 - two closures of one line
            on_result = lambda text, error: self._on_interim_text(turn, text, error)  # noqa: E731
            self._model.submit(tuple(turn.blocks), self._rate, self._language, is_wanted, on_result)

    def partial(self) -> str:
        """The last interim text of the turn."""
        return self._turn.words

    async def flush(self) -> str:
        """The text so far. Raises `ModelError`."""
        turn = self._turn
        turn.words = await self._text(turn)
        return turn.words

    async def end_turn(self) -> str:
        """The text of this turn. Raises `ModelError`."""
        turn = self._turn
        self._begin_turn()
        return await self._text(turn)

    def reset(self) -> None:
        """Discard what was fed since the last `end_turn`."""
        self._begin_turn()

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn = _BufferedTurn(self._rate * _FIRST_INTERIM_MS // 1000)

    async def _text(self, turn: _BufferedTurn) -> str:
        if self._closed:
            raise ModelError("the recognizer's stream is closed")
        if not turn.blocks:
            return ""
        return self._truecaser.apply(await self._model.transcribe(tuple(turn.blocks), self._rate, self._language))

    def _on_interim_text(self, turn: _BufferedTurn, text: str, error: ModelError | None) -> None:
        """From the worker thread: the interim text of an open turn. `end_turn` raises the error again."""
        words = self._truecaser.apply(text)
        turn.interim_at = int(turn.length * _INTERIM_GROWTH)
        turn.interim_pending = False
        if turn is self._turn and error is None and words != turn.words:
            turn.words = words
            if words:
                self._on_words(words)


class _BufferedTurn:
    """The audio that was fed, and the length at which the next interim text is due."""

    def __init__(self, interim_at: int) -> None:
        self.blocks: list[Samples] = []
        self.length = 0
        self.interim_at = interim_at
        self.interim_pending = False
        self.words = ""


def whisper_language(tag: str | None, known: Collection[str]) -> str:
    """Whisper's code for a BCP 47 tag, if it is one of the `known` codes; "" for detection. With an unknown code
    sherpa-onnx ends the process."""
    primary = (tag or "").lower().replace("_", "-").split("-")[0]
    return next((name for name in (primary, _WHISPER_CODES.get(primary, "")) if name in known), "")


def split_at_pauses(sound: Sound) -> Iterable[Sound]:
    """A turn at the model's rate as pieces of at most 25 s, cut where the last 5 s of each are quietest."""
    longest, look_back = _MAX_PIECE_S * RATE, _CUT_RANGE_S * RATE
    while len(sound) > longest:
        end = sound[longest - look_back : longest]
        loudness = np.convolve(end * end, np.ones(_PAUSE_SAMPLES), "valid")
        cut = longest - look_back + int(loudness.argmin()) + _PAUSE_SAMPLES // 2
        yield sound[:cut]
        sound = sound[cut:]
    if len(sound):
        yield sound


def _upsampled(job: _Job) -> Sound:
    if not job.blocks:
        return np.zeros(0, np.float32)
    return input_converter(job.rate).push(np.concatenate(job.blocks))


def _as_list(sound: Sound) -> list[float]:
    """Second by second, so that other threads run in between. sherpa-onnx must get the list in one call, because it
    treats the audio as complete after each call."""
    samples: list[float] = []
    for start in range(0, len(sound), RATE):
        samples += sound[start : start + RATE].tolist()
        time.sleep(0)
    return samples
