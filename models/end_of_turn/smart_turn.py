"""End-of-turn detection by audio: Smart Turn v3 judges intonation and rhythm. The lexical rules overrule it where they
are certain: after "and my" the turn is not over, after "goodbye" it is, and the network is not run.

The network (https://github.com/pipecat-ai/smart-turn, BSD-2-Clause) is a file in the package `pipecat-ai`, which is not
imported. It takes the features of the last 8 s of the turn and 40 to 50 ms of a core, so that a few threads of its own
serve all calls."""

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
from models.end_of_turn.lexical import COMPLETE, INCOMPLETE, LexicalEndOfTurn
from models.end_of_turn.log_mel import INPUT_SAMPLES, RATE, log_mel
from models.protocols import CostSource
from models.runtime.worker_threads import WorkerThreads

NAME: Final = "smart-turn-v3"
_FOLDER: Final = "pipecat/audio/turn/smart_turn/data"
_SECONDS: Final = INPUT_SAMPLES // RATE
MAX_WAIT_S: Final = 0.15
"""Default of the maximum time in the queue; a third of what a caller notices."""
_RUNS: Final = 5
_CORES_PER_THREAD: Final = 2

Answer = Callable[[float | None], None]

_log = structlog.get_logger()


def model_path() -> Path:
    """The newest Smart Turn v3 for CPUs in the installed `pipecat-ai` package. Raises `StartupError`."""
    spec = find_spec("pipecat")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    for root in roots:
        files = sorted(Path(root).parent.joinpath(_FOLDER).glob("smart-turn-v3*-cpu.onnx"))
        if files:
            return files[-1]
    raise StartupError(f"The end-of-turn model is missing ({_FOLDER}/smart-turn-v3*-cpu.onnx): run `make setup` again.")


class SmartTurnNetwork:
    """The loaded Smart Turn model file. Any thread may run it, several at once."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        """`threads` compute one answer. Raises `StartupError` when the file is not such a model."""
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
        """Probability 0..1 that the turn is over at the end of `sound`, `int16[n]` at `rate` Hz; the last 8 s are used.
        40 to 50 ms."""
        recent = sound[-_SECONDS * rate :]
        wide = recent if rate == RATE else soxr.resample(recent, rate, RATE)
        (p,) = self._session.run(None, {"input_features": log_mel(wide)[np.newaxis]})
        return float(p[0, 0])


class SmartTurn:
    """Smart Turn v3 for many calls; see `EndOfTurn`."""

    cost_source: CostSource = "measured on load"

    name = NAME

    def __init__(self, threads: int | None = None, max_wait_s: float = MAX_WAIT_S) -> None:
        """`threads` judge calls in parallel, by default one for every two cores; a query that has been queued for
        `max_wait_s` is answered without the network. Takes half a second. Raises `StartupError`."""
        self._max_wait_s = max_wait_s
        self._network = SmartTurnNetwork(model_path())
        self.takes_ms = _measure_latency_ms(self._network)
        self.latency_ms = round(self.takes_ms)
        self._rules = LexicalEndOfTurn()
        self._logged_errors: set[type[Exception]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._workers = WorkerThreads(threads or max(1, (os.cpu_count() or 1) // _CORES_PER_THREAD), NAME)

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> SmartTurnStream:
        """A stream for mono int16 audio at `rate` Hz; see `EndOfTurn`."""
        return SmartTurnStream(self, rate, lambda: self._rules.probability(partial(), language))

    def close(self) -> None:
        """Answer the pending queries, then stop the threads. Idempotent."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._workers.close()

    def submit(self, stream: SmartTurnStream) -> bool:
        """Schedule a step of the stream in a worker thread; returns False when closed."""
        with self._lock:
            if not self._closed:
                self._workers.submit(stream)
            return not self._closed

    def predict(
        self, sound: Sequence[Samples], rate: int, lexical_probability: Callable[[], float], asked_s: float
    ) -> float | None:
        """The probability for a turn's audio, in pieces, asked at `asked_s` of `time.monotonic`. A query that waited
        too long for other calls is answered by the lexical rules alone, so that no caller waits for a busy machine.
        None when the model fails, which is logged once for each type of error."""
        try:
            lexical = lexical_probability()
            certain = lexical <= INCOMPLETE or lexical >= COMPLETE
            if certain or time.monotonic() - asked_s > self._max_wait_s:
                return lexical
            return self._network.probability(np.concatenate(sound), rate)
        except Exception as error:  # noqa: BLE001 - the turn ends without an answer, as it would without a model
            if type(error) not in self._logged_errors:
                self._logged_errors.add(type(error))
                _log.error("end_of_turn.failed", model=NAME, error=repr(error), exc_info=error)
            return None


@dataclass(frozen=True, slots=True)
class _Query:
    """A query at `asked_s` of `time.monotonic` and the audio up to then. `turn` is the number of the stream's turn."""

    turn: int
    asked_s: float
    sound: tuple[Samples, ...]
    answer: Answer


class SmartTurnStream:
    """The turn of one call; see `EndOfTurnStream`. It keeps the last 8 s. Only the newest pending query counts: an
    older one is answered with None."""

    def __init__(self, model: SmartTurn, rate: int, lexical_probability: Callable[[], float]) -> None:
        """`lexical_probability()` is the lexical rules' result for the words so far."""
        self._model = model
        self._rate = rate
        self._lexical_probability = lexical_probability
        self._lock = threading.Lock()
        self._fed: deque[Samples] = deque()
        self._length = 0  # samples in `_fed`
        self._turn = 0
        self._pending: _Query | None = None
        self._closed = False

    def feed(self, samples: Samples) -> None:
        """Store the next samples; returns at once."""
        with self._lock:
            if self._closed or not len(samples):
                return
            self._fed.append(samples)
            self._length += len(samples)
            while self._length - len(self._fed[0]) >= _SECONDS * self._rate:
                self._length -= len(self._fed.popleft())

    def ask(self, answer: Answer) -> None:
        """Judge the audio fed so far in a worker thread; answers None at once without any audio."""
        with self._lock:
            replaced, self._pending = self._pending, None
            if self._fed:
                self._pending = _Query(self._turn, time.monotonic(), tuple(self._fed), answer)
            queued = self._pending is not None
        if replaced is not None:
            replaced.answer(None)
        if not queued:
            answer(None)
        elif replaced is None and not self._model.submit(self):
            self.reset()

    def step(self) -> bool:
        """Answer the pending query; for `WorkerThreads`."""
        with self._lock:
            query, self._pending = self._pending, None
        if query is not None:
            p = self._model.predict(query.sound, self._rate, self._lexical_probability, query.asked_s)
            self._answer(query, p)
        return False

    def reset(self) -> None:
        """The turn is over: its pending query is answered with None."""
        with self._lock:
            self._turn += 1
            self._fed.clear()
            self._length = 0
            dropped, self._pending = self._pending, None
        if dropped is not None:
            dropped.answer(None)

    def close(self) -> None:
        """Discard the audio, and answer None from now on. Idempotent."""
        with self._lock:
            self._closed = True
        self.reset()

    def _answer(self, query: _Query, p: float | None) -> None:
        """From a worker thread, which survives errors of the callback."""
        with self._lock:
            is_current = query.turn == self._turn
        try:
            query.answer(p if is_current else None)
        except Exception as error:  # noqa: BLE001 - the thread serves other calls too
            _log.error("end_of_turn.answer_failed", model=NAME, error=repr(error), exc_info=error)


def _measure_latency_ms(network: SmartTurnNetwork) -> float:
    """The latency of an answer on an idle machine, ms: the minimum of a few."""
    silence, took = np.zeros(INPUT_SAMPLES // 2, np.int16), []
    for _ in range(_RUNS):
        began = time.perf_counter()
        network.probability(silence, RATE // 2)
        took.append((time.perf_counter() - began) * 1000)
    return min(took)
