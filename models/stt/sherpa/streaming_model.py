"""Speech to text for all calls by one streaming model of sherpa-onnx."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

from models.protocols import CostSource
from models.runtime.cpu_memory_limits import available_cores
from models.stt.sherpa.batcher import Batcher
from models.stt.sherpa.chunk_timing import measure_chunk_timing
from models.stt.sherpa.hotwords import encode_hotwords
from models.stt.sherpa.speed_measurement import streaming_speed
from models.stt.sherpa.stream import SherpaStream
from models.stt.sherpa.tokens import Tokens
from models.stt.sherpa.truecasing import Truecaser
from models.stt.sherpa.upsampling import RATE

_RUN_S: Final = 0.08
"""Maximum duration of a run: a caller who has ended a turn waits for the run in progress."""
_MAX_BATCH: Final = 32


class SherpaSpeechToText:
    """A loaded model and its decoding threads: one for every four cores. Each runs the network on its own core, so that
    more cores serve more calls, not each of them sooner."""

    cost_source: CostSource = "measured on load"

    def __init__(
        self,
        name: str,
        recognizer: Any,
        tokens: Tokens,
        *,
        languages: Sequence[str],
        supports_hotwords: bool,
        threads: int | None = None,
        max_batch: int | None = None,
    ) -> None:
        """`recognizer` is sherpa-onnx's; `supports_hotwords`: it can be biased towards words; `max_batch`: streams in
        one run, by default what this machine decodes in `_RUN_S`. Measures its speed, for a second or so. Raises
        `StartupError`."""
        self.name = name
        self.languages = tuple(languages)
        self._recognizer = recognizer
        self._tokens = tokens
        self._supports_hotwords = supports_hotwords
        self._chunk_timing = measure_chunk_timing(recognizer)
        self.speed = streaming_speed(recognizer, self._chunk_timing)
        count = threads or max(1, int(available_cores()) // 4)
        self.threads = count
        max_batch = max_batch or min(_MAX_BATCH, self.speed.max_streams(_RUN_S, self._chunk_timing.step / RATE))
        self._batchers = [Batcher(recognizer, f"{name}-{number}", max_batch) for number in range(count)]
        self._streams: list[WeakSet[SherpaStream]] = [WeakSet() for _ in self._batchers]

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SherpaStream:
        """A stream for one call; see `SpeechToText`. Raises `ValueError` for a rate other than 8000 and 16000."""
        hotwords = encode_hotwords(hot_words, self._tokens) if self._supports_hotwords else ""
        create_stream = self._recognizer.create_stream
        number = min(range(len(self._batchers)), key=lambda number: len(self._streams[number]))
        stream = SherpaStream(
            self._batchers[number],
            self._recognizer,
            (lambda: create_stream(hotwords)) if hotwords else create_stream,
            self._chunk_timing,
            rate,
            Truecaser(self._tokens.case, language, hot_words),
            on_words,
        )
        self._streams[number].add(stream)
        return stream

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: the longest backlog of all streams."""
        return max((stream.backlog_s for streams in self._streams for stream in list(streams)), default=0.0)

    def close(self) -> None:
        """Close all streams and stop the threads; waits for the current runs. Idempotent."""
        for streams in self._streams:
            for stream in list(streams):
                stream.close()
        for batcher in self._batchers:
            batcher.close()
