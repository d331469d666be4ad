"""The native audio pump as a `media.audio_port.AudioPort`.

The pump's C threads move one frame each way for every call every 20 ms, at the rate of the call's codec, and never wait
for Python. All functions here are thread-safe; an operation on a closed slot raises `KeyError`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from sipcore import _native
from sipcore.audio.call_quality import RtpTotals


@dataclass(frozen=True)
class SlotStats:
    """Counters of one call: 20 ms frames in each direction, and their faults."""

    frames_sent: int
    frames_received: int
    frames_missing: int
    """Ticks in which the stream had no frame (before the first packet, or on hold)."""
    under_runs: int
    """Ticks in which an unfinished utterance had no queued audio."""
    over_runs: int
    """Times that the oldest audio was dropped, because it was not read for `UNREAD_MS`."""
    last_packet_ns: int
    """CLOCK_MONOTONIC, ns, of the latest poll (every 100 ms) that found new RTP packets."""
    unreachable_ns: int = 0
    """CLOCK_MONOTONIC, ns, of the latest ICMP message that the port is closed to which we send RTP, or RTCP if the peer
    has sent some; 0: none."""


@dataclass(frozen=True)
class PumpStats:
    """Counters of all pump threads. The triples are (p50, p99, max) in ms since the last reset."""

    ticks: int
    skipped_ticks: int
    cpu_ns: int
    calls: int
    shards: int
    realtime: bool
    """True if the system has granted the threads real-time priority."""
    lateness_ms: tuple[float, float, float]
    deviation_ms: tuple[float, float, float]
    """Deviation from 20 ms between two packets of a call."""


class Pump:
    """The process's one pump. `start` belongs between PJSUA's initialization and its start."""

    def __init__(self, max_slots: int) -> None:
        """`max_slots`: 1..4096, the most calls with audio at once; one thread serves 250 of them."""
        self._rows = max_slots

    @property
    def rows(self) -> int:
        """Rows of the arrays of `read`."""
        return self._rows

    def start(self) -> None:
        """Start the threads. Raises `RuntimeError` when they run already."""
        _native.start(self._rows)

    def stop(self) -> None:
        """Stop the threads; every slot closes. Idempotent."""
        _native.stop()

    def wait(self, timeout_ms: int, ticks: int = 1) -> bool:
        """Block without the GIL until that many ticks have passed on all shards, or one after `wake`; False on
        timeout. Ticks since the last wait count as one that has passed."""
        return _native.wait(timeout_ms, ticks)

    def wake(self) -> None:
        """The present or next wait ends with the next tick."""
        _native.wake()

    def read(
        self,
        rx_audio: Samples,
        tx_audio: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32] | None = None,
    ) -> int:
        """Drain all slots, or those that hold `least` samples, `int32[rows]`, into `int16[rows, capacity]` (twice),
        `int32[rows]` and `int64[rows, INFO_COLUMNS]`."""
        return _native.read(rx_audio, tx_audio, counts, info, np.zeros_like(counts) if least is None else least)

    def rate(self, slot: int) -> int:
        """Sample rate, Hz: the codec's own."""
        return _native.rate(slot)

    def write(self, slot: int, samples: Samples) -> int:
        """Queue mono int16 samples at the slot's rate; returns how many fitted into the 30 s ring."""
        return _native.write(slot, np.ascontiguousarray(samples, dtype=np.int16))

    def expect_more(self, slot: int, more: bool) -> None:
        """While more of an utterance is to come, an empty ring is an under-run and gets comfort noise."""
        _native.expect_more(slot, more)

    def written_position(self, slot: int) -> int:
        """Index behind the last sample ever written."""
        return _native.written_position(slot)

    def sent_position(self, slot: int) -> int:
        """The played-samples clock."""
        return _native.sent_position(slot)

    def flush(self, slot: int) -> int:
        """Drop the queued samples and end a pause; returns the index up to which samples were sent. The next samples
        fade out in 5 ms, which the clock does not count."""
        return _native.flush(slot)

    def pause(self, slot: int, on: bool) -> None:
        """Pause or resume sending. The next samples fade out in 5 ms, which the clock does not count: the same samples
        fade in again on resume."""
        _native.pause(slot, on)

    def take_over(self, slot: int, other: int) -> bool:
        """Move the stream of another slot into this one; returns False when the other one has none."""
        try:
            return _native.take_over_stream(slot, other)
        except KeyError:
            return False

    def release(self, slot: int) -> None:
        """Close the slot; its handle is invalid from now on."""
        _native.release_slot(slot)

    def load_background(self, samples: Samples) -> _native.Background:
        """Make a looped sound from mono int16 samples at the rate of the slots that will play it."""
        return _native.load_background(np.ascontiguousarray(samples, dtype=np.int16))

    def set_background(self, slot: int, sound: _native.Background | None, volume: float, ducked: float) -> None:
        """Mix a loop under the agent: gain `volume` 0..1 while it is silent, `ducked` while it speaks. All changes are
        ramps; another sound, or None, first lets the present one fade out."""
        _native.set_background(slot, sound, volume, ducked)

    def bridge(self, slot: int, other: int) -> None:
        """Connect two slots: each sends what the other one receives, besides the speech written to it, and is read with
        it as before. The pump's threads convert between 8 and 16 kHz, and delay the audio by a frame at most. A slot is
        in one bridge at a time. Raises `ValueError` for other rates."""
        _native.bridge(slot, other)

    def unbridge(self, slot: int) -> None:
        """End the slot's bridge for both slots, as the release of either does. Idempotent."""
        _native.unbridge(slot)

    def send_dtmf(self, slot: int, keys: str) -> None:
        """Send DTMF (0-9 * # A-D, w and , pause 0.5 s; 64 keys at most) after the audio written before: as RFC 4733
        events if the peer has negotiated them, else as tones. Speech waits meanwhile; `flush` and `pause` do not affect
        the keys. They replace keys that have not begun. Raises `ValueError`."""
        _native.send_dtmf(slot, keys)

    def dtmf_samples_left(self, slot: int) -> int:
        """Samples until the keys have been sent, the speech before them included; 0 then."""
        return _native.dtmf_left(slot)

    def slot_stats(self, slot: int) -> SlotStats:
        """Counters of one call."""
        return SlotStats(**_native.slot_stats(slot))

    def rtp_totals(self, slot: int) -> RtpTotals:
        """The call's RTP and RTCP statistics."""
        return RtpTotals(**_native.rtp_totals(slot))

    def stats(self, *, reset: bool = False) -> PumpStats:
        """Counters of all threads; `reset` clears the distributions."""
        return PumpStats(**_native.stats(reset))
