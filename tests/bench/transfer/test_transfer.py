"""The markers and figures of the transfer benchmark."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bench.transfer.bridged_pairs import missed_goals
from bench.transfer.markers import NUMBERS, PACKET_BYTES, find_markers, marked_packet, noise_packet
from bench.transfer.phones import delays_ms, received_markers

MS = 1_000_000


def rtp(timestamp: int, payload: bytes) -> bytes:
    """An RTP packet."""
    return struct.pack(">BBHII", 0x80, 0, timestamp // PACKET_BYTES, timestamp, 1) + payload


def test_every_number_is_found_where_its_packet_begins() -> None:
    audio = noise_packet(1) + b"".join(map(marked_packet, range(NUMBERS)))
    at, numbers = find_markers(audio)
    assert numbers.tolist() == list(range(NUMBERS))
    assert at.tolist() == [PACKET_BYTES * (count + 1) for count in range(NUMBERS)]


def test_a_marker_is_found_under_music() -> None:
    quieter = bytes.maketrans(bytes((0x80, 0x00)), bytes((0x8C, 0x0C)))
    _, numbers = find_markers(marked_packet(7).translate(quieter))
    assert numbers.tolist() == [7]


def test_noise_has_no_markers() -> None:
    at, numbers = find_markers(b"".join(map(noise_packet, range(50))))
    assert (len(at), len(numbers)) == (0, 0)


def test_a_marker_has_the_time_of_its_packet_and_its_position_in_it() -> None:
    shifted = noise_packet(0)[:80] + marked_packet(5) + noise_packet(0)[80:]
    late = (30 * MS, rtp(PACKET_BYTES, shifted[PACKET_BYTES:]))
    early = (10 * MS, rtp(0, shifted[:PACKET_BYTES]))
    assert received_markers([late, early]) == [(20 * MS, 5)]
    assert received_markers([]) == []


def test_a_marker_that_was_not_received_has_no_delay() -> None:
    sent = [(0, 0), (20 * MS, 1), (40 * MS, 2), (1280 * MS, 0)]
    assert delays_ms(sent, [(35 * MS, 1), (60 * MS, 2), (1300 * MS, 0)]) == [15.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, 0),
        ({"cpu_percent_per_pair": 0.31}, 1),
        ({"delay_ms": [1.0, 25.1, 30.0]}, 1),
        ({"lost": 1}, 1),
        ({"hearing_ms": [50.0, 100.1, 120.0]}, 1),
    ],
)
def test_each_goal_that_is_missed_is_named(changes: dict[str, Any], missed: int) -> None:
    row = {"cpu_percent_per_pair": 0.3, "delay_ms": [1.0, 25.0, 30.0], "lost": 0, "hearing_ms": [50.0, 100.0, 120.0]}
    assert len(missed_goals([row | changes])) == missed
