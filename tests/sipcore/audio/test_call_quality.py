"""Call quality by RTP and RTCP statistics."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from sipcore.audio.call_quality import RtpTotals, burst_ratio, call_quality, mos

NOTHING = RtpTotals(**dict.fromkeys((each.name for each in fields(RtpTotals)), 0))
CLEAN = replace(NOTHING, received=1000, sent=1000, packet_ms=20.0, buffer_ms=40.0)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 4.41), (0.01, 4.33), (0.05, 3.92), (0.2, 2.63), (1.0, 1.18)])
def test_mos_of_g711_falls_with_loss_as_in_the_e_model(loss: float, expected: float) -> None:
    """By hand: R = 93.2 - 95 * percent / (percent + 25.1), and Annex B."""
    assert mos("PCMU", loss, 1.0, 50) == pytest.approx(expected, abs=0.01)
    assert mos("PCMA", loss, 1.0, 50) == mos("PCMU", loss, 1.0, 50)


@pytest.mark.parametrize(("delay_ms", "expected"), [(0, 4.41), (100, 4.41), (200, 4.34), (400, 3.56), (1000, 2.54)])
def test_delay_up_to_100_ms_does_not_lower_the_mos(delay_ms: float, expected: float) -> None:
    assert mos("PCMU", 0.0, 1.0, delay_ms) == pytest.approx(expected, abs=0.01)


def test_mos_stays_between_1_and_4_5() -> None:
    for codec in ("PCMU", "G722", "opus", "something else"):
        for loss in (0.0, 0.3, 1.0):
            for delay_ms in (0.0, 500.0, 60000.0):
                assert 1.0 <= mos(codec, loss, 1.0, delay_ms) <= 4.5


def test_burst_loss_lowers_the_mos_more_than_random_loss() -> None:
    apart, in_a_row = burst_ratio(50, 50, 1000), burst_ratio(50, 10, 1000)
    assert (apart, in_a_row) == (1.0, pytest.approx(4.75))
    assert mos("PCMU", 0.05, in_a_row, 50) < mos("PCMU", 0.05, apart, 50) - 0.05


def test_quality_of_a_call_without_loss_and_of_the_peers_reports() -> None:
    quality = call_quality(
        replace(CLEAN, reports=3, remote_lost=10, remote_expected=1000, round_trips=2, round_trip_mean_ms=30.0), "PCMU"
    )
    assert (quality.received.loss, quality.received.mos) == (0.0, pytest.approx(4.41, abs=0.01))
    assert quality.sent is not None
    assert (quality.sent.loss, quality.sent.mos) == (0.01, pytest.approx(4.33, abs=0.01))
    assert quality.round_trip_ms == 30.0


def test_sent_quality_is_none_without_rtcp_reports() -> None:
    quality = call_quality(CLEAN, "PCMU")
    assert (quality.sent, quality.round_trip_ms, quality.packets_sent) == (None, None, 1000)


def test_late_packets_lower_the_mos_and_are_not_lost() -> None:
    late = call_quality(replace(CLEAN, discarded_ms=1000.0), "PCMU")
    assert late.received.loss == 0.0
    assert late.received.mos == pytest.approx(mos("PCMU", 0.05, 1.0, 60))


def test_no_packets_have_no_mos_and_duplicates_are_no_negative_loss() -> None:
    assert call_quality(NOTHING, "PCMU").received.mos is None
    more = call_quality(replace(CLEAN, reports=1, remote_lost=-5, remote_expected=1000), "PCMU")
    assert more.sent is not None
    assert (more.sent.lost, more.sent.loss) == (0, 0.0)
