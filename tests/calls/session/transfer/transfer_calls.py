"""Transfers of tests: callers whose agent transfers them, and what is stored of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from models.protocols import LlmOutput, TextDelta, ToolCall
from storage.calls import calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import Transfer
from storage.phone_numbers import phone_numbers
from tests.calls.call_service_harness import CallServiceHarness, until
from tests.calls.outbound_calls import callee
from tests.fakes.fake_leg import Callee, Phone

SALES: dict[str, Any] = {"name": "Sales", "description": "Prices", "number": "+49301", "mode": "cold"}
AGENT: dict[str, Any] = {"first_speaker": "agent", "transfer_targets": [SALES], "hold_message": "I put you through."}


def tool_call(target: str = "Sales", **more: str) -> Sequence[LlmOutput]:
    """The model calls the tool."""
    return [TextDelta("Sure."), ToolCall("1", "transfer_call", json.dumps({"target": target, **more}))]


async def caller(harness: CallServiceHarness, method: str = "bridge", **agent: Any) -> Phone:
    """A caller of a number with this transfer method."""
    number, _ = await harness.create_number(**{**AGENT, **agent})
    await harness.database.write(lambda conn: phone_numbers.replace(conn, number, {"sip_transfer_method": method}))
    return harness.invite()


async def transfer_of(harness: CallServiceHarness, phone: Phone) -> Transfer:
    """The last transfer of the caller's call, as it is stored."""
    parent = await harness.stored_call(phone)
    return (await harness.database.read(lambda conn: transfers.of_call(conn, parent.id)))[-1]


async def child_of(harness: CallServiceHarness, transfer: Transfer) -> Call:
    """The child call of a transfer, as it is stored; once it has ended if the transfer has."""

    def read(conn: sa.Connection) -> Call | None:
        return calls.get_by_id(conn, transfer.id)

    is_open = transfer.ended_at is None
    found = await harness.database.until(read, lambda each: is_open or (each is not None and each.ended_at is not None))
    assert found is not None
    return found


async def ended_transfer(harness: CallServiceHarness, phone: Phone) -> Transfer:
    """The last transfer of the caller's call, once it has ended."""
    transfer = await transfer_of(harness, phone)

    def read(conn: sa.Connection) -> Transfer | None:
        return transfers.get(conn, transfer.id)

    found = await harness.database.until(read, lambda each: each is not None and each.ended_at is not None)
    assert found is not None
    return found


async def bridged_pair(harness: CallServiceHarness) -> tuple[Phone, Callee]:
    """A caller who is connected with the target."""
    phone = await caller(harness)
    target = await callee(harness)
    target.answers()
    await until(lambda: harness.pump.bridges)
    return phone, target
