"""Live turns: order, retries, expiry, and receivers that hang or fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient
from calls.webhooks import live_turns
from calls.webhooks.event_request import DeliveryPolicy
from calls.webhooks.live_turns import LiveTurn, LiveTurnSender
from config.secrets import Secrets
from storage.webhooks.deliveries import EventReceiver
from tests.calls.call_service_harness import until
from tests.calls.http_server import system_tls
from tests.calls.webhooks.outbox_harness import Receiver, listening


@asynccontextmanager
async def live_turn_sender(secrets: Secrets) -> AsyncIterator[LiveTurnSender]:
    client = HttpEgressClient(HttpEgressRules(["127.0.0.0/8"]), system_tls())
    sender = LiveTurnSender(client, secrets, DeliveryPolicy(allow_http=True))
    try:
        yield sender
    finally:
        await sender.close()
        await client.close()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_turns, "RETRY_S", 0.01)
    monkeypatch.setattr(live_turns, "CLOSE_WAIT_S", 0.01)


def turn(receiver: Receiver, number: int = 0, *, call: str = "c", organization: str = "o") -> LiveTurn:
    body = json.dumps([call, number]).encode()
    return LiveTurn(organization, call, EventReceiver(f"{receiver.origin}/hook"), body)


def got(receiver: Receiver, call: str = "c") -> list[int]:
    found = [json.loads(body) for _, body in receiver.got]
    return [number for name, number in found if name == call]


async def test_the_turns_of_each_call_arrive_in_order_beside_each_other(secrets: Secrets, receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    async with live_turn_sender(secrets) as sender:
        for number in range(20):
            for call in "ab":
                sender.put(turn(receiver, number, call=call))
        await until(lambda: len(receiver.got) == 2)  # one of each call
        receiver.hold.set()
        await until(lambda: len(receiver.got) == 40)
    assert got(receiver, "a") == got(receiver, "b") == list(range(20))


async def test_a_turn_is_tried_twice_under_one_id(secrets: Secrets, receiver: Receiver) -> None:
    receiver.statuses = [500, 200, 503, 503, 200]
    async with live_turn_sender(secrets) as sender:
        for number in range(3):
            sender.put(turn(receiver, number))
        await until(lambda: len(receiver.got) == 5)
    assert got(receiver) == [0, 0, 1, 1, 2]
    headers = [each for each, _ in receiver.got]
    assert [each["X-Service-Attempt"] for each in headers] == ["1", "2", "1", "2", "1"]
    assert len({each["X-Service-Delivery"] for each in headers}) == 3
    assert {each["X-Service-Event"] for each in headers} == {"call.turn"}


async def test_a_receiver_that_hangs_holds_up_no_other_one(secrets: Secrets, receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    async with listening(Receiver()) as other, live_turn_sender(secrets) as sender:
        for call in range(50):
            sender.put(turn(receiver, call=str(call)))
        await until(lambda: len(receiver.got) == live_turns.CALLS_AT_A_TIME)
        sender.put(turn(other))
        await until(lambda: other.got)
        assert len(receiver.got) == live_turns.CALLS_AT_A_TIME


async def test_an_organization_with_many_hanging_receivers_leaves_requests_to_others(
    secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hold = asyncio.Event()
    async with listening(Receiver()) as other, live_turn_sender(secrets) as sender:
        for number in range(50):
            hook = EventReceiver(f"{receiver.origin}/hook?{number}")
            sender.put(LiveTurn("greedy", str(number), hook, b"[0, 0]"))
        await until(lambda: len(receiver.got) == live_turns.MAX_REQUESTS_OF_ORGANIZATION)
        sender.put(turn(other))
        await until(lambda: other.got)


async def test_a_full_queue_drops_further_turns(
    secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_turns, "MAX_WAITING", 3)
    receiver.hold = asyncio.Event()
    async with live_turn_sender(secrets) as sender:
        for number in range(9):
            sender.put(turn(receiver, number))
        receiver.hold.set()
        await until(lambda: len(receiver.got) == 3)
        sender.put(turn(receiver, 10))
        await until(lambda: len(receiver.got) == 4)
    assert got(receiver) == [0, 1, 2, 10]


async def test_an_expired_turn_is_not_sent(
    secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.hold = asyncio.Event()
    async with live_turn_sender(secrets) as sender:
        sender.put(turn(receiver, 0))
        await until(lambda: receiver.got)
        sender.put(turn(receiver, 1))
        monkeypatch.setattr(live_turns, "EXPIRES_S", -1.0)
        receiver.hold.set()
        await until(lambda: not sender._receivers)
    assert got(receiver) == [0]


async def test_a_receiver_that_fails_rests(
    secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_turns, "REST_S", 0.5)
    receiver.statuses = [500] * 6 + [200]
    async with live_turn_sender(secrets) as sender:
        for number in range(9):
            sender.put(turn(receiver, number))
        await until(lambda: len(receiver.got) == 6)
        (queue,) = sender._receivers.values()
        await until(lambda: not queue.calls)
        assert queue.rests
        sender.put(turn(receiver, 10))
        await until(lambda: not queue.rests)
        sender.put(turn(receiver, 11))
        await until(lambda: len(receiver.got) == 7)
    assert got(receiver) == [0, 0, 1, 1, 2, 2, 11]


async def test_receivers_that_have_failed_are_forgotten(
    secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_turns, "MAX_IDLE_RECEIVERS", 3)
    receiver.statuses = [500]
    async with live_turn_sender(secrets) as sender:
        for number in range(9):
            sender.put(LiveTurn("o", "c", EventReceiver(f"{receiver.origin}/hook?{number}"), b"[0, 0]"))
            await until(lambda: all(not each.calls for each in sender._receivers.values()))
            assert len(sender._receivers) <= 3


async def test_what_a_running_task_puts_is_sent_before_the_end(
    secrets: Secrets, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_turns, "CLOSE_WAIT_S", 5.0)

    async def put_later(sender: LiveTurnSender) -> None:
        await asyncio.sleep(0)
        sender.put(turn(receiver))

    async with live_turn_sender(secrets) as sender:
        sender.spawn(put_later(sender))
    assert got(receiver) == [0]
