"""Concurrency limits with outbound calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.post_call import finalizer
from config.errors import LimitExceeded, Unavailable
from storage.accounts import organizations
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.errors import StorageUnavailable
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import NumberAndAgent, callee, queue, store, stored


async def place_call(harness: CallServiceHarness, line: NumberAndAgent, to: str = "+4917012") -> Call | str:
    """Store a call as POST /calls does; returns the call, or the name of the exception."""

    def work(conn: sa.Connection) -> Call:
        organization = organizations.get(conn, line[0].organization_id)
        assert organization is not None
        harness.service.check_capacity(conn, organization)
        return store(conn, line, to)

    try:
        return await harness.database.write(work)
    except (LimitExceeded, Unavailable) as refusal:
        return type(refusal).__name__


async def test_queued_ringing_and_inbound_calls_share_the_limit_of_their_organization(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=0.001) as harness:
        line, other = await harness.create_number(max_calls=3), await harness.create_number("+4930200")
        await queue(harness, line)
        await callee(harness)
        waiting = await queue(harness, line)
        phone = harness.invite()
        await until(lambda: 200 in phone.sent)
        assert await place_call(harness, line) == "LimitExceeded"
        late = harness.invite()
        await until(late.leg.ended.done)
        assert late.sent == [486]
        assert isinstance(await place_call(harness, other), Call)
        await harness.service.hangup(waiting.id)
        assert isinstance(await place_call(harness, line), Call)
        assert await place_call(harness, line) == "LimitExceeded"


async def test_the_limit_of_the_process_holds_for_all_calls(tmp_path: Path) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(process=1)) as harness:
        line, other = await harness.create_number(), await harness.create_number("+4930200")
        await queue(harness, line)
        assert await place_call(harness, other) == "Unavailable"
        late = harness.invite()
        await until(late.leg.ended.done)
        assert late.sent == [503]


async def test_outbound_and_inbound_calls_at_once_do_not_exceed_the_limit_together(tmp_path: Path) -> None:
    async with call_service(tmp_path, limits=ConcurrencyLimits(organization=4)) as harness:
        line = await harness.create_number()
        phones = [harness.invite() for _ in range(6)]
        made = await asyncio.gather(*(place_call(harness, line) for _ in range(10)))
        await until(lambda: all(phone.sent and phone.sent[-1] >= 200 for phone in phones))
        admitted = sum(isinstance(each, Call) for each in made) + sum(phone.sent[-1] == 200 for phone in phones)
        assert admitted == 4


async def test_a_failed_transaction_does_not_count_against_the_limit(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(max_calls=1)

        def fails(conn: sa.Connection) -> None:
            store(conn, line, "+4917012")
            raise ValueError("later in the same transaction")

        for _ in range(3):
            with pytest.raises(ValueError, match="later"):
                await harness.database.write(fails)
        assert isinstance(await place_call(harness, line), Call)


@pytest.mark.parametrize("cause", ["the disk is full", "the disk cannot be read or written"])
async def test_a_call_whose_end_cannot_be_stored_does_not_count_and_is_not_placed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    async with call_service(tmp_path, per_second=0.001) as harness:
        line = await harness.create_number(max_calls=2)
        await queue(harness, line)
        await callee(harness)
        call = await queue(harness, line)
        await until(lambda: harness.service.active_call_count == 2)
        assert await place_call(harness, line) == "LimitExceeded"

        def full(*_: object, **__: object) -> None:
            raise StorageUnavailable(cause)

        with monkeypatch.context() as broken:
            broken.setattr(finalizer, "STORE_RETRIES_S", ())
            broken.setattr(calls, "finish", full)
            assert await harness.service.hangup(call.id)
        assert (await stored(harness, call)).ended_at is None
        assert not await harness.service.hangup(call.id), "it is not started again"
        assert isinstance(await place_call(harness, line), Call)


async def test_no_call_is_stored_while_the_server_drains(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()
        harness.service.end_all()
        assert await place_call(harness, line) == "Unavailable"
