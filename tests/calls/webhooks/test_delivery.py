"""Webhook delivery: times and numbers of attempts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa

from config.secrets import Secrets
from storage.database.database import Database
from storage.webhooks import attempt_claims
from storage.webhooks.attempt_claims import DueDestination
from tests.calls.call_service_harness import until
from tests.calls.webhooks.outbox_harness import (
    BODY,
    SECRET,
    Receiver,
    listening,
    put,
    request_manual_attempt,
    running_sender,
    stored,
)


@pytest.mark.parametrize("status", [201, 204, 302, 400, 500])
async def test_only_status_200_is_a_success(
    database: Database, secrets: Secrets, receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    row, (attempt,) = await stored(database, delivery)
    assert (row.status, attempt.next_attempt_at) == ("failed", None)
    assert (attempt.status, attempt.response_status, attempt.error) == ("failed", status, None)
    assert len(receiver.got) == 1


async def test_a_failed_attempt_leaves_the_delivery_pending_until_its_next_time(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(60, 300)) as sender:
        await sender.wait_idle()
    row, (failed, waiting) = await stored(database, delivery)
    assert (row.status, failed.status, waiting.status) == ("pending", "failed", "pending")
    assert (failed.attempt, waiting.attempt) == (1, 2)
    assert failed.next_attempt_at == waiting.next_attempt_at
    assert waiting.next_attempt_at is not None and failed.duration_ms is not None
    ended_at = failed.created_at + timedelta(milliseconds=failed.duration_ms)
    assert 60 <= (waiting.next_attempt_at - ended_at).total_seconds() < 60 * 1.1 + 2


async def test_every_attempt_sends_the_same_bytes_under_the_same_id(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500, 503, 200]
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with running_sender(database, secrets, delays=(0.001, 0.001)) as sender:
        async with asyncio.timeout(20):
            while (await stored(database, delivery))[0].status == "pending":
                await sender.wait_idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2", "3"]
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {delivery.id}
    assert {body for _, body in receiver.got} == {BODY}
    _, attempts = await stored(database, delivery)
    assert [(each.attempt, each.response_status) for each in attempts] == [(1, 500), (2, 503), (3, 200)]


async def test_attempts_under_way_at_the_end_of_the_process_are_made_again_at_the_next_start(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets):
        await receiver.arrived.wait()
    assert (await stored(database, delivery))[0].status == "pending"
    receiver.hold = None
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    assert (await stored(database, delivery))[0].status == "succeeded"


async def test_a_delivery_that_another_process_has_claimed_meanwhile_is_not_sent(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    old = await database.read(attempt_claims.due_destinations)
    looks: list[None] = []

    def shows_what_was(conn: sa.Connection) -> list[DueDestination]:
        looks.append(None)
        return old if len(looks) < 5 else real(conn)

    real = attempt_claims.due_destinations
    monkeypatch.setattr(attempt_claims, "due_destinations", shows_what_was)
    async with running_sender(database, secrets) as sender:
        await until(lambda: len(looks) >= 5)
        receiver.hold.set()
        await sender.wait_idle()
    assert len(receiver.got) == 1
    assert (await stored(database, delivery))[0].status == "succeeded"


async def test_other_receivers_do_not_wait_for_a_slow_one(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    async with listening(Receiver(hold=asyncio.Event())) as slow:
        late = await put(database, f"{slow.origin}/hook")
        await put(database, f"{receiver.origin}/hook")
        async with running_sender(database, secrets):
            await receiver.arrived.wait()
            assert [each.status for each in (await stored(database, late))[1]] == ["pending"]


async def test_a_receiver_that_takes_too_long_has_failed(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, timeout_s=0.05) as sender:
        await sender.wait_idle()
    _, (attempt,) = await stored(database, delivery)
    assert (attempt.response_status, attempt.error) == (None, "no complete answer within 0.05 s")
    receiver.hold.set()


async def test_a_delivery_added_later_is_sent_after_a_wake(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
        delivery = await put(database, f"{receiver.origin}/hook")
        sender.wake()
        await sender.wait_idle()
    assert (await stored(database, delivery))[0].status == "succeeded"


async def test_failed_attempts_are_repeated_until_the_end_of_the_schedule(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(0.001,) * 4) as sender, asyncio.timeout(20):
        while (await stored(database, delivery))[0].status == "pending":
            await sender.wait_idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2", "3", "4", "5"]
    row, attempts = await stored(database, delivery)
    assert (row.status, {each.status for each in attempts}) == ("failed", {"failed"})
    after = [each.next_attempt_at for each in attempts]
    assert after[-1] is None
    for earlier, due_at, later in zip(attempts, after, attempts[1:], strict=False):
        assert due_at is not None
        assert earlier.created_at < due_at <= later.created_at


async def test_a_manual_attempt_is_sent_at_once_with_the_same_bytes_and_a_number_of_its_own(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500, 200]
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with running_sender(database, secrets, delays=(60,) * 4) as sender:
        await sender.wait_idle()
        asked = await request_manual_attempt(database, delivery)
        sender.wake()
        await sender.wait_idle()
    (first, first_body), (again, again_body) = receiver.got
    assert (first["X-Service-Attempt"], again["X-Service-Attempt"]) == ("1", "6")
    assert first["X-Service-Delivery"] == again["X-Service-Delivery"] == delivery.id
    assert first["X-Service-Signature"] == again["X-Service-Signature"]
    assert first_body == again_body == BODY
    row, attempts = await stored(database, delivery)
    assert row.status == "succeeded"
    assert [(each.id, each.attempt, each.manual, each.status) for each in attempts[1:]] == [
        (asked.id, 6, True, "succeeded")
    ]
    assert attempts[0].next_attempt_at is None, "no further attempt follows"


async def test_a_manual_attempt_requested_without_a_process_is_sent_at_the_next_start(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    await request_manual_attempt(database, delivery)
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    assert [headers["X-Service-Attempt"] for headers, _ in receiver.got] == ["1", "2"]


async def test_a_failed_manual_attempt_is_not_repeated(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [200, 500]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(0.001,) * 4) as sender:
        await sender.wait_idle()
        await request_manual_attempt(database, delivery)
        sender.wake()
        await sender.wait_idle()
        row, attempts = await stored(database, delivery)
        assert row.status == "succeeded"
        assert [(each.attempt, each.status, each.next_attempt_at) for each in attempts] == [
            (1, "succeeded", None),
            (2, "failed", None),
        ]
        assert await database.read(attempt_claims.due_destinations) == []


async def test_attempts_of_one_delivery_do_not_wait_for_each_other(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    receiver.statuses = [500, 200]
    delivery = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(60,)) as sender:
        await receiver.arrived.wait()
        receiver.arrived.clear()
        await request_manual_attempt(database, delivery)
        sender.wake()
        await receiver.arrived.wait()
        receiver.hold.set()
        await sender.wait_idle()
    row, attempts = await stored(database, delivery)
    assert row.status == "succeeded"
    assert {each.response_status for each in attempts if each.status != "pending"} == {500, 200}
    assert not [each for each in attempts if each.status == "pending"]
