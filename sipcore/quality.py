"""How well a call is heard: what its RTP and RTCP say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RtpTotals:
    """Counts of packets, and times in ms, over all streams of a call. Means and maxima are 0 before any measurement."""

    received: int
    received_octets: int
    lost: int
    """Packets that never came, by their sequence numbers (RFC 3550 A.3): a peer that sends nothing loses none."""
    loss_runs: int
    """How many gaps the lost packets made."""
    duplicate: int
    reordered: int
    foreign: int
    """Packets that were not the peer's: dropped."""
    malformed: int
    """Packets that were no RTP: dropped."""
    sent: int
    jitter_ms: float
    """The latest interarrival jitter (RFC 3550 6.4.1)."""
    jitter_mean_ms: float
    jitter_max_ms: float
    packet_ms: float
    """Sound in one packet of the peer."""
    buffer_ms: float
    """Mean delay of the jitter buffer."""
    discarded_ms: float
    """Sound that the jitter buffer threw away: it came too late, or was too much."""
    reports: int
    """Reports of the peer about what we sent (RFC 3550 6.4.1); the `remote` figures are theirs."""
    remote_lost: int
    remote_expected: int
    remote_jitter_mean_ms: float
    remote_jitter_max_ms: float
    round_trips: int
    """How often the round trip could be measured by them."""
    round_trip_mean_ms: float
    round_trip_max_ms: float
