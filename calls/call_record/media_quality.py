"""Media quality of a call (loss, jitter, MOS), as it is stored and as metrics."""

from __future__ import annotations

from typing import Any, Final

import structlog
from prometheus_client import Counter, Histogram

from sipcore.audio.call_quality import CallQuality, DirectionQuality
from sipcore.dialogs.call_leg import CallLeg

_DIRECTIONS: Final = ("received", "sent")
LOSS: Final = Histogram(
    "trunkline_rtp_loss_ratio",
    "Share of a call's RTP packets that were lost, at its end",
    ["way"],
    buckets=(0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5),
)
JITTER: Final = Histogram(
    "trunkline_rtp_jitter_seconds",
    "Mean RTP jitter of a call, at its end",
    ["way"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2),
)
MOS: Final = Histogram(
    "trunkline_call_mos",
    "Estimated mean opinion score of a call, at its end",
    ["way"],
    buckets=(1.5, 2.0, 2.5, 3.0, 3.3, 3.6, 3.8, 4.0, 4.1, 4.2, 4.3, 4.4),
)
FOREIGN_PACKETS: Final = Counter("trunkline_foreign_rtp_packets", "RTP packets that did not come from a call's peer")

log = structlog.get_logger()


def final_media_quality(leg: CallLeg, call_id: str) -> dict[str, Any] | None:
    """Returns the quality of a leg whose media has ended, and observes it in the metrics; None without media. Call it
    before the leg is released."""
    try:
        quality = leg.quality()
    except KeyError:
        return None
    _observe(quality)
    if quality.foreign:
        log.warning("call.foreign_rtp", call_id=call_id, packets=quality.foreign)
    return to_json(quality)


def _observe(quality: CallQuality) -> None:
    FOREIGN_PACKETS.inc(quality.foreign)
    for name, direction in zip(_DIRECTIONS, (quality.received, quality.sent), strict=True):
        if direction is None or direction.mos is None:
            continue
        LOSS.labels(name).observe(direction.loss)
        JITTER.labels(name).observe(direction.jitter_ms / 1000)
        MOS.labels(name).observe(direction.mos)


def to_json(quality: CallQuality) -> dict[str, Any]:
    """Returns the figures as they are stored and shown to clients."""
    return {
        "codec": quality.codec,
        "received": {
            **_direction_to_json(quality.received),
            "duplicate": quality.duplicate,
            "reordered": quality.reordered,
            "foreign": quality.foreign,
            "malformed": quality.malformed,
            "discardedMs": round(quality.discarded_ms),
        },
        "sent": {"packets": quality.packets_sent} if quality.sent is None else _direction_to_json(quality.sent),
        "roundTripMs": _rounded(quality.round_trip_ms),
        "maxRoundTripMs": _rounded(quality.round_trip_max_ms),
    }


def _direction_to_json(quality: DirectionQuality) -> dict[str, Any]:
    return {
        "packets": quality.packets,
        "lost": quality.lost,
        "lossPercent": round(100 * quality.loss, 2),
        "jitterMs": round(quality.jitter_ms, 1),
        "maxJitterMs": round(quality.jitter_max_ms, 1),
        "mos": None if quality.mos is None else round(quality.mos, 2),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
