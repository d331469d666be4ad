"""Measures the speed of a recognizer on this machine at start-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.stt.sherpa.chunk_timing import ChunkTiming
from models.stt.sherpa.trial import noise
from models.stt.sherpa.upsampling import RATE

BATCHES: Final = (1, 4, 16)
_MAX_BATCH_S: Final = 1.0
"""A batch that took this long is the largest that is tried."""
_TRIALS: Final = 3
_OFFLINE_S: Final = 3.0
"""Duration of a turn."""


@dataclass(frozen=True)
class SttSpeed:
    """`real_time_factor`: seconds of one core per second of a stream's audio, by the number of streams decoded
    together."""

    real_time_factor: Mapping[int, float]

    def max_streams(self, seconds: float, chunk_s: float) -> int:
        """The number of streams whose chunks of `chunk_s` are decoded together in that time; at least one."""
        return max(1, int(seconds / (min(self.real_time_factor.values()) * chunk_s)))


def streaming_speed(recognizer: Any, chunk_timing: ChunkTiming, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Decodes a few chunks of noise. The first run, which warms the model up, is not counted."""
    sound = noise((chunk_timing.samples_needed(_TRIALS) + RATE // 10) / RATE).tolist()

    def trial(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_took_s(lambda: recognizer.decode_streams(streams)) for _ in range(_TRIALS + 1)][1:]

    return _measure(trial, chunk_timing.step / RATE, batches)


def offline_speed(recognizer: Any, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Decodes turns of 3 s of noise."""
    sound = noise(_OFFLINE_S).tolist()

    def trial(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_took_s(lambda: recognizer.decode_streams(streams))]

    return _measure(trial, _OFFLINE_S, batches)


def _measure(trial: Callable[[int], list[float]], sound_s: float, batches: Sequence[int]) -> SttSpeed:
    factors: dict[int, float] = {}
    for count in batches:
        took = trial(count)
        factors[count] = min(took) / sound_s / count
        if sum(took) > _MAX_BATCH_S:
            break
    return SttSpeed(factors)


def _took_s(work: Callable[[], None]) -> float:
    """CPU time of this thread, which does all the work itself; other load on the machine does not count."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
