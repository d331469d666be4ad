"""Several sender processes of one outbox, one of which stops or dies."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from calls.webhooks import delivery
from calls.webhooks.receiver_concurrency import ReceiverSpeed
from config.clock import utc_now
from config.secrets import Secrets
from storage import tables
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.webhooks import attempt_claims, deliveries
from storage.webhooks.deliveries import DeliveryAttempt
from tests.calls.call_service_harness import until
from tests.calls.webhooks.outbox_harness import Receiver, put, put_many, running_sender, stored

AT_FIRST = ReceiverSpeed.NEW.limit
"""Attempts that a receiver gets before it has answered any."""


def requests_per_attempt(receiver: Receiver) -> Counter[tuple[str, str]]:
    """Returns the number of requests of each attempt."""
    return Counter((headers["X-Service-Delivery"], headers["X-Service-Attempt"]) for headers, _ in receiver.got)


async def claimants(database: Database) -> Counter[str | None]:
    """Returns the claimants of the attempts that are not made yet."""

    def look(conn: sa.Connection) -> Counter[str | None]:
        attempts = tables.webhook_attempts
        return Counter(conn.execute(sa.select(attempts.c.claimed_by).where(attempts.c.status == "pending")).scalars())

    return await database.read(look)


async def test_two_senders_of_one_outbox_never_send_the_same_attempt(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    await put_many(database, f"{receiver.origin}/hook", 60)
    async with (
        running_sender(database, secrets, timeout_s=60) as one,
        running_sender(database, secrets, timeout_s=60, beside_others=True) as other,
    ):
        await until(lambda: len(receiver.got) == 2 * AT_FIRST)
        assert sorted((await claimants(database)).values()) == [AT_FIRST, AT_FIRST, 60 - 2 * AT_FIRST]
        receiver.hold.set()
        await until(lambda: len(receiver.got) >= 60)
        await asyncio.gather(one.wait_idle(), other.wait_idle())
    assert set(requests_per_attempt(receiver).values()) == {1}
    assert len(receiver.got) == 60


@asynccontextmanager
async def worker(database: Database, key: bytes) -> AsyncIterator[asyncio.subprocess.Process]:
    """A sender process; killed at the end."""
    url = database.url.render_as_string(hide_password=False)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.calls.webhooks.sender_process", url, key.decode(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"sends\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_two_processes_never_send_the_same_attempt_and_a_dead_ones_is_sent_again_after_its_claim(
    database: Database, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    key = Fernet.generate_key()
    deliveries = await put_many(database, f"{receiver.origin}/hook", 40, Secrets([key]).encrypt("hush"))
    async with AsyncExitStack() as stack:
        first, _ = [await stack.enter_async_context(each) for each in (worker(database, key), worker(database, key))]
        await until(lambda: len(receiver.got) == 2 * AT_FIRST)
        before = requests_per_attempt(receiver)
        assert set(before.values()) == {1}
        first.kill()
        await first.wait()
        held = {name: count for name, count in (await claimants(database)).items() if name}
        (dead,) = [name for name in held if name.startswith(f"{first.pid}-")]
        assert set(held.values()) == {AT_FIRST}
        receiver.hold.set()
        await until(lambda: len(receiver.got) >= 40)
        await _expire(database, dead)
        async with running_sender(database, Secrets([key]), beside_others=True) as ours:
            await ours.wait_idle()
        await _until_no_claims(database)  # the other process stores its last results after the receiver has answered
    counts = requests_per_attempt(receiver)
    assert {delivery_id for delivery_id, _ in counts} == {each.id for each in deliveries}
    assert {number for _, number in counts} == {"1"}
    assert sorted(counts.values()) == [1] * (40 - AT_FIRST) + [2] * AT_FIRST
    assert {each for each, count in counts.items() if count == 2} <= set(before)


async def _until_no_claims(database: Database) -> None:
    """Poll the claims, which another process gives back, for 10 s at most."""
    async with asyncio.timeout(10):
        while await claimants(database) != Counter():  # noqa: ASYNC110 - another process has no event here
            await asyncio.sleep(0.02)


async def _expire(database: Database, claimant: str) -> None:
    """Let the claims expire."""
    attempts = tables.webhook_attempts
    expired = sa.update(attempts).where(attempts.c.claimed_by == claimant).values(claimed_until=sa.text("0"))
    await database.write(lambda conn: conn.execute(expired).close())


async def test_an_attempt_is_claimed_before_its_first_byte_is_sent(
    database: Database, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Counter[str | None]] = []

    async def looks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await claimants(database))
        writer.close()

    async with await asyncio.start_server(looks, "127.0.0.1", 0) as server:
        await put(database, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook")
        async with running_sender(database, secrets) as sender:
            await sender.wait_idle()
            assert seen == [Counter([sender._claimant])]


async def test_an_attempt_that_was_claimed_too_long_ago_is_not_sent(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_START_DELAY_S", -1.0)
    await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
        assert receiver.got == []
        assert await claimants(database) == Counter([sender._claimant])


async def test_an_own_attempt_that_outlasts_its_claim_is_not_sent_again_and_causes_no_extra_reads(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "CLAIM_MARGIN_S", -60)
    receiver.hold = asyncio.Event()
    real, looks = attempt_claims.expired_claims, []

    def counted(conn: sa.Connection, now: datetime, dead_until: datetime | None = None) -> list[str]:
        looks.append(real(conn, now, dead_until))
        return looks[-1]

    monkeypatch.setattr(attempt_claims, "expired_claims", counted)
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, timeout_s=60) as sender:
        await receiver.arrived.wait()
        await until(lambda: looks[-1:] and looks[-1])
        before = len(looks)
        for _ in range(3):
            sender.wake()
            await asyncio.sleep(0.01)
        assert len(looks) <= before + 7
        receiver.hold.set()
        await sender.wait_idle()
    assert (await stored(database, delivery_id))[0].status == "succeeded"
    assert len(receiver.got) == 1


async def test_a_healthy_receiver_does_not_wait_for_dead_ones_with_thousands_of_events(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    came: list[int] = []

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("sockname")[1])
        await reader.read()  # to the end of the connection
        writer.close()

    async with AsyncExitStack() as stack:
        ports = [await _listening(stack, hangs) for _ in range(30)]
        for port in ports:
            await put_many(database, f"http://127.0.0.1:{port}/hook", 1000 if port == ports[0] else 5)
        async with running_sender(database, secrets, timeout_s=60) as sender:
            await until(lambda: len(came) == len(ports) * AT_FIRST)
            delivery_id = await put(database, f"{receiver.origin}/hook")
            sender.wake()
            await receiver.arrived.wait()
            await until(lambda: sender._concurrency.under_way == len(came))
            assert (await stored(database, delivery_id))[0].status == "succeeded"
            assert Counter(came) == dict.fromkeys(ports, AT_FIRST), "none has ended, and no more were started"


async def _listening(
    stack: AsyncExitStack, handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> int:
    """A server for these requests; yields its port."""
    server = await stack.enter_async_context(await asyncio.start_server(handle, "127.0.0.1", 0))
    return int(server.sockets[0].getsockname()[1])


async def test_a_drain_starts_no_attempts_and_waits_for_those_under_way(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    await put_many(database, f"{receiver.origin}/hook", 20)
    async with running_sender(database, secrets, timeout_s=60) as sender:
        await until(lambda: len(receiver.got) == AT_FIRST)
        drained = asyncio.create_task(sender.drain(0.01))
        await until(lambda: sender._closing)
        assert not drained.done()
        receiver.hold.set()
        assert await drained is False
        assert len(receiver.got) == AT_FIRST
        assert await claimants(database) == Counter({None: 20 - AT_FIRST})
    async with running_sender(database, secrets) as sender:
        assert await sender.drain(20) is True
        await put(database, f"{receiver.origin}/hook")
        sender.wake()
        await sender.wait_idle()
    assert set(requests_per_attempt(receiver).values()) == {1}
    assert len(receiver.got) == 20


async def test_a_drain_waits_for_a_retry_that_is_under_way(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.statuses = [500, 200]
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(0.1,)) as sender:
        await sender.wait_idle()
        receiver.hold = asyncio.Event()
        await until(lambda: len(receiver.got) == 2)
        drained = asyncio.create_task(sender.drain(20))
        await asyncio.sleep(0.05)
        assert not drained.done()
        receiver.hold.set()
        assert await drained is True
    assert (await stored(database, delivery_id))[0].status == "succeeded"


async def test_a_drain_waits_for_a_retry_that_is_being_claimed(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.statuses = [500, 200]
    delivery_id = await put(database, f"{receiver.origin}/hook")
    real, claims, may_commit = attempt_claims.claim, threading.Event(), threading.Event()

    def claim_late(*arguments: Any, **named: Any) -> list[deliveries.DueAttempt]:
        claims.set()
        assert may_commit.wait(20)
        return real(*arguments, **named)

    async with running_sender(database, secrets, delays=(0.5,)) as sender:
        await sender.wait_idle()
        monkeypatch.setattr(attempt_claims, "claim", claim_late)
        assert await asyncio.to_thread(claims.wait, 20)
        drained = asyncio.create_task(sender.drain(20))
        await asyncio.sleep(0)
        assert not drained.done()
        may_commit.set()
        assert await drained is True
    assert (await stored(database, delivery_id))[0].status == "succeeded"
    assert len(receiver.got) == 2


async def test_a_sent_attempt_is_recorded_once_the_database_works_and_not_sent_again(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = deliveries.record_attempt, list[dict[str, object]]()

    def fails_twice(*arguments: Any, **named: Any) -> DeliveryAttempt | None:
        tries.append(named)
        if len(tries) < 3:
            raise StorageUnavailable("the disk is full")
        return real(*arguments, **named)

    monkeypatch.setattr(deliveries, "record_attempt", fails_twice)
    monkeypatch.setattr(delivery, "STORE_RETRY_S", 0.01)
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    assert (await stored(database, delivery_id))[0].status == "succeeded"
    assert len(receiver.got) == 1
    assert len(tries) == 3


async def test_a_drain_waits_until_the_results_of_attempts_are_stored(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_away, tried = deliveries.record_attempt, True, asyncio.Event()

    def fails_in_an_outage(*arguments: Any, **named: Any) -> DeliveryAttempt | None:
        if is_away:
            loop.call_soon_threadsafe(tried.set)
            raise StorageUnavailable("connection refused")
        return real(*arguments, **named)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(deliveries, "record_attempt", fails_in_an_outage)
    monkeypatch.setattr(delivery, "STORE_RETRY_S", 0.01)
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await tried.wait()
        drained = asyncio.create_task(sender.drain(0))
        tried.clear()
        await tried.wait()
        assert not drained.done()
        assert sender.under_way == 1
        is_away = False
        assert await drained is False
        assert sender.under_way == 0
    assert (await stored(database, delivery_id))[0].status == "succeeded"


async def test_a_drain_ends_although_the_database_stays_away(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    def fails(*_arguments: Any, **_named: Any) -> None:
        loop.call_soon_threadsafe(tried.set)
        raise StorageUnavailable("connection refused")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(deliveries, "record_attempt", fails)
    monkeypatch.setattr(delivery, "DRAIN_STORE_S", 0.0)
    await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, timeout_s=0.5) as sender:
        await tried.wait()
        async with asyncio.timeout(20):
            assert await sender.drain(0) is False
        assert sender.under_way == 1, "it is cut off"


@dataclass
class OneOfSeveral:
    """The membership of a node."""

    instance: str | None = "own"
    is_valid: bool = True
    sees_others: bool = False


async def test_after_an_outage_expired_claims_wait_until_the_other_nodes_have_stored_their_results(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    membership = OneOfSeveral()
    delivery_id = await put(database, f"{receiver.origin}/hook")
    attempts = tables.webhook_attempts
    expired = {"claimed_by": attempt_claims.claimant_of("other"), "claimed_until": utc_now() - timedelta(seconds=1)}
    await database.write(lambda conn: conn.execute(sa.update(attempts).values(expired)))
    async with running_sender(database, secrets, beside_others=True, membership=membership) as sender:
        await sender.wait_idle()
        assert not receiver.got
        membership.sees_others = True
        sender.wake()
        await receiver.arrived.wait()
        await sender.wait_idle()
    assert (await stored(database, delivery_id))[0].status == "succeeded"


async def test_a_node_that_others_take_for_down_claims_nothing(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, reads, real = (
        OneOfSeveral(is_valid=False, sees_others=True),
        list[None](),
        attempt_claims.due_destinations,
    )

    def read(conn: sa.Connection) -> list[attempt_claims.DueDestination]:
        reads.append(None)
        return real(conn)

    monkeypatch.setattr(attempt_claims, "due_destinations", read)
    monkeypatch.setattr(delivery, "HELD_S", 0.01)
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, beside_others=True, membership=membership) as sender:
        await until(lambda: len(reads) > 2)
        assert await claimants(database) == Counter([None])
        membership.is_valid = True
        await receiver.arrived.wait()
        await sender.wait_idle()
    assert (await stored(database, delivery_id))[0].status == "succeeded"


async def test_no_attempt_is_made_before_its_time_after_the_clock_is_set(
    database: Database, secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.statuses = [500]
    looks: list[datetime] = []
    delivery_id = await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets, delays=(3600,)) as sender:
        await sender.wait_idle()
        _, (_, waiting) = await stored(database, delivery_id)
        due_at = waiting.next_attempt_at
        assert due_at is not None

        async def set_to(now: datetime) -> None:
            def look() -> datetime:
                looks.append(now)
                return now

            monkeypatch.setattr(delivery, "utc_now", look)
            sender.wake()
            await sender.wait_idle()
            assert now in looks

        for early in (due_at - timedelta(milliseconds=1), due_at - timedelta(days=400)):
            await set_to(early)
            assert len(receiver.got) == 1
        await set_to(due_at)
        await until(lambda: len(receiver.got) == 2)
    assert await database.read(attempt_claims.due_destinations) == []
