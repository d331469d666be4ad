"""Outbound calls of tests: queue them, and wait for their states."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, until
from tests.fakes.fake_leg import Callee

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}
NumberAndAgent = tuple[PhoneNumber, Agent]


def store(conn: sa.Connection, line: NumberAndAgent, to: str, **more: Any) -> Call:
    """Store a call as POST /calls does in its transaction."""
    number, agent = line
    facts = {"context_variables": {}, "metadata": {}, **more}
    return calls.create_outbound(
        conn,
        organization_id=number.organization_id,
        agent_id=agent.id,
        phone_number_id=number.id,
        provider=number.provider,
        customer_number=to,
        **facts,
    )


async def queue(harness: CallServiceHarness, line: NumberAndAgent, to: str = "+4917012", **more: Any) -> Call:
    """Queue a call."""
    call = await harness.database.write(lambda conn: store(conn, line, to, **more))
    harness.service.start_queued_calls()
    return call


async def callee(harness: CallServiceHarness, place: int = 0) -> Callee:
    """Wait until an INVITE is sent; returns the callee."""
    await until(lambda: len(harness.callees.dialled) > place)
    return harness.callees.dialled[place]


async def stored(harness: CallServiceHarness, call: Call) -> Call:
    """Returns the call as it is stored now."""
    return await harness.database.read(partial(_get, call.id))


def _get(call_id: str, conn: sa.Connection) -> Call:
    found = calls.get_by_id(conn, call_id)
    assert found is not None
    return found


async def ended(harness: CallServiceHarness, call: Call) -> Call:
    """Wait for the stored end of a call."""
    now = await harness.database.until(partial(_get, call.id), lambda found: found.ended_at is not None)
    await until(lambda: all(live.call.id != call.id for live in harness.service.active_calls()))
    return now


async def wait_for_status(harness: CallServiceHarness, call: Call, status: str) -> None:
    """Wait until the call is stored in this status."""
    await harness.database.until(partial(_get, call.id), lambda found: found.status == status)


def status_and_reason(call: Call) -> tuple[str, str | None]:
    """Returns status and end reason."""
    return call.status, call.ended_reason
