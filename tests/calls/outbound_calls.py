"""Calls that we make, as tests make and follow them."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import House, until
from tests.fakes.fake_leg import Callee

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}
Line = tuple[PhoneNumber, Agent]


def store(conn: sa.Connection, line: Line, to: str, **more: Any) -> Call:
    """What POST /calls does in its transaction."""
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


async def queue(house: House, line: Line, to: str = "+4917012", **more: Any) -> Call:
    """A call that is to be placed."""
    call = await house.database.write(lambda conn: store(conn, line, to, **more))
    house.service.start_queued_calls()
    return call


async def callee(house: House, place: int = 0) -> Callee:
    """Wait until somebody is called."""
    await until(lambda: len(house.callees.called) > place)
    return house.callees.called[place]


async def stored(house: House, call: Call) -> Call:
    """The call as it is now."""
    return await house.database.read(partial(_get, call.id))


def _get(call_id: str, conn: sa.Connection) -> Call:
    found = calls.get_anywhere(conn, call_id)
    assert found is not None
    return found


async def ended(house: House, call: Call) -> Call:
    """Wait for the stored end of a call."""
    now = await house.database.until(partial(_get, call.id), lambda found: found.ended_at is not None)
    await until(lambda: all(live.call.id != call.id for live in house.service.active_calls()))
    return now


async def becomes(house: House, call: Call, status: str) -> None:
    """Wait until the call is stored in this status."""
    await house.database.until(partial(_get, call.id), lambda found: found.status == status)


def how(call: Call) -> tuple[str, str | None]:
    """Status and reason of the end."""
    return call.status, call.ended_reason
