"""Speech to text for all calls by one streaming model of sherpa-onnx."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

from models.protocols import CostSource
from models.runtime.machine import available_cores
from models.stt.sherpa.batcher import Batcher
from models.stt.sherpa.chunk_timing import measure_chunk_timing
from models.stt.sherpa.hotwords import encoded
from models.stt.sherpa.speed_measurement import streaming_speed
from models.stt.sherpa.stream import SherpaStream
from models.stt.sherpa.tokens import Tokens
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE

_RUN_S: Final = 0.08
"""A caller who has ended a turn waits for the run that goes on: it is to take no longer."""
_MAX_BATCH: Final = 32


class SherpaSpeechToText:
    """A loaded model and the threads that decode for it: one for every four cores. Each runs the network on its own
    core, so that a machine with more cores hears more calls, not each of them sooner."""

    cost_source: CostSource = "measured on load"

    def __init__(
        self,
        name: str,
        recognizer: Any,
        tokens: Tokens,
        *,
        languages: Sequence[str],
        biased: bool,
        threads: int | None = None,
        most: int | None = None,
    ) -> None:
        """`recognizer` is sherpa-onnx's; `biased`: it can be made to expect words; `most`: streams in one run, by
        default what this machine decodes in `_RUN_S`. Measures its speed, for a second or so. Raises
        `StartupError`."""
        self.name = name
        self.languages = tuple(languages)
        self._recognizer = recognizer
        self._tokens = tokens
        self._biased = biased
        self._pace = measure_chunk_timing(recognizer)
        self.speed = streaming_speed(recognizer, self._pace)
        count = threads or max(1, int(available_cores()) // 4)
        self.threads = count
        most = most or min(_MAX_BATCH, self.speed.streams_in(_RUN_S, self._pace.step / RATE))
        self._batchers = [Batcher(recognizer, f"{name}-{number}", most) for number in range(count)]
        self._streams: list[WeakSet[SherpaStream]] = [WeakSet() for _ in self._batchers]

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SherpaStream:
        """A stream for one call; see `SpeechToText`. Raises `ValueError` for a rate other than 8000 and 16000."""
        expected = encoded(hot_words, self._tokens) if self._biased else ""
        make = self._recognizer.create_stream
        number = min(range(len(self._batchers)), key=lambda number: len(self._streams[number]))
        stream = SherpaStream(
            self._batchers[number],
            self._recognizer,
            (lambda: make(expected)) if expected else make,
            self._pace,
            rate,
            Truecaser(self._tokens.case, language, hot_words),
            on_words,
        )
        self._streams[number].add(stream)
        return stream

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: as much sound as waits to be heard of the caller who is the furthest behind."""
        return max((stream.backlog_s for streams in self._streams for stream in list(streams)), default=0.0)

    def close(self) -> None:
        """Close all streams and stop the threads; waits for what is being decoded. Idempotent."""
        for streams in self._streams:
            for stream in list(streams):
                stream.close()
        for batcher in self._batchers:
            batcher.close()
