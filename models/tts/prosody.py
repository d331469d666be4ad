"""Prosody: the pitch range of an agent's voice stability."""

from __future__ import annotations


def pitch_range(stability: float) -> float:
    """Share of the voice's own pitch movement: 1.5 at 0 (lively), 1 at 0.5 (the voice's own), 0.5 at 1 (even)."""
    return 1.5 - stability


@dataclass(frozen=True)
class TtsSpeed:
    """Measured at the start with nothing else to do. `real_time_factor`: seconds of a core for a second of speech;
    `first_sentence_ms`: until a short sentence can be heard; `concurrency`: sentences that are worked on side by side,
    each on a core."""

    real_time_factor: float
    first_sentence_ms: float
    concurrency: int
