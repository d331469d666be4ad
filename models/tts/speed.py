"""How fast a synthesizer is on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TtsSpeed:
    """Measured at the start with nothing else to do. `real_time_factor`: seconds of a core for a second of speech;
    `first_sentence_ms`: until a short sentence can be heard; `at_once`: sentences that are worked on side by side, each
    on a core."""

    real_time_factor: float
    first_sentence_ms: float
    at_once: int
