"""Calls while the disk is full: a real disk, of a few MiB."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.admission.capacity import ConcurrencyLimits
from calls.post_call import unstored_calls
from storage import tables
from storage.calls import calls
from storage.calls.calls import Call
from storage.database import disk_space
from storage.database.disk_space import DiskSpace
from storage.webhooks import deliveries
from tests.calls.call_service_harness import GREETS, CallServiceHarness, call_service, every_call, until
from tests.fakes.fake_leg import Phone
from tests.trunkline.small_disk import filled, tiny_disk

WEBHOOK: dict[str, Any] = {**GREETS, "post_call_webhook_url": "https://receiver.test/hook"}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a disk of its own, which is looked at often."""
    monkeypatch.setattr(disk_space, "MIN_PROBE_INTERVAL_S", 0.05)
    with tiny_disk(tmp_path / "data", "8m"):
        yield tmp_path / "data"


@asynccontextmanager
async def call_service_on_small_disk(disk: Path, **settings: Any) -> AsyncIterator[CallServiceHarness]:
    """A call service whose data directory is on a small disk; it learns when the disk has space again."""
    async with call_service(disk, **settings) as harness:
        space = DiskSpace(harness.database, disk, 0, harness.service.on_disk_space)
        watching = asyncio.create_task(space.run())
        await until(lambda: watching.done() or space._probed_at_s > 0)
        try:
            yield harness
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def answered(harness: CallServiceHarness, **facts: Any) -> Phone:
    """A call comes in, and is answered."""
    phone = harness.rings(**facts)
    await until(lambda: 200 in phone.sent and phone.leg.on_digit is not None)
    return phone


async def over(harness: CallServiceHarness, phone: Phone) -> None:
    """The call has ended, and its place is free."""
    await until(lambda: phone.leg.ended.done())
    await until(lambda: not any(live.call.call_sid == phone.leg.sip_call_id for live in harness.service.active_calls()))


async def ended(harness: CallServiceHarness, count: int) -> list[Call]:
    """Wait until so many calls are stored with their ends; those."""
    found = await harness.database.until(
        every_call, lambda found: len(found) == count and all(each.ended_at for each in found)
    )
    return sorted(found, key=lambda each: each.created_at)


async def test_calls_are_answered_and_end_while_the_disk_is_full_and_are_stored_when_there_is_room(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number(**WEBHOOK)
        before = await answered(harness)
        with capture_logs() as lines:
            with filled(disk):
                during = await answered(harness, number="+4917012")
                before.hangs_up()
                await over(harness, before)
                await until(lambda: during.leg.on_digit is not None)
                during.hangs_up()
                await over(harness, during)
                assert harness.service.active_call_count == 0, "they hold no place"
                stored = await harness.database.read(every_call)
                assert [call.ended_at for call in stored] == [None]
            first, second = await ended(harness, 2)
            await until(lambda: any(each["event"] == "disk.has_room" for each in lines))
    assert (first.status, first.ended_reason) == ("completed", "customer_ended")
    assert (second.status, second.ended_reason, second.customer_number) == ("completed", "customer_ended", "+4917012")
    assert second.started_at is not None
    told = [each["event"] for each in lines if each["log_level"] in ("warning", "error")]
    assert set(told) == {"disk.full", "recording.broken"}
    assert told.count("disk.full") == 1, "it is told once"
    assert [each["event"] for each in lines].count("disk.has_room") == 1
    broken = {each["call_id"] for each in lines if each["event"] == "recording.broken"}
    assert broken and broken <= {first.id, second.id}, "what is lost is told by name"


async def test_the_webhooks_of_such_calls_tell_what_was_said(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number(**WEBHOOK)
        with filled(disk):
            phone = await answered(harness)
            await harness.tts.until_spoken(1)
            heard_ms = harness.pump.now_ms + 3000
            await until(lambda: harness.pump.now_ms > heard_ms)
            phone.hangs_up()
            await over(harness, phone)
        (call,) = await ended(harness, 1)
        due = await harness.database.read(lambda conn: deliveries.due_attempts(conn, calls.utc_now()))
    (delivery,) = [each.delivery for each in due]
    payload = json.loads(delivery.body)
    assert (payload["callId"], payload["status"]) == (call.id, "completed")
    assert call.transcript == [{"role": "assistant", "content": GREETS["agent_greeting"]}]
    assert payload["transcriptUrl"] is not None


async def test_the_row_of_a_call_that_goes_on_is_stored_when_there_is_room(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        with filled(disk):
            phone = await answered(harness)
            assert await harness.database.read(every_call) == []
        (call,) = await harness.database.until(every_call, bool)
        assert (call.status, call.call_sid) == ("in_progress", phone.leg.sip_call_id)
        phone.hangs_up()
        (call,) = await ended(harness, 1)
    assert call.ended_reason == "customer_ended"


async def test_the_ceilings_hold_for_calls_without_rows(disk: Path) -> None:
    async with call_service_on_small_disk(disk, limits=ConcurrencyLimits(process=3, organization=2)) as harness:
        await harness.create_number("+4930100")
        await harness.create_number("+4930200")
        with filled(disk):
            phones = [await answered(harness, dials="+4930100") for _ in range(2)]
            refused = harness.rings(dials="+4930100")
            await until(lambda: refused.sent)
            assert refused.sent == [486]
            phones.append(await answered(harness, dials="+4930200"))
            refused = harness.rings(dials="+4930200")
            await until(lambda: refused.sent)
            assert refused.sent == [503]
            phones[0].hangs_up()
            await over(harness, phones[0])
            phones.append(await answered(harness, dials="+4930100"))
            for phone in phones:
                phone.hangs_up()
                await over(harness, phone)
        assert len(await ended(harness, 4)) == 4


async def test_a_call_of_before_whose_end_waits_for_room_holds_no_place(disk: Path) -> None:
    async with call_service_on_small_disk(disk, limits=ConcurrencyLimits(process=1, organization=1)) as harness:
        await harness.create_number()
        before = await answered(harness)
        with filled(disk):
            before.hangs_up()
            await over(harness, before)
            during = await answered(harness)
            during.hangs_up()
            await over(harness, during)
        assert len(await ended(harness, 2)) == 2


async def test_what_an_organization_hides_is_hidden_in_calls_that_waited_for_room(disk: Path) -> None:
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        redact = sa.update(tables.organizations).values(redact_dialled=True)
        await harness.database.write(lambda conn: conn.execute(redact))
        with filled(disk):
            phone = await answered(harness)
            for key in "4711#":
                phone.leg.on_digit(key, "rfc4733", None)
            await until(lambda: any(live.snapshot().answered_at for live in harness.service.active_calls()))
            await asyncio.sleep(0.2)
            phone.hangs_up()
            await over(harness, phone)
        (call,) = await ended(harness, 1)
    assert [each["content"] for each in call.transcript if each["role"] == "user"] == ["[number]"]


async def test_when_the_server_stops_before_there_is_room_the_log_names_what_is_lost(disk: Path) -> None:
    with capture_logs() as lines, ExitStack() as until_the_end:
        async with call_service_on_small_disk(disk) as harness:
            await harness.create_number()
            before = await answered(harness)
            until_the_end.enter_context(filled(disk))
            during = await answered(harness)
            for phone in (before, during):
                phone.hangs_up()
                await over(harness, phone)
    lost = [each for each in lines if each["event"] == "call.end_lost"]
    assert sorted(each["lost"] == ["the call"] for each in lost) == [False, True]
    assert all(each["call_id"] for each in lost)


async def test_beyond_a_bound_callers_are_told_to_come_back(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored_calls, "MAX_ROWS", 1)
    async with call_service_on_small_disk(disk) as harness:
        await harness.create_number()
        with filled(disk):
            first = await answered(harness)
            second = harness.rings()
            await until(lambda: second.sent)
            assert second.sent == [503]
            assert int(second.dialog.headers["Retry-After"]) > 0
            first.hangs_up()
            await over(harness, first)
        await ended(harness, 1)
