"""End reasons of calls, as they are stored."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.session import conversation_runner
from config.clock import utc_now
from config.errors import ModelError
from config.settings_tables import BillingSettings
from models.protocols import TextDelta
from sipcore.dialogs import leg
from sipcore.dialogs.leg import Media
from sipcore.messages.headers import HeaderLines
from storage import tables
from storage.accounts import organizations
from storage.calls import calls
from storage.webhooks import deliveries as webhook_deliveries
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.fakes.fake_leg import NO_PACKETS, Phone
from tests.fakes.scripted_call import settle

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}


async def deliveries(harness: CallServiceHarness) -> list[webhook_deliveries.Delivery]:
    due = await harness.database.read(lambda conn: webhook_deliveries.due_attempts(conn, utc_now()))
    return [each.delivery for each in due]


async def refused(harness: CallServiceHarness, phone: Phone) -> list[int]:
    await until(phone.leg.ended.done)
    return phone.sent


async def eventually(harness: CallServiceHarness, condition: Callable[[calls.Call], bool]) -> None:
    """Poll the database until a stored call matches."""
    async with asyncio.timeout(10):
        while not any(condition(call) for call in await harness.all_calls()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_cancel_before_the_answer_is_no_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(**WEBHOOK)
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        phone.hangs_up(487)
        call = await harness.ended_call(phone)
        assert (call.status, call.ended_reason) == ("no_answer", "customer_ended")
        assert (call.started_at, call.duration_seconds, call.recorded) == (None, 0, False)
        assert len(await deliveries(harness)) == 1


async def test_a_bye_right_after_the_answer_ends_an_answered_call(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        respond = phone.dialog.respond

        async def respond_and_hear_bye(code: int, headers: HeaderLines) -> None:
            await respond(code, headers)
            if code == 200:  # both are known before the PJSIP thread returns from the response
                phone.hangs_up()
                await settle()

        phone.dialog.respond = respond_and_hear_bye  # type: ignore[method-assign]
        harness.service.on_incoming_call(phone.leg)
        call = await harness.ended_call(phone)
        assert (call.status, call.ended_reason) == ("completed", "customer_ended")
        assert call.started_at is not None


async def test_hangup_by_api_before_the_answer_is_no_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        assert await harness.service.hangup((await harness.stored_call(phone)).id)
        call = await harness.stored_call(phone)
        assert (call.status, call.ended_reason) == ("no_answer", "api_hangup")
        assert phone.sent[-1] == -1


async def test_hangup_by_api_ends_an_active_call_and_returns_when_its_end_is_stored(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        call_id = (await harness.stored_call(phone)).id
        assert await harness.service.hangup(call_id)
        call = await harness.stored_call(phone)
        assert (call.status, call.ended_reason) == ("completed", "api_hangup")
        assert phone.sent == [180, 200, -1]
        assert not await harness.service.hangup(call_id)


async def test_a_call_ends_at_its_maximum_duration(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(max_call_duration_seconds=1)
        phone = harness.invite()
        call = await harness.ended_call(phone)
    assert (call.status, call.ended_reason, call.duration_seconds) == ("completed", "max_duration", 1)


async def test_a_caller_that_vanished_without_bye_is_a_media_timeout(tmp_path: Path) -> None:
    async with call_service(tmp_path, rtp_timeout_s=0.05) as harness:
        await harness.create_number()
        harness.pump.last_packet_ns = time.monotonic_ns()
        phone = harness.invite()
        call = await harness.ended_call(phone)
    assert (call.status, call.ended_reason) == ("completed", "media_timeout")
    assert phone.sent == [180, 200, -1]


@pytest.mark.parametrize("lasts", ["until the RTP timeout", "until SIP's timer"])
async def test_an_answer_that_gets_neither_an_ack_nor_audio_is_no_call_and_costs_nothing(
    tmp_path: Path, lasts: str
) -> None:
    prices = BillingSettings(telephony_per_minute=600, text_to_speech_per_1000_characters=600)
    async with call_service(tmp_path, [TextDelta("Hello.")], rtp_timeout_s=0.3, billing=prices) as harness:
        events: dict[str, Any] = {"post_call_webhook_events": ["call.answered", "call.failed", "call.completed"]}
        number, _ = await harness.create_number(**WEBHOOK, **events, first_speaker="agent")
        await harness.database.write(
            lambda conn: conn.execute(sa.update(tables.organizations).values(plan="paid", balance=1))
        )
        phone = Phone(harness.pump)
        phone.dialog.acknowledges = False
        harness.pump.last_packet_ns = time.monotonic_ns()
        with capture_logs() as logs:
            harness.service.on_incoming_call(phone.leg)
            await until(lambda: phone.leg.on_digit is not None)
            if lasts == "until SIP's timer":
                phone.driver.on_ended(408, "Request Timeout")
            call = await harness.ended_call(phone)
        reason = "media_timeout" if lasts == "until the RTP timeout" else "unreachable"
        assert (call.status, call.ended_reason, call.started_at) == ("failed", reason, None)
        assert (call.duration_seconds, call.cost, call.transcript) == (0, 0, [])
        assert [each["log_level"] for each in logs if each["event"] == "call.no_ack"] == ["warning"]
        assert "call.answered" not in {each.event for each in await deliveries(harness)}
        stored = await harness.database.read(lambda conn: organizations.get(conn, number.organization_id))
        assert stored is not None
        assert stored.balance == 1


async def test_an_answer_without_ack_counts_from_the_first_audio_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leg, "AUDIO_CHECK_S", 0.05)
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.acknowledges = False
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: phone.leg.on_digit is not None)
        assert (await harness.stored_call(phone)).status == "ringing"
        harness.pump.totals = replace(NO_PACKETS, received=1)
        await eventually(harness, lambda call: call.status == "in_progress")
        phone.driver.on_ended(408, "Request Timeout")
        call = await harness.ended_call(phone)
    assert (call.status, call.ended_reason) == ("completed", "unreachable")
    assert call.started_at is not None


async def test_missing_rtp_is_logged_early_except_on_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_runner, "NO_RTP_WARNING_S", 0.3)
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        harness.pump.last_packet_ns = time.monotonic_ns()
        with capture_logs() as events:
            held = harness.invite()
            held.dialog.answered_held = True
            silent = harness.invite()
            await until(lambda: any(event["event"] == "call.no_rtp" for event in events))
        warned = [event["call_id"] for event in events if event["event"] == "call.no_rtp"]
        assert warned == [(await harness.stored_call(silent)).id]


async def test_a_caller_that_never_negotiates_audio_is_a_media_timeout_and_frees_its_slot(tmp_path: Path) -> None:
    async with call_service(tmp_path, rtp_timeout_s=0.05, limits=ConcurrencyLimits(1, 1)) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        harness.service.on_incoming_call(phone.leg)
        call = await harness.ended_call(phone)
        assert (call.status, call.ended_reason, call.started_at) == ("failed", "media_timeout", None)
        assert phone.sent == [180, 200, -1]
        second = harness.invite()
        await until(lambda: second.leg.on_digit is not None)


async def test_a_call_on_hold_is_not_timed_out(tmp_path: Path) -> None:
    async with call_service(tmp_path, rtp_timeout_s=0.05) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.leg.on_hold = True
        harness.pump.last_packet_ns = time.monotonic_ns()
        started = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - started > 0.3)
        assert not phone.leg.ended.done()
        phone.leg.on_hold = False
        call = await harness.ended_call(phone)
    assert call.ended_reason == "media_timeout"


async def test_a_leg_that_breaks_after_the_answer_is_unreachable(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up(503)
        call = await harness.ended_call(phone)
    assert (call.status, call.ended_reason) == ("completed", "unreachable")


async def test_a_model_that_raises_ends_its_call_alone_and_is_logged_once(tmp_path: Path) -> None:
    async with call_service(tmp_path, RuntimeError("out of memory")) as harness:
        await harness.create_number()
        await harness.create_number("+4930200", first_speaker="agent")
        well = harness.invite()
        await until(lambda: well.leg.on_digit is not None)
        with capture_logs() as logs:
            call = await harness.ended_call(harness.invite(dials="+4930200"))
        assert (call.status, call.ended_reason) == ("completed", "error")
        errors = [entry for entry in logs if entry["log_level"] == "error"]
        assert [(entry["event"], entry["call_id"]) for entry in errors] == [("call.failed", call.id)]
        assert "out of memory" in errors[0]["error"]
        assert not well.leg.ended.done()
        well.hangs_up()
        assert (await harness.ended_call(well)).ended_reason == "customer_ended"


async def test_a_leg_that_raises_before_the_answer_fails_its_call_alone(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.error = OSError("no transport")
        harness.service.on_incoming_call(phone.leg)
        await eventually(harness, lambda call: call.ended_at is not None)
        call = await harness.stored_call(phone)
    assert (call.status, call.ended_reason) == ("failed", "error")


async def test_a_speech_recognizer_that_cannot_be_opened_ends_its_call_and_frees_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()

        def fails(**_: Any) -> None:
            raise ModelError("no memory for a stream")

        monkeypatch.setattr(harness.stt, "open", fails)
        phone = harness.invite()
        call = await harness.ended_call(phone)
        assert (call.status, call.ended_reason) == ("completed", "error")
        assert phone.sent == [180, 200, -1]
        assert len(harness.pump.released) == 1


async def test_audio_negotiated_after_the_calls_end_frees_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = Phone(harness.pump)
        phone.dialog.mute = True
        slot = harness.pump.open(8000)
        bye = phone.dialog.bye

        async def crosses_with_the_sound(reason: str) -> None:
            phone.driver.on_media(Media(slot, 8000, "PCMU"), False)
            await bye(reason)

        monkeypatch.setattr(phone.dialog, "bye", crosses_with_the_sound)
        harness.service.on_incoming_call(phone.leg)
        await until(lambda: 200 in phone.sent)
        await harness.service.hangup((await harness.stored_call(phone)).id)
        assert harness.pump.released == [slot]


async def test_a_drain_lets_calls_finish_and_admits_no_new_ones(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        first = harness.invite()
        await until(lambda: first.leg.on_digit is not None)
        drain = asyncio.ensure_future(harness.service.drain(60))
        await until(lambda: harness.service.is_draining)
        late = harness.invite()
        assert await refused(harness, late) == [503]
        assert "Retry-After" in late.dialog.headers
        assert not drain.done()
        first.hangs_up()
        await drain
        assert (await harness.stored_call(first)).ended_reason == "customer_ended"


async def test_calls_that_outlast_the_drain_end_with_server_shutdown(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        await harness.service.drain(0.01)
        call = await harness.stored_call(phone)
    assert (call.status, call.ended_reason) == ("completed", "server_shutdown")
    assert phone.sent[-1] == -1


async def test_an_ended_call_is_garbage_collected(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(max_call_duration_seconds=3600)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        call = weakref.ref(harness.service.active_calls()[0])
        phone.hangs_up()
        await harness.ended_call(phone)
        harness.stt.streams.clear()
        gc.collect()
        assert call() is None
