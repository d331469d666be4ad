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
from tests.calls.call_service_harness import GREETS, House, every_call, open_house, until
from tests.fakes.fake_leg import Phone
from tests.trunkline.small_disk import filled, tiny_disk

WEBHOOK: dict[str, Any] = {**GREETS, "post_call_webhook_url": "https://receiver.test/hook"}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a disk of its own, which is looked at often."""
    monkeypatch.setattr(disk_space, "FRESH_S", 0.05)
    with tiny_disk(tmp_path / "data", "8m"):
        yield tmp_path / "data"


@asynccontextmanager
async def open_small_house(disk: Path, **settings: Any) -> AsyncIterator[House]:
    """A house whose data lie there, and who is told when there is room again."""
    async with open_house(disk, **settings) as house:
        space = DiskSpace(house.database, disk, 0, house.service.on_disk_space)
        watching = asyncio.create_task(space.run())
        await until(lambda: watching.done() or space._looked_at_s > 0)
        try:
            yield house
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def answered(house: House, **facts: Any) -> Phone:
    """A call comes in, and is answered."""
    phone = house.rings(**facts)
    await until(lambda: 200 in phone.sent and phone.leg.on_digit is not None)
    return phone


async def over(house: House, phone: Phone) -> None:
    """The call has ended, and its place is free."""
    await until(lambda: phone.leg.ended.done())
    await until(lambda: not any(live.call.call_sid == phone.leg.sip_call_id for live in house.service.active_calls()))


async def ended(house: House, count: int) -> list[Call]:
    """Wait until so many calls are stored with their ends; those."""
    found = await house.database.until(
        every_call, lambda found: len(found) == count and all(each.ended_at for each in found)
    )
    return sorted(found, key=lambda each: each.created_at)


async def test_calls_are_answered_and_end_while_the_disk_is_full_and_are_stored_when_there_is_room(disk: Path) -> None:
    async with open_small_house(disk) as house:
        await house.number(**WEBHOOK)
        before = await answered(house)
        with capture_logs() as lines:
            with filled(disk):
                during = await answered(house, number="+4917012")
                before.hangs_up()
                await over(house, before)
                await until(lambda: during.leg.on_digit is not None)
                during.hangs_up()
                await over(house, during)
                assert house.service.live_calls == 0, "they hold no place"
                stored = await house.database.read(every_call)
                assert [call.ended_at for call in stored] == [None]
            first, second = await ended(house, 2)
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
    async with open_small_house(disk) as house:
        await house.number(**WEBHOOK)
        with filled(disk):
            phone = await answered(house)
            await house.voice.until_spoken(1)
            heard_ms = house.pump.now_ms + 3000
            await until(lambda: house.pump.now_ms > heard_ms)
            phone.hangs_up()
            await over(house, phone)
        (call,) = await ended(house, 1)
        due = await house.database.read(lambda conn: deliveries.due(conn, calls.utc_now()))
    (delivery,) = [each.delivery for each in due]
    payload = json.loads(delivery.body)
    assert (payload["callId"], payload["status"]) == (call.id, "completed")
    assert call.transcript == [{"role": "assistant", "content": GREETS["agent_greeting"]}]
    assert payload["transcriptUrl"] is not None


async def test_the_row_of_a_call_that_goes_on_is_stored_when_there_is_room(disk: Path) -> None:
    async with open_small_house(disk) as house:
        await house.number()
        with filled(disk):
            phone = await answered(house)
            assert await house.database.read(every_call) == []
        (call,) = await house.database.until(every_call, bool)
        assert (call.status, call.call_sid) == ("in_progress", phone.leg.sip_call_id)
        phone.hangs_up()
        (call,) = await ended(house, 1)
    assert call.ended_reason == "customer_ended"


async def test_the_ceilings_hold_for_calls_without_rows(disk: Path) -> None:
    async with open_small_house(disk, ceilings=ConcurrencyLimits(process=3, organization=2)) as house:
        await house.number("+4930100")
        await house.number("+4930200")
        with filled(disk):
            phones = [await answered(house, dials="+4930100") for _ in range(2)]
            refused = house.rings(dials="+4930100")
            await until(lambda: refused.sent)
            assert refused.sent == [486]
            phones.append(await answered(house, dials="+4930200"))
            refused = house.rings(dials="+4930200")
            await until(lambda: refused.sent)
            assert refused.sent == [503]
            phones[0].hangs_up()
            await over(house, phones[0])
            phones.append(await answered(house, dials="+4930100"))
            for phone in phones:
                phone.hangs_up()
                await over(house, phone)
        assert len(await ended(house, 4)) == 4


async def test_a_call_of_before_whose_end_waits_for_room_holds_no_place(disk: Path) -> None:
    async with open_small_house(disk, ceilings=ConcurrencyLimits(process=1, organization=1)) as house:
        await house.number()
        before = await answered(house)
        with filled(disk):
            before.hangs_up()
            await over(house, before)
            during = await answered(house)
            during.hangs_up()
            await over(house, during)
        assert len(await ended(house, 2)) == 2


async def test_what_an_organization_hides_is_hidden_in_calls_that_waited_for_room(disk: Path) -> None:
    async with open_small_house(disk) as house:
        await house.number()
        redact = sa.update(tables.organizations).values(redact_dialled=True)
        await house.database.write(lambda conn: conn.execute(redact))
        with filled(disk):
            phone = await answered(house)
            for key in "4711#":
                phone.leg.on_digit(key, "rfc4733", None)
            await until(lambda: any(live.snapshot().answered_at for live in house.service.active_calls()))
            await asyncio.sleep(0.2)
            phone.hangs_up()
            await over(house, phone)
        (call,) = await ended(house, 1)
    assert [each["content"] for each in call.transcript if each["role"] == "user"] == ["[number]"]


async def test_when_the_server_stops_before_there_is_room_the_log_names_what_is_lost(disk: Path) -> None:
    with capture_logs() as lines, ExitStack() as until_the_end:
        async with open_small_house(disk) as house:
            await house.number()
            before = await answered(house)
            until_the_end.enter_context(filled(disk))
            during = await answered(house)
            for phone in (before, during):
                phone.hangs_up()
                await over(house, phone)
    lost = [each for each in lines if each["event"] == "call.end_lost"]
    assert sorted(each["lost"] == ["the call"] for each in lost) == [False, True]
    assert all(each["call_id"] for each in lost)


async def test_beyond_a_bound_callers_are_told_to_come_back(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored_calls, "MOST_ROWS", 1)
    async with open_small_house(disk) as house:
        await house.number()
        with filled(disk):
            first = await answered(house)
            second = house.rings()
            await until(lambda: second.sent)
            assert second.sent == [503]
            assert int(second.dialog.headers["Retry-After"]) > 0
            first.hangs_up()
            await over(house, first)
        await ended(house, 1)
