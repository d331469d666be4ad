"""Measures a recognizer's real-time factor on this machine when it is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.stt.sherpa.chunk_timing import ChunkTiming
from models.stt.sherpa.load_check import noise
from models.stt.sherpa.upsampling import RATE

BATCHES: Final = (1, 4, 16)
_MAX_RUN_S: Final = 1.0
"""Seconds of a batch after which no larger one is measured."""
_REPETITIONS: Final = 3
_TURN_S: Final = 3.0
"""Seconds of audio of a turn."""


@dataclass(frozen=True)
class SttSpeed:
    """`real_time_factor`: core seconds per second of a stream's audio, by number of streams that are decoded
    together."""

    real_time_factor: Mapping[int, float]

    def max_streams(self, seconds: float, chunk_s: float) -> int:
        """Number of streams whose chunks of `chunk_s` seconds are decoded together in `seconds`; at least one."""
        return max(1, int(seconds / (min(self.real_time_factor.values()) * chunk_s)))


def streaming_speed(recognizer: Any, chunk_timing: ChunkTiming, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Measure by decoding chunks of noise. The first run is a warm-up."""
    sound = noise((chunk_timing.samples_needed(_REPETITIONS) + RATE // 10) / RATE).tolist()

    def run(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_cpu_time_s(lambda: recognizer.decode_streams(streams)) for _ in range(_REPETITIONS + 1)][1:]

    return _measure(run, chunk_timing.step / RATE, batches)


def offline_speed(recognizer: Any, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Measure by decoding turns of 3 s of noise."""
    sound = noise(_TURN_S).tolist()

    def run(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_cpu_time_s(lambda: recognizer.decode_streams(streams))]

    return _measure(run, _TURN_S, batches)


def _measure(run: Callable[[int], list[float]], sound_s: float, batches: Sequence[int]) -> SttSpeed:
    factors: dict[int, float] = {}
    for count in batches:
        run_times = run(count)
        factors[count] = min(run_times) / sound_s / count
        if sum(run_times) > _MAX_RUN_S:
            break
    return SttSpeed(factors)


def _cpu_time_s(work: Callable[[], None]) -> float:
    """CPU seconds of this thread, which does all the work itself, so that other work does not count."""
    started = time.thread_time()
    work()
    return time.thread_time() - started
