"""Media quality as it is stored at the end of a call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.calls.call_service_harness import call_service, until
from tests.fakes.fake_leg import NO_PACKETS, Phone

HEARD = replace(NO_PACKETS, received=990, lost=10, loss_runs=10, sent=1000, packet_ms=20.0, buffer_ms=40.0, foreign=7)


def observed(name: str, way: str) -> float:
    return REGISTRY.get_sample_value(f"{name}_count", {"way": way}) or 0.0


async def test_a_calls_media_quality_is_stored_and_observed(tmp_path: Path) -> None:
    names = ("trunkline_rtp_loss_ratio", "trunkline_rtp_jitter_seconds", "trunkline_call_mos")
    before = [(observed(name, "received"), observed(name, "sent")) for name in names]
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        harness.pump.totals = HEARD
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        with capture_logs() as logs:
            call = await harness.ended_call(phone)
    quality = call.media_quality
    assert quality is not None
    assert (quality["codec"], quality["received"]["lossPercent"], quality["received"]["mos"]) == ("PCMU", 1.0, 4.33)
    assert quality["sent"] == {"packets": 1000}, "the peer has reported nothing"
    assert [(line["call_id"], line["packets"]) for line in logs if line["event"] == "call.foreign_rtp"] == [
        (call.id, 7)
    ]
    after = [(observed(name, "received"), observed(name, "sent")) for name in names]
    assert after == [(received + 1, sent) for received, sent in before]


async def test_a_call_without_media_has_no_media_quality(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        phone.hangs_up(487)
        assert (await harness.ended_call(phone)).media_quality is None
