"""Chunk timing: after how many samples a streaming model takes its next chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from config.errors import StartupError
from models.stt.sherpa.upsampling import RATE

_FRAME: Final = RATE // 100
_LONGEST: Final = 10 * RATE


@dataclass(frozen=True)
class ChunkTiming:
    """In samples at the model's rate: the first piece can be decoded when `first` of them have come, each further one
    `step` later. The difference is what the network looks ahead."""

    first: int
    step: int

    def needed(self, pieces: int) -> int:
        """Samples that must have come before the next piece, after so many, can be decoded."""
        return self.first + pieces * self.step


def measure_chunk_timing(recognizer: Any) -> ChunkTiming:
    """Found by trying, for models say it each in another way. Raises `StartupError` for one that never takes any."""
    stream = recognizer.create_stream()
    silence = np.zeros(_FRAME, np.float32).tolist()
    readies: list[int] = []
    for fed in range(_FRAME, _LONGEST, _FRAME):
        stream.accept_waveform(RATE, silence)
        while recognizer.is_ready(stream):
            recognizer.decode_streams([stream])
            readies.append(fed)
        if len(readies) >= 4 and readies[-1] > readies[-2]:
            return ChunkTiming(readies[0], readies[-1] - readies[-2])
    raise StartupError("the model takes no sound")
