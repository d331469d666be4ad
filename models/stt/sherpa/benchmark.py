"""Measures how quick a recognizer is on this machine, before calls need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.stt.sherpa.chunk_timing import ChunkTiming
from models.stt.sherpa.trial import noise
from models.stt.sherpa.upsampling import RATE

BATCHES: Final = (1, 4, 16)
_ENOUGH_S: Final = 1.0
"""Of a batch that took this long, none larger is tried."""
_TRIALS: Final = 3
_OFFLINE_S: Final = 3.0
"""Sound of a turn."""


@dataclass(frozen=True)
class SttSpeed:
    """`real_time_factor`: seconds of one core for each second of a stream's sound, when so many streams are decoded
    together."""

    real_time_factor: Mapping[int, float]

    def streams_in(self, seconds: float, piece_s: float) -> int:
        """So many streams' pieces of sound, each `piece_s` long, are decoded together in that time; at least one."""
        return max(1, int(seconds / (min(self.real_time_factor.values()) * piece_s)))


def streaming_speed(recognizer: Any, pace: ChunkTiming, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Decode a few pieces of noise. The first run is not counted: it makes ready what later ones find."""
    sound = noise((pace.needed(_TRIALS) + RATE // 10) / RATE).tolist()

    def trial(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_took_s(lambda: recognizer.decode_streams(streams)) for _ in range(_TRIALS + 1)][1:]

    return _measured(trial, pace.step / RATE, batches)


def offline_speed(recognizer: Any, batches: Sequence[int] = BATCHES) -> SttSpeed:
    """Decode turns of 3 s of noise."""
    sound = noise(_OFFLINE_S).tolist()

    def trial(count: int) -> list[float]:
        streams = [recognizer.create_stream() for _ in range(count)]
        for stream in streams:
            stream.accept_waveform(RATE, sound)
        return [_took_s(lambda: recognizer.decode_streams(streams))]

    return _measured(trial, _OFFLINE_S, batches)


def _measured(trial: Callable[[int], list[float]], sound_s: float, batches: Sequence[int]) -> SttSpeed:
    factors: dict[int, float] = {}
    for count in batches:
        took = trial(count)
        factors[count] = min(took) / sound_s / count
        if sum(took) > _ENOUGH_S:
            break
    return SttSpeed(factors)


def _took_s(work: Callable[[], None]) -> float:
    """By the clock of this thread, which does all the work itself: others on the machine do not count."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
