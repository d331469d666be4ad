"""Chunk timing: the number of samples after which a streaming model decodes its next chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from config.errors import StartupError
from models.stt.sherpa.upsampling import RATE

_FRAME: Final = RATE // 100
_MAX_SAMPLES: Final = 10 * RATE


@dataclass(frozen=True)
class ChunkTiming:
    """In samples at the model's rate: the first chunk can be decoded after `first` samples, each further one after
    `step` more. The difference is the network's look-ahead."""

    first: int
    step: int

    def samples_needed(self, chunks: int) -> int:
        """Samples that must have arrived before the next chunk, after this many, can be decoded."""
        return self.first + chunks * self.step


def measure_chunk_timing(recognizer: Any) -> ChunkTiming:
    """Measured by trial, because the metadata of models differ. Raises `StartupError` for a model that decodes
    nothing."""
    stream = recognizer.create_stream()
    silence = np.zeros(_FRAME, np.float32).tolist()
    ready_at: list[int] = []
    for fed in range(_FRAME, _MAX_SAMPLES, _FRAME):
        stream.accept_waveform(RATE, silence)
        while recognizer.is_ready(stream):
            recognizer.decode_streams([stream])
            ready_at.append(fed)
        if len(ready_at) >= 4 and ready_at[-1] > ready_at[-2]:
            return ChunkTiming(ready_at[0], ready_at[-1] - ready_at[-2])
    raise StartupError("the model decodes no audio")
