"""Audio quality of a call: RTP and RTCP statistics, and the MOS of the E-model (ITU-T G.107)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class RtpTotals:
    """Counts of packets, and times in ms, over all streams of a call. Means and maxima are 0 before any measurement."""

    received: int
    received_octets: int
    lost: int
    """Packets that were not received, by their sequence numbers (RFC 3550 A.3): a peer that sends none loses none."""
    loss_runs: int
    """Number of gaps in the sequence numbers."""
    duplicate: int
    reordered: int
    foreign: int
    """Packets from other sources: dropped."""
    malformed: int
    """Packets that were no RTP: dropped."""
    sent: int
    jitter_ms: float
    """The latest interarrival jitter (RFC 3550 6.4.1)."""
    jitter_mean_ms: float
    jitter_max_ms: float
    packet_ms: float
    """Audio in one packet of the peer."""
    buffer_ms: float
    """Mean delay of the jitter buffer."""
    discarded_ms: float
    """Audio that the jitter buffer discarded: too late, or too much."""
    reports: int
    """Reports of the peer about what we sent (RFC 3550 6.4.1); the `remote` figures are theirs."""
    remote_lost: int
    remote_expected: int
    remote_jitter_mean_ms: float
    remote_jitter_max_ms: float
    round_trips: int
    """Round-trip measurements by these reports."""
    round_trip_mean_ms: float
    round_trip_max_ms: float


@dataclass(frozen=True)
class CodecRating:
    """A codec in the E-model: its scale, equipment impairment and packet-loss robustness."""

    wideband: bool
    impairment: float
    """Ie, or Ie,wb on the wideband scale."""
    robustness: float
    """Bpl, in percent: the higher, the better it conceals loss."""


_CODECS: Final = {
    "PCMU": CodecRating(False, 0, 25.1),
    "PCMA": CodecRating(False, 0, 25.1),
    "G722": CodecRating(True, 13, 10),
    "OPUS": CodecRating(True, 7, 20),
}
"""G.711 with concealment of loss and the impairment of G.722 (64 kbit/s) are G.113's (appendices I and IV). G.113 does
not cover Opus; its figures, and the robustness of G.722, are estimates."""
_UNKNOWN_CODEC: Final = CodecRating(False, 10, 15)

_BEST_R: Final = {False: 93.2, True: 129.0}
"""Ro - Is with the default values of G.107, and of G.107.1."""
_PEER_DELAY_MS: Final = 60.0
"""Assumed packet and jitter buffer delay of the peer, which is unknown."""


@dataclass(frozen=True)
class DirectionQuality:
    """The audio quality of one direction, at its receiver. Shares are 0..1."""

    packets: int
    lost: int
    loss: float
    jitter_ms: float
    """Mean."""
    jitter_max_ms: float
    mos: float | None
    """Mean opinion score, 1..4.5 (listening and delay, by the E-model); None without a packet."""


@dataclass(frozen=True)
class CallQuality:
    """The audio quality of both directions. The round trip is None before any measurement."""

    codec: str
    received: DirectionQuality
    sent: DirectionQuality | None
    """Our audio at the peer, by its RTCP reports; None without any."""
    discarded_ms: float
    duplicate: int
    reordered: int
    foreign: int
    malformed: int
    packets_sent: int
    round_trip_ms: float | None
    round_trip_max_ms: float | None


def call_quality(totals: RtpTotals, codec: str) -> CallQuality:
    """The audio quality by these statistics."""
    return CallQuality(
        codec=codec,
        received=_received(totals, codec),
        sent=_sent(totals, codec) if totals.reports else None,
        discarded_ms=totals.discarded_ms,
        duplicate=totals.duplicate,
        reordered=totals.reordered,
        foreign=totals.foreign,
        malformed=totals.malformed,
        packets_sent=totals.sent,
        round_trip_ms=totals.round_trip_mean_ms if totals.round_trips else None,
        round_trip_max_ms=totals.round_trip_max_ms if totals.round_trips else None,
    )


def _received(totals: RtpTotals, codec: str) -> DirectionQuality:
    unique = max(totals.received - totals.duplicate, 0)
    expected = unique + totals.lost
    late = totals.discarded_ms / totals.packet_ms if totals.packet_ms else 0.0
    missing = min((totals.lost + late) / expected, 1.0) if expected else 0.0
    delay_ms = totals.round_trip_mean_ms / 2 + totals.packet_ms + totals.buffer_ms
    return DirectionQuality(
        packets=totals.received,
        lost=totals.lost,
        loss=totals.lost / expected if expected else 0.0,
        jitter_ms=totals.jitter_mean_ms,
        jitter_max_ms=totals.jitter_max_ms,
        mos=mos(codec, missing, burst_ratio(totals.lost, totals.loss_runs, expected), delay_ms) if unique else None,
    )


def _sent(totals: RtpTotals, codec: str) -> DirectionQuality:
    """Losses that come out negative are duplicates (RFC 3550 A.3)."""
    lost, expected = max(totals.remote_lost, 0), totals.remote_expected
    loss = min(lost / expected, 1.0) if expected else 0.0
    return DirectionQuality(
        packets=totals.sent,
        lost=lost,
        loss=loss,
        jitter_ms=totals.remote_jitter_mean_ms,
        jitter_max_ms=totals.remote_jitter_max_ms,
        mos=mos(codec, loss, 1.0, totals.round_trip_mean_ms / 2 + _PEER_DELAY_MS),
    )


def burst_ratio(lost: int, runs: int, expected: int) -> float:
    """The mean length of a gap over that of random loss, 1 / (1 - share lost); at least 1 (G.107 7.2.4)."""
    if not runs or lost >= expected:
        return 1.0
    return max(lost / runs * (1 - lost / expected), 1.0)


def mos(codec: str, loss: float, burst: float, delay_ms: float) -> float:
    """The E-model with default values but for the codec, loss (a share), its burst ratio, and the delay from mouth to
    ear, without echo: ITU-T G.107 (2015) 7 and Annex B; for wideband codecs G.107.1, whose ratings end at 129. So the
    MOS of narrowband and wideband codecs are on different scales."""
    known = _CODECS.get(codec.upper(), _UNKNOWN_CODEC)
    percent = 100 * loss
    impairment = known.impairment + (95 - known.impairment) * percent / (percent / burst + known.robustness)
    rating = _BEST_R[known.wideband] - _delay_impairment(delay_ms) - impairment
    return _opinion(rating / 1.29 if known.wideband else rating)


def _delay_impairment(delay_ms: float) -> float:
    """Idd, G.107 (7-27)."""
    if delay_ms <= 100:
        return 0.0
    x = math.log2(delay_ms / 100)
    return 25 * float((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2)


def _opinion(rating: float) -> float:
    """G.107 Annex B. Between 0 and 6.5 the polynomial is below 1, the lowest opinion."""
    if rating <= 0:
        return 1.0
    if rating >= 100:
        return 4.5
    return max(1 + 0.035 * rating + rating * (rating - 60) * (100 - rating) * 7e-6, 1.0)
