"""Permissions withdrawn while a call is queued: it is dialled by the current state, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.outbound import dial_audit
from sipcore.messages.headers import NameAddr
from sipcore.trunks.trunk import Trunk
from storage import tables
from storage.accounts import api_keys, organizations
from storage.agents import agents
from storage.calls import calls, outbound_audit
from storage.calls.calls import Call
from storage.calls.outbound_audit import DialAttempt, DialRequest
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import NumberAndAgent, callee, ended, status_and_reason, store
from tests.database_template import sqlite_only
from tests.fakes.fake_leg import SOURCE

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


async def queued_call(harness: CallServiceHarness, line: NumberAndAgent) -> Call:
    """Returns a queued call that was requested with an API key."""
    harness.pacer.gate.clear()

    def work(conn: sa.Connection) -> Call:
        number, _ = line
        key, _ = api_keys.create(conn, number.organization_id)
        call = store(conn, line, "+4917012")
        wish = DialRequest(
            organization_id=number.organization_id,
            phone_number_id=number.id,
            destination=call.customer_number,
            client="192.0.2.7",
            number=number.number,
            api_key_id=key.id,
            api_key_prefix=key.prefix,
        )
        outbound_audit.record(conn, wish, "queued", call_id=call.id)
        return call

    call = await harness.database.write(work)
    harness.service.start_queued_calls()
    await until(harness.service.active_calls)
    return call


async def audit_entries(harness: CallServiceHarness, call: Call) -> list[DialAttempt]:
    """Returns the audit log's entries of a call."""
    entries = await harness.database.read(
        lambda conn: outbound_audit.page_after(conn, call.organization_id, BEGINNING, "", limit=99)
    )
    assert {each.attempt.call_id for each in entries} == {call.id}
    return [each.attempt for each in entries]


def _delete_number(conn: sa.Connection, line: NumberAndAgent) -> None:
    phone_numbers.delete(conn, line[0].organization_id, line[0].id)


def _delete_agent(conn: sa.Connection, line: NumberAndAgent) -> None:
    agents.delete(conn, line[1].organization_id, line[1].id)


def _deactivate_agent(conn: sa.Connection, line: NumberAndAgent) -> None:
    conn.execute(sa.update(tables.agents).where(tables.agents.c.id == line[1].id).values(is_active=False))


def _narrow_number(conn: sa.Connection, line: NumberAndAgent) -> None:
    phone_numbers.replace(conn, line[0], {"outbound_prefixes": ["+41"]})


def _narrow_organization(conn: sa.Connection, line: NumberAndAgent) -> None:
    t = tables.organizations
    conn.execute(sa.update(t).where(t.c.id == line[0].organization_id).values(outbound_prefixes=[]))


def _use_up_balance(conn: sa.Connection, line: NumberAndAgent) -> None:
    t = tables.organizations
    conn.execute(sa.update(t).where(t.c.id == line[0].organization_id).values(plan="paid", balance=0))


def _take_trunk(conn: sa.Connection, line: NumberAndAgent) -> None:
    organizations.create(conn, "second")
    trunk_grants.deny(conn, line[0].organization_id, SOURCE, None, actor="ann")


def _revoke_key(conn: sa.Connection, line: NumberAndAgent) -> None:
    for key in api_keys.all_of(conn, line[0].organization_id):
        api_keys.revoke(conn, key.id)


@pytest.mark.parametrize(
    ("take_away", "why"),
    [
        (_delete_number, "the number was deleted"),
        (_delete_agent, "the agent was deleted"),
        (_deactivate_agent, "the agent is not active any more"),
        (_narrow_number, "calls from this number may not go there any more"),
        (_narrow_organization, "calls from this number may not go there any more"),
        (_use_up_balance, "the organization has no funds"),
        (_take_trunk, "the operator has taken the number's trunk from the organization"),
        (_revoke_key, "the API key was revoked"),
    ],
)
async def test_a_queued_call_is_not_dialled_after_its_permission_was_withdrawn(
    tmp_path: Path, take_away: Any, why: str
) -> None:
    async with call_service(tmp_path, trunk_policy="auto") as harness:
        line = await harness.create_number()
        call = await queued_call(harness, line)
        await harness.database.write(lambda conn: take_away(conn, line))
        with capture_logs() as lines:
            harness.pacer.gate.set()
            assert status_and_reason(await ended(harness, call)) == ("failed", "unreachable")
        assert harness.callees.dial_count == 0
        queued, end = await audit_entries(harness, call)
        assert (end.verdict, end.detail, end.destination) == ("not_dialled", why, "+4917012")
        assert (end.number, end.client) == ("+4930100", "192.0.2.7")
        assert (end.api_key_id, end.api_key_prefix) == (queued.api_key_id, queued.api_key_prefix)
        assert [each["why"] for each in lines if each["event"] == "call.not_placed"] == [why]


async def test_a_queued_call_is_placed_with_the_number_as_it_is_then(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        await queued_call(harness, (number, agent))
        changes = {"sip_port": 5070, "name": "Night desk", "number": "+4930200"}
        await harness.database.write(lambda conn: phone_numbers.replace(conn, number, changes))
        harness.pacer.gate.set()
        there = await callee(harness)
        assert there.uri == "sip:+4917012@192.0.2.10:5070"
        assert there.caller == NameAddr("+4930200", "Night desk")


@asynccontextmanager
async def change_while_resolving(
    harness: CallServiceHarness, monkeypatch: pytest.MonkeyPatch, work: Any
) -> AsyncIterator[list[PhoneNumber]]:
    """Change the database while the trunk of a call is resolved for the first time."""
    trunk_of, asked = harness.callees.trunk_of, list[PhoneNumber]()

    async def slow(number: PhoneNumber) -> Trunk:
        asked.append(number)
        trunk = await trunk_of(number)
        if len(asked) == 1:
            await harness.database.write(work)
        return trunk

    dialer = harness.service._dialer
    assert dialer is not None
    monkeypatch.setitem(dialer.__dict__, "trunk_of", slow)
    yield asked


async def test_a_number_changed_while_its_trunk_is_resolved_is_resolved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        call = await queued_call(harness, (number, agent))
        move = {"sip_port": 5070}
        async with change_while_resolving(
            harness, monkeypatch, lambda conn: phone_numbers.replace(conn, number, move)
        ) as asked:
            harness.pacer.gate.set()
            assert (await callee(harness)).uri.endswith(":5070")
        assert [each.sip_port for each in asked] == [None, 5070]
        assert [each.verdict for each in await audit_entries(harness, call)] == ["queued"]


async def test_a_number_deleted_while_its_trunk_is_resolved_is_not_dialled_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()
        call = await queued_call(harness, line)
        async with change_while_resolving(harness, monkeypatch, lambda conn: _delete_number(conn, line)):
            harness.pacer.gate.set()
            assert status_and_reason(await ended(harness, call)) == ("failed", "unreachable")
        assert harness.callees.dial_count == 0


@sqlite_only("a call waits until it is stored that no other node dials it")
@pytest.mark.parametrize("revoked", [True, False])
async def test_with_a_read_only_database_only_permitted_calls_are_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()
        call = await queued_call(harness, line)
        if revoked:
            await harness.database.write(lambda conn: _revoke_key(conn, line))

        def full(*_: Any, **__: Any) -> None:
            raise StorageUnavailable("the disk is full")

        monkeypatch.setattr(calls, "mark_dialling", full)
        monkeypatch.setattr(dial_audit, "record_not_dialled", full)
        harness.pacer.gate.set()
        if revoked:
            assert status_and_reason(await ended(harness, call)) == ("failed", "unreachable")
        else:
            await callee(harness)
        assert harness.callees.dial_count == (not revoked)
