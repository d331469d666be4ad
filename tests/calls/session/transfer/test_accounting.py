"""What counts of a transfer: cost, concurrency limits, audit log, metrics, webhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.admission.rejection import InsufficientFunds
from config.clock import utc_now
from config.errors import LimitExceeded, TrunklineError
from config.settings_tables import BillingSettings
from storage import tables
from storage.accounts import organizations
from storage.calls import outbound_audit
from storage.calls.outbound_audit import DialRequest
from storage.calls.transfers import TransferOrder
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.webhooks import deliveries
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import WEBHOOK, callee
from tests.calls.session.transfer.transfer_calls import (
    AGENT,
    bridged_pair,
    caller,
    child_of,
    ended_transfer,
    tool_call,
    transfer_of,
)

PRICES = BillingSettings(telephony_per_minute=60.0)


async def test_both_legs_are_charged(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), billing=PRICES) as harness:
        number, _ = await harness.create_number(**AGENT)

        def prepare(conn: sa.Connection) -> None:
            conn.execute(sa.update(tables.organizations).values(plan="paid", balance="10"))
            phone_numbers.replace(conn, number, {"sip_transfer_method": "bridge"})

        await harness.database.write(prepare)
        phone = harness.invite()
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)
        target.ends()
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await ended_transfer(harness, phone))
        organization = await harness.database.read(lambda conn: organizations.get(conn, number.organization_id))
    assert organization is not None
    assert parent.cost is not None
    assert child.cost is not None
    assert child.cost > 0
    assert organization.balance == Decimal(10) - Decimal(str(parent.cost)) - Decimal(str(child.cost))


async def test_the_second_leg_takes_a_place_of_the_organization(tmp_path: Path) -> None:
    limits = ConcurrencyLimits(organization=2)
    async with call_service(tmp_path, tool_call("Sales"), limits=limits) as harness:
        phone, target = await bridged_pair(harness)
        another = harness.invite()
        await until(lambda: another.sent)
        assert another.sent == [486]
        target.ends()
        await harness.ended_call(phone)


async def verdicts(harness: CallServiceHarness) -> list[tuple[Any, ...]]:
    """Destination, verdict and call of each entry of the audit log of outbound calls."""
    t = tables.outbound_attempts
    rows = sa.select(t.c.destination, t.c.verdict, t.c.call_id).order_by(t.c.created_at)
    return await harness.database.read(lambda conn: [tuple(row) for row in conn.execute(rows)])


async def test_a_permitted_transfer_is_audited(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        await callee(harness)
        parent = await harness.stored_call(phone)
        assert await verdicts(harness) == [("+49301", "transferred", parent.id)]


def _only_another_country(conn: sa.Connection, number: PhoneNumber) -> None:
    phone_numbers.replace(conn, number, {"outbound_prefixes": ["+43"]})


def _one_call_per_minute(conn: sa.Connection, number: PhoneNumber) -> None:
    """And that one has been placed."""
    phone_numbers.replace(conn, number, {"outbound_per_minute": 1})
    placed = DialRequest(
        organization_id=number.organization_id,
        phone_number_id=number.id,
        destination="+49302",
        client=None,
        number=number.number,
    )
    outbound_audit.record(conn, placed, "queued")


def _no_funds(conn: sa.Connection, number: PhoneNumber) -> None:
    t = tables.organizations
    conn.execute(sa.update(t).where(t.c.id == number.organization_id).values(plan="paid", balance=0))


@pytest.mark.parametrize(
    ("prepare", "verdict"),
    [(_only_another_country, "refused_prefix"), (_one_call_per_minute, "refused_rate")],
    ids=["destination", "calls per minute"],
)
async def test_a_transfer_that_is_not_permitted_is_audited_and_told_to_the_model(
    tmp_path: Path, prepare: Callable[[sa.Connection, PhoneNumber], None], verdict: str
) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "Not possible.") as harness:
        number, _ = await harness.create_number(**AGENT)
        await harness.database.write(lambda conn: prepare(conn, number))
        phone = harness.invite()
        await until(lambda: "Not possible." in harness.tts.spoken)
        parent = await harness.stored_call(phone)
        assert (await verdicts(harness))[-1] == ("+49301", verdict, parent.id)
        assert harness.callees.dial_count == 0


@pytest.mark.parametrize(
    ("prepare", "verdict", "error"),
    [(_no_funds, "refused_funds", InsufficientFunds), (_one_call_per_minute, "refused_rate", LimitExceeded)],
    ids=["funds", "calls per minute"],
)
async def test_a_transfer_by_a_client_that_is_not_permitted_is_audited_and_refused(
    tmp_path: Path,
    prepare: Callable[[sa.Connection, PhoneNumber], None],
    verdict: str,
    error: type[TrunklineError],
) -> None:
    async with call_service(tmp_path, "Hello.") as harness:
        number, _ = await harness.create_number(**AGENT)
        phone = harness.invite()
        await until(lambda: harness.tts.spoken)
        parent = await harness.stored_call(phone)
        await harness.database.write(lambda conn: prepare(conn, number))
        with pytest.raises(error):
            await harness.service.transfer(parent.id, TransferOrder(target="Sales", requested_by="api"))
        assert (await verdicts(harness))[-1] == ("+49301", verdict, parent.id)
        assert harness.callees.dial_count == 0


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_transfers_are_counted_by_mode_and_status_and_the_time_to_the_connection_is_measured(
    tmp_path: Path,
) -> None:
    ended = {"name": "trunkline_transfers_total", "mode": "cold"}
    waits = ("trunkline_transfer_connect_seconds_count", "trunkline_transfer_connect_seconds_sum")
    async with call_service(tmp_path, tool_call("Sales"), tool_call("Sales"), "Busy.") as harness:
        completed = sample(**ended, status="completed")
        count, total = (sample(name, mode="cold") for name in waits)
        phone, target = await bridged_pair(harness)
        target.ends()
        await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert sample(**ended, status="completed") == completed + 1
        assert sample(waits[0], mode="cold") == count + 1
        assert transfer.connected_at is not None
        waited_s = (transfer.connected_at - transfer.created_at).total_seconds()
        assert abs(sample(waits[1], mode="cold") - total - waited_s) < 1
        busy = sample(**ended, status="busy")
        harness.invite()
        (await callee(harness, 1)).ends(486)
        await until(lambda: sample(**ended, status="busy") == busy + 1)
        assert sample(waits[0], mode="cold") == count + 1


async def test_the_webhook_has_the_transfer_with_each_state_and_attempt(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales", reason="prices")) as harness:
        phone = await caller(harness, **WEBHOOK)
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)
        target.ends()
        parent = await harness.ended_call(phone)
        transfer = await transfer_of(harness, phone)
        due = await harness.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
    bodies = {body["callId"]: body for body in (json.loads(each.delivery.body) for each in due)}
    body, child = bodies[parent.id], bodies[transfer.id]
    assert (body["transferType"], body["transferStatus"]) == ("cold", "completed")
    (shown,) = body["transferCalls"]
    assert (shown["id"], shown["transferStatus"], shown["reason"]) == (transfer.id, "completed", "prices")
    assert [each["status"] for each in shown["states"]] == ["initiated", "ringing", "connected", "completed"]
    assert shown["states"][0]["at"] == shown["createdAt"]
    assert [each["at"] for each in shown["states"]] == sorted(each["at"] for each in shown["states"])
    assert [(each["outcome"], each["sipStatus"]) for each in shown["attempts"]] == [("answered", 200)]
    assert (child["parentCallId"], child["transferStatus"], child["transferCalls"]) == (parent.id, "completed", [])


async def test_the_second_legs_webhook_has_the_final_status_of_a_transfer_without_a_connection(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "They are busy.") as harness:
        phone = await caller(harness, **WEBHOOK)
        (await callee(harness)).ends(486)
        transfer = await ended_transfer(harness, phone)
        (child,) = await harness.database.until(
            lambda conn: [json.loads(each.delivery.body) for each in deliveries.due_attempts(conn, utc_now())],
            lambda bodies: len(bodies) == 1,
        )
    assert (child["callId"], child["status"], child["transferStatus"]) == (transfer.id, "failed", "busy")
