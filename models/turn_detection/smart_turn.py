"""End of turn by audio: Smart Turn v3 judges intonation and rhythm, without words. Words overrule it where they dangle
or stand for themselves: after "and my" the turn is not over, after "goodbye" it is, however that sounded, and the
network is spared.

The network (https://github.com/pipecat-ai/smart-turn, BSD-2-Clause) comes as a file in the package `pipecat-ai`, which
is not imported. It takes the features of the last 8 s of the turn and 40 to 50 ms of a core, so that few threads of its
own serve all calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import soxr
import structlog

from config.errors import StartupError
from media.audio_port import Samples
from media.onnx import onnxruntime
from models.protocols import CostSource
from models.runtime.worker_threads import WorkerThreads
from models.turn_detection.lexical import COMPLETE, DANGLING, LexicalEndOfTurn
from models.turn_detection.log_mel import LENGTH, RATE, log_mel

NAME: Final = "smart-turn-v3"
_FOLDER: Final = "pipecat/audio/turn/smart_turn/data"
_SECONDS: Final = LENGTH // RATE
LATE_S: Final = 0.15
"""By default; a third of what a caller notices."""
_TRIALS: Final = 5
_CORES_OF_A_THREAD: Final = 2

Answer = Callable[[float | None], None]

_log = structlog.get_logger()


def model_path() -> Path:
    """Where the installed `pipecat-ai` package keeps the newest Smart Turn v3 for CPUs. Raises `StartupError`."""
    spec = find_spec("pipecat")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    for root in roots:
        files = sorted(Path(root).parent.joinpath(_FOLDER).glob("smart-turn-v3*-cpu.onnx"))
        if files:
            return files[-1]
    raise StartupError(f"The end-of-turn model is missing ({_FOLDER}/smart-turn-v3*-cpu.onnx): run `make setup` again.")


class Network:
    """The model's file, loaded. Any thread may run it, several at once."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        """`threads` work on one answer. Raises `StartupError` when the file is no such model."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            self.probability(np.zeros(RATE, np.int16), RATE)
        except Exception as error:
            raise StartupError(f"The end-of-turn model {path} cannot be loaded: {error}") from error

    def probability(self, sound: Samples, rate: int) -> float:
        """Probability 0..1 that the turn is over whose end is `sound`, `int16[n]` at `rate` Hz; the last 8 s count.
        40 to 50 ms."""
        recent = sound[-_SECONDS * rate :]
        wide = recent if rate == RATE else soxr.resample(recent, rate, RATE)
        (p,) = self._session.run(None, {"input_features": log_mel(wide)[np.newaxis]})
        return float(p[0, 0])


class SmartTurn:
    """Smart Turn v3 for many calls; see `EndOfTurn`."""

    cost_source: CostSource = "measured on load"

    name = NAME

    def __init__(self, threads: int | None = None, late_s: float = LATE_S) -> None:
        """`threads` judge calls side by side, by default one for every two cores; what has waited `late_s` for one is
        too late for the network. Takes half a second. Raises `StartupError`."""
        self._late_s = late_s
        self._network = Network(model_path())
        self.takes_ms = _undisturbed_ms(self._network)
        self.latency_ms = round(self.takes_ms)
        self._rules = LexicalEndOfTurn()
        self._faults: set[type[Exception]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._workers = WorkerThreads(threads or max(1, (os.cpu_count() or 1) // _CORES_OF_A_THREAD), NAME)

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> SmartTurnStream:
        """A stream for mono int16 sound at `rate` Hz; see `EndOfTurn`."""
        return SmartTurnStream(self, rate, lambda: self._rules.probability(partial(), language))

    def close(self) -> None:
        """Answer what is asked already, then stop the threads. Idempotent."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._workers.close()

    def submit(self, stream: SmartTurnStream) -> bool:
        """Give the stream a step in a worker thread; False when there will be none."""
        with self._lock:
            if not self._closed:
                self._workers.submit(stream)
            return not self._closed

    def predict(self, sound: Sequence[Samples], rate: int, words: Callable[[], float], asked_s: float) -> float | None:
        """The probability for a turn's sound, in pieces, asked at `asked_s` of `time.monotonic`. What had to wait for
        other calls is judged by its words alone: no caller waits for a busy machine. None when the model fails, which
        is logged once for each kind of failure."""
        try:
            by_words = words()
            certain = by_words <= DANGLING or by_words >= COMPLETE
            if certain or time.monotonic() - asked_s > self._late_s:
                return by_words
            return self._network.probability(np.concatenate(sound), rate)
        except Exception as error:  # noqa: BLE001 - the turn ends without an answer, as it would without a model
            if type(error) not in self._faults:
                self._faults.add(type(error))
                _log.error("end_of_turn.failed", model=NAME, error=repr(error), exc_info=error)
            return None


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked at `asked_s` of `time.monotonic` and the sound by then. `turn` is the stream's turn."""

    turn: int
    asked_s: float
    sound: tuple[Samples, ...]
    answer: Answer


class SmartTurnStream:
    """One call's turn; see `EndOfTurnStream`. It keeps the last 8 s. Of questions that wait only the newest counts:
    an older one is answered with None."""

    def __init__(self, model: SmartTurn, rate: int, words: Callable[[], float]) -> None:
        """`words()` is what the rules say of the words so far."""
        self._model = model
        self._rate = rate
        self._words = words
        self._lock = threading.Lock()
        self._fed: deque[Samples] = deque()
        self._length = 0  # samples in `_fed`
        self._turn = 0
        self._waiting: _Question | None = None
        self._closed = False

    def feed(self, samples: Samples) -> None:
        """Keep the next samples; returns at once."""
        with self._lock:
            if self._closed or not len(samples):
                return
            self._fed.append(samples)
            self._length += len(samples)
            while self._length - len(self._fed[0]) >= _SECONDS * self._rate:
                self._length -= len(self._fed.popleft())

    def ask(self, answer: Answer) -> None:
        """Judge what was fed by now in a worker thread; None at once when nothing was fed."""
        with self._lock:
            replaced, self._waiting = self._waiting, None
            if self._fed:
                self._waiting = _Question(self._turn, time.monotonic(), tuple(self._fed), answer)
            taken = self._waiting is not None
        if replaced is not None:
            replaced.answer(None)
        if not taken:
            answer(None)
        elif replaced is None and not self._model.submit(self):
            self.reset()

    def step(self) -> bool:
        """Answer the question that waits; for `WorkerThreads`."""
        with self._lock:
            question, self._waiting = self._waiting, None
        if question is not None:
            p = self._model.predict(question.sound, self._rate, self._words, question.asked_s)
            self._answer(question, p)
        return False

    def reset(self) -> None:
        """The turn is over: a question of this turn gets None."""
        with self._lock:
            self._turn += 1
            self._fed.clear()
            self._length = 0
            dropped, self._waiting = self._waiting, None
        if dropped is not None:
            dropped.answer(None)

    def close(self) -> None:
        """Keep nothing and answer with None from now on. Idempotent."""
        with self._lock:
            self._closed = True
        self.reset()

    def _answer(self, question: _Question, p: float | None) -> None:
        """From a worker thread, which goes on whatever the answer leads to."""
        with self._lock:
            stands = question.turn == self._turn
        try:
            question.answer(p if stands else None)
        except Exception as error:  # noqa: BLE001 - other calls' questions wait for this thread
            _log.error("end_of_turn.answer_failed", model=NAME, error=repr(error), exc_info=error)


def _undisturbed_ms(network: Network) -> float:
    """What an answer takes on this machine when nothing else wants its cores, ms: the least of a few."""
    silence, took = np.zeros(LENGTH // 2, np.int16), []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        network.probability(silence, RATE // 2)
        took.append((time.perf_counter() - began) * 1000)
    return min(took)
