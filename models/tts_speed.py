"""How fast a synthesizer is on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TtsSpeed:
    """Measured at the start with nothing else to do. `real_time_factor`: seconds of work for a second of speech, of
    all that the synthesizer may use; `first_sentence_ms`: until a short first clause can be heard; `at_once`: sentences
    that are worked on side by side."""

    real_time_factor: float
    first_sentence_ms: float
    at_once: int
