"""Prometheus metrics of calls and their webhooks."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from models.runtime.request_context import ModelFallback

LIVE_CALLS: Final = Gauge("trunkline_live_calls", "Calls that are queued, ringing or answered")
PLACED_CALLS: Final = Counter("trunkline_placed_calls", "Outbound calls whose INVITE was sent")
REFUSED_CALLS: Final = Counter("trunkline_refused_calls", "Inbound calls that were rejected", ["sip_status"])
DIGESTS: Final = Counter("trunkline_inbound_digests", "Inbound digest authentications, by outcome", ["outcome"])
ENDED_CALLS: Final = Counter("trunkline_ended_calls", "Calls that ended", ["direction", "reason"])
CALL_SETUP: Final = Histogram(
    "trunkline_call_setup_seconds",
    "From the INVITE to its 200 on the wire",
    ["direction"],
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0),
)
EXPECTED_WAIT: Final = Gauge(
    "trunkline_expected_wait_seconds", "Expected wait of a response for the models now, smoothed over 10 s"
)
MODELS_SLOW: Final = Gauge("trunkline_models_slow", "1 while responses wait longer than max_answer_wait_s")
INTERRUPTIONS: Final = Counter("trunkline_interruptions", "Barge-ins: callers' interruptions of the agent")
RESPONSE_GAP: Final = Histogram(
    "trunkline_response_gap_seconds",
    "From the end of the caller's speech to the agent's first audio",
    buckets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0),
)
TURN_STAGE: Final = Histogram(
    "trunkline_turn_stage_seconds",
    "Duration of the stages between the end of the caller's speech and the agent's first audio",
    ["stage"],
    buckets=(0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0),
)
BARGE_IN: Final = Histogram(
    "trunkline_barge_in_seconds",
    "From the beginning of a barge-in to the agent's silence",
    buckets=(0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0),
)
SPOKEN_PIECES: Final = Counter(
    "trunkline_spoken_pieces", "Pieces of agents' speech, by origin; only `made` ones were synthesized", ["origin"]
)
SPECULATIONS: Final = Counter(
    "trunkline_speculations", "Speculative responses, begun before the end of the caller's turn", ["outcome"]
)
MODEL_FALLBACKS: Final = Counter(
    "trunkline_model_fallbacks",
    "Models that failed, and the next one of the chain took over",
    ["kind", "model", "reason"],
)
TOOL_USES: Final = Counter("trunkline_tool_uses", "Tool calls of agents", ["outcome"])
ANALYSIS: Final = Histogram(
    "trunkline_analysis_seconds",
    "Duration of a call analysis (summary, extracted data); `fell_back`: the language model failed",
    ["outcome"],
    buckets=(0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0),
)
ANSWERS: Final = Counter(
    "trunkline_answers", "Calls to callees for which answer detection was on, by its last verdict", ["kind"]
)
ANSWER_SECONDS: Final = Histogram(
    "trunkline_answer_verdict_seconds",
    "From the answer of a callee to the first verdict of answer detection",
    ["kind"],
    buckets=(0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0),
)
TRANSFERS: Final = Counter("trunkline_transfers", "Transfers by agents that ended, by transferType", ["mode", "status"])
TRANSFER_CONNECT: Final = Histogram(
    "trunkline_transfer_connect_seconds",
    "From the beginning of a transfer to the connection of the caller with the target",
    ["mode"],
    buckets=(1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0),
)
JOURNAL_CALLS: Final = Gauge("trunkline_call_journal_calls", "Calls in the journal, which the database does not take")
JOURNAL_BYTES: Final = Gauge("trunkline_call_journal_bytes", "Size of the call journal")
UNJOURNALED_CALLS: Final = Counter(
    "trunkline_call_journal_failures", "Records that could not be written to the call journal, and are in memory alone"
)
REPLAYED_CALLS: Final = Counter("trunkline_call_journal_replayed", "Calls that were stored from the call journal")
WEBHOOK_ATTEMPTS: Final = Counter("trunkline_webhook_attempts", "Webhook delivery attempts", ["outcome"])
WEBHOOK_TURNS: Final = Counter("trunkline_webhook_turns", "Live turns for webhook receivers", ["outcome"])
TOOL_SECONDS: Final = Histogram(
    "trunkline_tool_seconds",
    "Duration of tools' HTTP requests, the wait for a free slot included",
    ["outcome"],
    buckets=(0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 10.0, 30.0),
)
USED_SECONDS: Final = Counter("trunkline_used_seconds", "Connected or transcribed time of ended calls", ["what"])
USED_TOKENS: Final = Counter("trunkline_used_tokens", "Language model tokens of ended calls", ["what"])
USED_CHARACTERS: Final = Counter("trunkline_used_characters", "Characters spoken by agents in ended calls")
CHARGED: Final = Counter("trunkline_charged", "Cost of calls on paid plans, in the currency of the balances")


def count_fallback(fallback: ModelFallback) -> None:
    """Count a model that failed."""
    MODEL_FALLBACKS.labels(kind=fallback.kind, model=fallback.model, reason=fallback.reason).inc()
