"""What Prometheus reads about calls and their webhooks."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LIVE_CALLS: Final = Gauge("trunkline_live_calls", "Calls that wait to be placed, ring or talk now")
PLACED_CALLS: Final = Counter("trunkline_placed_calls", "Outbound calls whose INVITE was sent")
REFUSED_CALLS: Final = Counter("trunkline_refused_calls", "Inbound calls that were turned away", ["sip_status"])
DIGESTS: Final = Counter("trunkline_inbound_digests", "What callers said who have to say who they are", ["outcome"])
ENDED_CALLS: Final = Counter("trunkline_ended_calls", "Calls that ended", ["direction", "reason"])
CALL_SETUP: Final = Histogram(
    "trunkline_call_setup_seconds",
    "From INVITE to its 200, as they were on the wire",
    ["direction"],
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0),
)
EXPECTED_WAIT: Final = Gauge(
    "trunkline_expected_wait_seconds", "How long an answer would wait for the models, evened out over some seconds"
)
MODELS_SLOW: Final = Gauge("trunkline_models_slow", "1 while answers wait longer than max_answer_wait_s")
INTERRUPTIONS: Final = Counter("trunkline_interruptions", "Times that a caller interrupted an agent")
RESPONSE_GAP: Final = Histogram(
    "trunkline_response_gap_seconds",
    "From the end of the caller's speech to the first sound of the answer",
    buckets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0),
)
TURN_STAGE: Final = Histogram(
    "trunkline_turn_stage_seconds",
    "Where the time between the end of the caller's speech and the first sound of the answer went",
    ["stage"],
    buckets=(0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0),
)
BARGE_IN: Final = Histogram(
    "trunkline_barge_in_seconds",
    "From the beginning of a caller's interruption to the agent's silence",
    buckets=(0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0),
)
SPOKEN_PIECES: Final = Counter(
    "trunkline_spoken_pieces", "Pieces of speech that agents needed; only those `made` were synthesized", ["origin"]
)
SPECULATIONS: Final = Counter(
    "trunkline_speculations", "Answers that were begun before the caller's turn was over", ["outcome"]
)
TOOL_USES: Final = Counter("trunkline_tool_uses", "Tools that agents used", ["outcome"])
ANALYSIS: Final = Histogram(
    "trunkline_analysis_seconds",
    "How long the summary and the values of an ended call took; `fell_back`: the language model failed",
    ["outcome"],
    buckets=(0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0),
)
WEBHOOK_ATTEMPTS: Final = Counter("trunkline_webhook_attempts", "Webhook sendings", ["outcome"])
TOOL_SECONDS: Final = Histogram(
    "trunkline_tool_seconds",
    "How long the HTTP requests of tools took, the wait for their turn included",
    ["outcome"],
    buckets=(0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 10.0, 30.0),
)
USED_SECONDS: Final = Counter("trunkline_used_seconds", "Time that ended calls were connected, or heard", ["what"])
USED_TOKENS: Final = Counter("trunkline_used_tokens", "Tokens of ended calls", ["what"])
USED_CHARACTERS: Final = Counter("trunkline_used_characters", "Characters that were spoken in ended calls")
CHARGED: Final = Counter("trunkline_charged", "What calls of paid plans cost, in the currency of the balances")
