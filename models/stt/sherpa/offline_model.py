"""Speech to text by offline models of sherpa-onnx, which take a turn whole: Whisper, Moonshine, SenseVoice, Parakeet.

They write better texts than streaming models and give no words while the caller speaks. Mostly they are the second pass
behind a streaming one (`models.stt.two_pass`); alone they hear what was said so far again and again, at growing
lengths.
"""

from __future__ import annotations

import os
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
from models.stt.sherpa.speed_measurement import offline_speed
from models.stt.sherpa.tokens import Tokens
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE, Sound, at_model_rate
from models.stt.text_future import TextFuture

_MAX_BATCH: Final = 8
"""Turns of one run."""
_LONGEST_S: Final = 25
"""Whisper hears 30 s at most: a longer turn is cut where it is quietest."""
_LOOK_BACK_S: Final = 5
_PAUSE: Final = RATE // 10
_AFTER: Final = np.zeros(RATE // 2, np.float32)
"""Silence after every turn: the last word needs it, and some models no less than that at all."""
_NICENESS: Final = 5
_FIRST_WORDS_MS: Final = 600
"""Sound after which a turn is heard the first time, for words that interrupt the agent."""
_GROWTH: Final = 1.5
"""By so much a turn has grown when it is heard again: three times the work of hearing it once."""

_WHISPER_NAMES: Final = {"iw": "he", "nb": "no", "jv": "jw", "fil": "tl", "cmn": "zh"}
"""Primary BCP 47 tags that Whisper calls otherwise."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class _Job:
    """A turn to be heard. `wanted` says whether anybody still waits; `answer` is called from the worker thread."""

    blocks: Sequence[Samples]
    rate: int
    language: str | None
    wanted: Callable[[], bool]
    answer: Callable[[str, ModelError | None], None]
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
        told: Collection[str] | None = None,
    ) -> None:
        """`recognizer` is sherpa-onnx's; `told`: the languages by which Whisper is told what to hear, None for other
        models. Measures its speed, for a few seconds."""
        self.name = name
        self.languages = tuple(languages)
        self._recognizer = recognizer
        self._tokens = tokens
        self._whisper_languages = told
        self.speed = offline_speed(recognizer)
        # One word for each job; False ends the thread.
        self._woken: SimpleQueue[bool] = SimpleQueue()
        self._awaited: deque[_Job] = deque()
        self._meanwhile: deque[_Job] = deque()
        self._streams: WeakSet[OfflineStream] = WeakSet()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> OfflineStream:
        """A stream for one call; see `SpeechToText`. Raises `ValueError` for a rate other than 8000 and 16000."""
        at_model_rate(rate)
        stream = OfflineStream(self, rate, language, on_words, Truecaser(self._tokens.case, language, hot_words))
        self._streams.add(stream)
        return stream

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """The text of mono int16 sound at `rate` Hz. Cancelling it takes it back if it has not begun. Raises
        `ModelError`."""
        request = TextFuture()
        self.submit(blocks, rate, language, lambda: not request.future.done(), request.resolve, awaited=True)
        return await request.future

    def submit(
        self,
        blocks: Sequence[Samples],
        rate: int,
        language: str | None,
        wanted: Callable[[], bool],
        answer: Callable[[str, ModelError | None], None],
        *,
        awaited: bool = False,
    ) -> None:
        """Hear a turn when its time comes; returns at once. `answer` is not called when it is not `wanted` then.
        `awaited`: somebody waits for it, so that it goes before the others."""
        if not self._thread.is_alive():
            answer("", ModelError("the recognizer is closed"))
            return
        (self._awaited if awaited else self._meanwhile).append(_Job(blocks, rate, language, wanted, answer))
        self._woken.put(True)

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: for as long as the oldest of what waits has waited."""
        waiting = [jobs[0].since for jobs in (self._awaited.copy(), self._meanwhile.copy()) if jobs]
        return max(0.0, time.monotonic() - min(waiting)) if waiting else 0.0

    def close(self) -> None:
        """Close all streams and stop the thread; waits for what it does. Idempotent."""
        for stream in list(self._streams):
            stream.close()
        self._woken.put(False)
        self._thread.join()
        while jobs := self._next():
            for job in jobs:
                self._answer(job, "", ModelError("the recognizer is closed"))

    def _run(self) -> None:
        # On Linux this sets the niceness of the calling thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while self._woken.get():
            jobs = [job for job in self._next() if self._is_wanted(job)]
            for _, alike in groupby(sorted(jobs, key=self._group), key=self._group):
                self._recognize(list(alike))

    def _next(self) -> list[_Job]:
        """What somebody waits for, or else what is heard meanwhile, the oldest first."""
        jobs = self._awaited or self._meanwhile
        return [jobs.popleft() for _ in range(min(_MAX_BATCH, len(jobs)))]

    def _is_wanted(self, job: _Job) -> bool:
        try:
            return job.wanted()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is lost for this turn alone
            self._failed([job], error)
            return False

    def _answer(self, job: _Job, text: str, error: ModelError | None) -> None:
        try:
            job.answer(text, error)
        except Exception as broken:  # noqa: BLE001 - other calls are still to be heard by this thread
            _log.error("stt.answer_failed", model=self.name, error=str(broken), exc_info=True)

    def _failed(self, jobs: Sequence[_Job], error: Exception) -> None:
        _log.error("stt.failed", model=self.name, error=str(error), exc_info=True)
        for job in jobs:
            self._answer(job, "", ModelError(f"speech recognition failed: {error}"))

    def _group(self, job: _Job) -> str:
        """Whisper is told the language for a whole run; without one it finds it out for each turn."""
        return "" if self._whisper_languages is None else whisper_language(job.language, self._whisper_languages)

    def _recognize(self, jobs: Sequence[_Job]) -> None:
        try:
            texts = self._texts(jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is, these turns alone are lost
            self._failed(jobs, error)
            return
        for job, text in zip(jobs, texts, strict=True):
            self._answer(job, text, None)

    def _texts(self, jobs: Sequence[_Job]) -> list[str]:
        if self._whisper_languages is not None:
            self._recognizer.config.model_config.whisper.language = self._group(jobs[0])
            self._recognizer.recognizer.set_config(self._recognizer.config)
        streams: list[list[Any]] = []
        for job in jobs:
            streams.append([])
            for piece in split_at_pauses(_wide(job)):
                stream = self._recognizer.create_stream()
                stream.accept_waveform(RATE, _as_list(np.concatenate([piece, _AFTER])))
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
        transcript: Truecaser,
    ) -> None:
        self._model = model
        self._rate = rate
        self._language = language
        self._on_words = on_words
        self._transcript = transcript
        self._closed = False
        self._begin_turn()

    def feed(self, samples: Samples) -> None:
        """Keep mono samples at the stream's rate; returns at once."""
        if self._closed or not len(samples):
            return
        turn = self._turn
        turn.blocks.append(np.array(samples, dtype=np.int16))
        turn.length += len(samples)
        if turn.length >= turn.hear_at and not turn.asked:
            turn.asked = True
            wanted = lambda: turn is self._turn  # noqa: E731 - a name would say no more
            answer = lambda text, error: self._words(turn, text, error)  # noqa: E731
            self._model.submit(tuple(turn.blocks), self._rate, self._language, wanted, answer)

    def partial(self) -> str:
        """The words of the turn when it was heard last."""
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
        """Forget what was fed since the last `end_turn`."""
        self._begin_turn()

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn = _BufferedTurn(self._rate * _FIRST_WORDS_MS // 1000)

    async def _text(self, turn: _BufferedTurn) -> str:
        if self._closed:
            raise ModelError("the recognizer's stream is closed")
        if not turn.blocks:
            return ""
        return self._transcript.apply(await self._model.transcribe(tuple(turn.blocks), self._rate, self._language))

    def _words(self, turn: _BufferedTurn, text: str, error: ModelError | None) -> None:
        """From the worker thread: what was heard of a turn that goes on. An error is told in `end_turn` again."""
        words = self._transcript.apply(text)
        turn.hear_at = int(turn.length * _GROWTH)
        turn.asked = False
        if turn is self._turn and error is None and words != turn.words:
            turn.words = words
            if words:
                self._on_words(words)


class _BufferedTurn:
    """What was fed, and how much of it there must be for it to be heard next."""

    def __init__(self, hear_at: int) -> None:
        self.blocks: list[Samples] = []
        self.length = 0
        self.hear_at = hear_at
        self.asked = False
        self.words = ""


def whisper_language(tag: str | None, known: Collection[str]) -> str:
    """Whisper's own name of a BCP 47 tag, one of those `known` to it; "" lets it find out. It is told no other one:
    sherpa-onnx ends the process over it."""
    primary = (tag or "").lower().replace("_", "-").split("-")[0]
    return next((name for name in (primary, _WHISPER_NAMES.get(primary, "")) if name in known), "")


def split_at_pauses(sound: Sound) -> Iterable[Sound]:
    """A turn at the model's rate as pieces of at most 25 s, cut where the last 5 s of each are quietest."""
    longest, look_back = _LONGEST_S * RATE, _LOOK_BACK_S * RATE
    while len(sound) > longest:
        end = sound[longest - look_back : longest]
        loudness = np.convolve(end * end, np.ones(_PAUSE), "valid")
        cut = longest - look_back + int(loudness.argmin()) + _PAUSE // 2
        yield sound[:cut]
        sound = sound[cut:]
    if len(sound):
        yield sound


def _wide(job: _Job) -> Sound:
    if not job.blocks:
        return np.zeros(0, np.float32)
    return at_model_rate(job.rate).push(np.concatenate(job.blocks))


def _as_list(sound: Sound) -> list[float]:
    """Second by second, so that other threads need not wait for all of it. sherpa-onnx must be given it at once: after
    each call it takes the sound for ended."""
    samples: list[float] = []
    for start in range(0, len(sound), RATE):
        samples += sound[start : start + RATE].tolist()
        time.sleep(0)
    return samples
