"""Calls while the disk is full: a real file system of a few MiB."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.post_call import outage_buffer
from config.clock import utc_now
from storage import tables
from storage.calls.calls import Call
from storage.database import disk_space
from storage.database.disk_space import DiskSpace
from storage.webhooks import deliveries
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, every_call, until
from tests.calls.outbound_calls import callee, queue
from tests.database_template import sqlite_only
from tests.fakes.fake_leg import Phone
from tests.transcripts import without_times
from tests.trunkline.small_disk import filled, tiny_disk

pytestmark = sqlite_only("the database is not on the disk that is full")
WEBHOOK: dict[str, Any] = {**GREETS, "post_call_webhook_url": "https://receiver.test/hook"}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file system of its own, which is checked often."""
    monkeypatch.setattr(disk_space, "MIN_PROBE_INTERVAL_S", 0.05)
    with tiny_disk(tmp_path / "data", "8m"):
        yield tmp_path / "data"


@asynccontextmanager
async def call_service_on_small_disk(disk: Path, **settings: Any) -> AsyncIterator[CallServiceHarness]:
    """A call service whose data directory is on a small disk, with a check of its space."""
    async with call_service(disk, **settings) as harness:
        space = DiskSpace(harness.database, disk, 0, harness.service.on_outage_over)
        watching = asyncio.create_task(space.run())
        await until(lambda: watching.done() or space._probed_at_s > 0)
        try:
            yield harness
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def answered_call(harness: CallServiceHarness, **facts: Any) -> Phone:
    """Send an INVITE, and wait for the answer."""
    phone = harness.invite(**facts)
    await until(lambda: 200 in phone.sent and phone.leg.on_digit is not None)
    return phone


async def hang_up(harness: CallServiceHarness, phone: Phone) -> None:
    """Hang up, and wait until the call is not active any more."""
    await until(lambda: phone.leg.ended.done())
    await until(lambda: not any(live.call.call_sid == phone.leg.sip_call_id for live in harness.service.active_calls()))


async def ended(harness: CallServiceHarness, count: int) -> list[Call]:
    """Wait until `count` calls are stored with their ends; returns these."""
    found = await harness.database.until(
        every_call, lambda found: len(found) == count and all(each.ended_at for each in found)
    )
    return sorted(found, key=lambda each: each.created_at)


async def test_calls_during_a_full_disk_are_stored_when_it_has_space(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number(**WEBHOOK)
        before = await answered_call(harness)
        with capture_logs() as lines:
            with filled(disk):
                during = await answered_call(harness, number="+4917012")
                before.hangs_up()
                await hang_up(harness, before)
                await until(lambda: during.leg.on_digit is not None)
                during.hangs_up()
                await hang_up(harness, during)
                assert harness.service.active_call_count == 0, "they do not count against the limits"
                stored = await harness.database.read(every_call)
                assert [call.ended_at for call in stored] == [None]
            first, second = await ended(harness, 2)
            await until(lambda: any(each["event"] == "disk.has_room" for each in lines))
    assert (first.status, first.ended_reason) == ("completed", "customer_ended")
    assert (second.status, second.ended_reason, second.customer_number) == ("completed", "customer_ended", "+4917012")
    assert second.started_at is not None
    events = [each["event"] for each in lines if each["log_level"] in ("warning", "error")]
    assert set(events) == {"disk.full", "recording.broken"}
    assert events.count("disk.full") == 1, "it is logged once"
    assert [each["event"] for each in lines].count("disk.has_room") == 1
    broken = {each["call_id"] for each in lines if each["event"] == "recording.broken"}
    assert broken and broken <= {first.id, second.id}, "the lost calls are named"


async def test_the_webhooks_of_such_calls_have_their_transcripts(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number(**WEBHOOK)
        with filled(disk):
            phone = await answered_call(harness)
            await harness.tts.until_spoken(1)
            heard_ms = harness.pump.now_ms + 3000
            await until(lambda: harness.pump.now_ms > heard_ms)
            phone.hangs_up()
            await hang_up(harness, phone)
        (call,) = await ended(harness, 1)
        due = await harness.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
    (delivery,) = [each.delivery for each in due]
    payload = json.loads(delivery.body)
    assert (payload["callId"], payload["status"]) == (call.id, "completed")
    assert without_times(call.transcript) == [{"role": "assistant", "content": GREETS["agent_greeting"]}]
    assert payload["transcriptUrl"] is not None


async def test_the_events_of_calls_during_a_full_disk_are_sent_later_in_order(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        line = await harness.create_number(
            **WEBHOOK, post_call_webhook_events=["call.started", "call.answered", "call.completed"]
        )
        harness.pacer.gate.clear()
        await queue(harness, line)
        await until(lambda: harness.service.active_calls())
        with filled(disk):
            harness.pacer.gate.set()
            there = await callee(harness)
            there.answers()
            await until(lambda: there.leg.on_digit is not None)
            phone = await answered_call(harness)
            there.ends()
            phone.hangs_up()
            await until(lambda: not harness.service.active_calls())
        found = await ended(harness, 2)
        told = [await harness.database.read(partial(deliveries.of_call, call_id=call.id)) for call in found]
    assert [[each.event for each in events] for events in told] == [
        ["call.started", "call.answered", "call.completed"]
    ] * 2
    for events, call in zip(told, found, strict=True):
        started = json.loads(events[0].body)
        assert started["callId"] == call.id
        assert call.started_at is not None
        assert call.created_at <= datetime.fromisoformat(started["timestamp"]) <= call.started_at


async def test_the_row_of_an_active_call_is_stored_when_the_outage_over(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        with filled(disk):
            phone = await answered_call(harness)
            assert await harness.database.read(every_call) == []
        (call,) = await harness.database.until(every_call, bool)
        assert (call.status, call.call_sid) == ("in_progress", phone.leg.sip_call_id)
        phone.hangs_up()
        (call,) = await ended(harness, 1)
    assert call.ended_reason == "customer_ended"


async def test_the_concurrency_limits_hold_for_calls_without_rows(disk: Path) -> None:
    async with call_service_on_small_disk(disk, limits=ConcurrencyLimits(process=3, organization=2)) as harness:
        await harness.create_number("+4930100")
        await harness.create_number("+4930200")
        with filled(disk):
            phones = [await answered_call(harness, dials="+4930100") for _ in range(2)]
            refused = harness.invite(dials="+4930100")
            await until(lambda: refused.sent)
            assert refused.sent == [486]
            phones.append(await answered_call(harness, dials="+4930200"))
            refused = harness.invite(dials="+4930200")
            await until(lambda: refused.sent)
            assert refused.sent == [503]
            phones[0].hangs_up()
            await hang_up(harness, phones[0])
            phones.append(await answered_call(harness, dials="+4930100"))
            for phone in phones:
                phone.hangs_up()
                await hang_up(harness, phone)
        assert len(await ended(harness, 4)) == 4


async def test_a_call_whose_end_waits_for_disk_space_does_not_count_against_the_limits(disk: Path) -> None:
    async with call_service_on_small_disk(disk, limits=ConcurrencyLimits(process=1, organization=1)) as harness:
        await harness.create_number()
        before = await answered_call(harness)
        with filled(disk):
            before.hangs_up()
            await hang_up(harness, before)
            during = await answered_call(harness)
            during.hangs_up()
            await hang_up(harness, during)
        assert len(await ended(harness, 2)) == 2


async def test_redaction_rules_apply_to_calls_that_waited_for_disk_space(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        redact = sa.update(tables.organizations).values(redact_dialled=True)
        await harness.database.write(lambda conn: conn.execute(redact))
        with filled(disk):
            phone = await answered_call(harness)
            for key in "4711#":
                phone.driver.on_digit(key, "rfc4733")
            await until(lambda: any(live.snapshot().answered_at for live in harness.service.active_calls()))
            await asyncio.sleep(0.2)
            phone.hangs_up()
            await hang_up(harness, phone)
        (call,) = await ended(harness, 1)
    assert [each["content"] for each in call.transcript if each["role"] == "user"] == ["[number]"]


async def test_when_the_server_stops_with_a_full_disk_the_log_names_the_lost_data(disk: Path) -> None:
    with capture_logs() as lines, ExitStack() as until_the_end:
        async with call_service_on_small_disk(disk) as harness:
            await harness.create_number()
            before = await answered_call(harness)
            until_the_end.enter_context(filled(disk))
            during = await answered_call(harness)
            for phone in (before, during):
                phone.hangs_up()
                await hang_up(harness, phone)
    lost = [each for each in lines if each["event"] == "call.end_lost"]
    assert sorted(each["lost"] == ["the call"] for each in lost) == [False, True]
    assert all(each["call_id"] for each in lost)


async def test_beyond_the_buffer_limit_calls_get_503_with_retry_after(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_buffer, "MAX_ROWS", 1)
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        with filled(disk):
            first = await answered_call(harness)
            second = harness.invite()
            await until(lambda: second.sent)
            assert second.sent == [503]
            assert int(second.dialog.headers["Retry-After"]) > 0
            first.hangs_up()
            await hang_up(harness, first)
        await ended(harness, 1)
