"""Prosody: the pitch range of an agent's voice stability."""

from __future__ import annotations


def pitch_range(stability: float) -> float:
    """Share of the voice's own pitch movement: 1.5 at 0 (lively), 1 at 0.5 (the voice's own), 0.5 at 1 (even)."""
    return 1.5 - stability
