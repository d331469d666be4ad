"""What an agent's voice stability means to a synthesizer: how far the pitch moves around its mean."""

from __future__ import annotations


def pitch_range(stability: float) -> float:
    """The share of the voice's own pitch movement: 1.5 at 0 (lively), 1 at 0.5 (as the voice is), 0.5 at 1 (even)."""
    return 1.5 - stability
