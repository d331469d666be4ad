"""The order of a call's events at a receiver, and what events without a response delay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from calls.webhooks import delivery
from calls.webhooks.event_request import DeliveryPolicy
from config.secrets import Secrets
from storage import tables
from storage.database.database import Database
from tests.calls.call_service_harness import call_service, until
from tests.calls.webhooks.outbox_harness import Receiver, put_many, running_sender

STORED = ["call.started", "call.answered", "call.transferred", "call.failed", "call.completed"]


async def test_a_slow_first_event_of_a_call_holds_back_the_next_ones_of_that_call_alone(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.hangs_for = "call.started"
    async with call_service(tmp_path, webhooks=DeliveryPolicy(allow_http=True, timeout_s=1.5)) as harness:
        webhook: dict[str, Any] = {"post_call_webhook_url": f"{receiver.origin}/hook"}
        await harness.create_number(**webhook, post_call_webhook_events=STORED)
        await harness.create_number("+4930200", **webhook, post_call_webhook_events=["call.completed"])
        phones = [harness.invite(), harness.invite(dials="+4930200")]
        await until(lambda: all(phone.leg.on_digit is not None for phone in phones))
        for phone in phones:
            phone.hangs_up()
        first, second = [await harness.ended_call(phone) for phone in phones]
        await until(lambda: len(receiver.got) == 4)
    order = [(json.loads(body)["callId"], json.loads(body)["event"]) for _, body in receiver.got]
    assert [event for call_id, event in order if call_id == first.id] == [
        *("call.started", "call.answered", "call.completed"),
    ]
    assert order.index((second.id, "call.completed")) < order.index((first.id, "call.answered"))


def events_at(receiver: Receiver) -> list[str]:
    return [headers["X-Service-Event"] for headers, _ in receiver.got]


async def test_events_that_get_no_response_delay_no_call_completed(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    receiver.hangs_for = "call.started"
    url = f"{receiver.origin}/hook"
    async with running_sender(database, secrets) as sender:
        await put_many(database, url, 20, events=["call.started"])
        sender.wake()
        await until(lambda: len(receiver.got) == 2)
        await put_many(database, url, 20)
        sender.wake()
        await until(lambda: events_at(receiver).count("call.completed") == 20)
    assert events_at(receiver).count("call.started") == 2


@pytest.mark.parametrize("waits", [True, False])
async def test_call_completed_waits_for_earlier_events_of_its_call_for_a_while(
    database: Database, secrets: Secrets, receiver: Receiver, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MAX_ORDER_WAIT_S", 60.0 if waits else 0.2)
    receiver.hangs_for = "call.started"
    await put_many(database, f"{receiver.origin}/hook", 1, events=["call.started", "call.completed"])
    async with running_sender(database, secrets, timeout_s=1.5 if waits else 20):
        await until(lambda: "call.completed" in events_at(receiver))
        attempts = await database.read(lambda conn: conn.execute(sa.select(tables.webhook_attempts.c.status)).all())
    assert events_at(receiver) == ["call.started", "call.completed"]
    assert sum(each.status == "failed" for each in attempts) == waits
