"""The measured speed of a synthesizer on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TtsSpeed:
    """Measured at the start on an idle machine. `real_time_factor`: seconds of a core per second of speech;
    `first_sentence_ms`: latency of a short sentence; `concurrency`: parallel sentences, each on a core."""

    real_time_factor: float
    first_sentence_ms: float
    concurrency: int
