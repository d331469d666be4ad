"""Prometheus metrics of the response gap: from the end of the caller's speech to the agent's first audio."""

from __future__ import annotations

from typing import Final

from calls import metrics
from calls.call_record.timeline import TimelineTurn

_STAGES: Final = (
    ("endpointing", "turn_end_ms"),
    ("speech_to_text", "text_ready_ms"),
    ("first_token", "first_token_ms"),
    ("first_speech", "speech_ready_ms"),
    ("first_packet", "agent_start_ms"),
)
"""Names and ends of the stages. Each begins at the end of the previous one, the first at the end of speech."""


def observe(turn: TimelineTurn) -> None:
    """Observe a turn whose response becomes audible. A stage that ended before the previous one, because the response
    was speculative, counts as 0."""
    if turn.gap_ms is None or turn.speech_end_ms is None:
        return
    metrics.RESPONSE_GAP.observe(turn.gap_ms / 1000)
    reached = turn.speech_end_ms
    for stage, end_name in _STAGES:
        end = getattr(turn, end_name)
        if end is not None:
            metrics.TURN_STAGE.labels(stage=stage).observe(max(end - reached, 0.0) / 1000)
            reached = max(reached, end)
