"""Stored transfers: status changes, what the parent and the child call show of them, child calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import get_args
from uuid import uuid4

import pytest
import sqlalchemy as sa

from config.clock import iso, utc_now
from storage import tables
from storage.calls import calls, deletion, queued_calls, transfers
from storage.calls.calls import Call
from storage.calls.transfers import OPEN_STATUSES, Transfer, TransferAttempt, TransferStatus
from storage.database.database import Database
from tests.storage.calls.transfer_makers import SECOND, parent_call, transfer_of

ENDED: tuple[TransferStatus, ...] = tuple(each for each in get_args(TransferStatus) if each not in OPEN_STATUSES)


def shown(conn: sa.Connection, call_id: str) -> tuple[str | None, str | None]:
    """Transfer type and status of a stored call."""
    call = calls.get_by_id(conn, call_id)
    assert call is not None
    return call.transfer_type, call.transfer_status


async def test_a_new_transfer_is_stored_and_shown_by_its_parent(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        assert (shown(conn, call.id), transfers.of_call(conn, call.id)) == ((None, None), [])
        transfer = transfer_of(call)
        transfers.insert(conn, transfer)
        assert (transfers.of_call(conn, call.id), transfers.get(conn, transfer.id)) == ([transfer], transfer)
        assert shown(conn, call.id) == ("warm_briefing", "initiated")

    await database.write(check)


async def test_a_transfer_stores_what_happens_to_it(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        transfer, at = transfer_of(call), call.created_at
        transfers.insert(conn, transfer)
        attempt: TransferAttempt = {
            "number": transfer.number,
            "startedAt": iso(at),
            "endedAt": None,
            "sipStatus": None,
            "outcome": None,
        }
        ringing = transfers.update(conn, transfer.id, status="ringing", attempts=[attempt])
        assert ringing is not None
        assert ringing == replace(transfer, status="ringing", attempts=[attempt], states=ringing.states)
        briefed = transfers.update(conn, transfer.id, status="briefing", sip_status=200, answered_at=at + SECOND)
        assert briefed is not None
        assert (briefed.attempts, briefed.sip_status, briefed.answered_at) == ([attempt], 200, at + SECOND)
        transfers.update(conn, transfer.id, status="connected", connected_at=at + 2 * SECOND)
        ended = transfers.update(conn, transfer.id, status="completed", ended_at=at + 3 * SECOND)
        assert ended is not None
        assert ended == replace(
            briefed,
            status="completed",
            connected_at=at + 2 * SECOND,
            ended_at=at + 3 * SECOND,
            states=ended.states,
        )
        assert [each["status"] for each in ended.states] == ["ringing", "briefing", "connected", "completed"]
        assert [each["at"] for each in ended.states[2:]] == [iso(at + 2 * SECOND), iso(at + 3 * SECOND)]
        assert transfers.get(conn, transfer.id) == ended
        assert shown(conn, call.id) == ("warm_briefing", "completed")

    await database.write(check)


@pytest.mark.parametrize("before", OPEN_STATUSES)
@pytest.mark.parametrize("after", get_args(TransferStatus))
async def test_an_open_transfer_can_get_every_status(
    database: Database, organization_id: str, before: TransferStatus, after: TransferStatus
) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        transfer = transfer_of(call, status=before)
        transfers.insert(conn, transfer)
        changed = transfers.update(conn, transfer.id, status=after)
        assert changed is not None
        assert (changed.status, changed.ended_at is None) == (after, after in OPEN_STATUSES)
        assert shown(conn, call.id) == ("warm_briefing", after)

    await database.write(check)


@pytest.mark.parametrize("status", ENDED)
async def test_an_ended_transfer_never_changes(
    database: Database, organization_id: str, status: TransferStatus
) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        transfer = transfer_of(call)
        transfers.insert(conn, transfer)
        ended = transfers.update(conn, transfer.id, status=status, ended_at=call.created_at)
        for after in get_args(TransferStatus):
            assert transfers.update(conn, transfer.id, status=after) is None
        assert transfers.update(conn, transfer.id, sip_status=200, decline_reason="x", ended_at=utc_now()) is None
        assert transfers.update(conn, transfer.id) is None
        assert (transfers.get(conn, transfer.id), shown(conn, call.id)) == (ended, ("warm_briefing", status))

    await database.write(check)


async def test_an_unknown_transfer_changes_nothing(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        assert transfers.update(conn, call.id, status="failed") is None
        assert transfers.update(conn, call.id) is None
        assert shown(conn, call.id) == (None, None)

    await database.write(check)


async def test_a_change_without_status_leaves_the_status(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        transfer = transfer_of(call, status="ringing")
        transfers.insert(conn, transfer)
        assert transfers.update(conn, transfer.id) == transfer
        assert transfers.update(conn, transfer.id, sip_status=486) == replace(transfer, sip_status=486)
        assert shown(conn, call.id) == ("warm_briefing", "ringing")

    await database.write(check)


async def test_a_parent_shows_its_latest_transfer(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        first = transfer_of(call, status="ringing")
        second = transfer_of(call, mode="cold", created_at=first.created_at + SECOND)
        transfers.insert(conn, first)
        transfers.insert(conn, second)
        assert [each.id for each in transfers.of_call(conn, call.id)] == [first.id, second.id]
        assert shown(conn, call.id) == ("cold", "initiated")
        transfers.update(conn, first.id, status="busy")
        assert shown(conn, call.id) == ("cold", "initiated")
        transfers.update(conn, second.id, status="connected")
        assert shown(conn, call.id) == ("cold", "connected")

    await database.write(check)


async def test_a_child_call_is_never_dialled_by_the_queue(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        transfer = transfer_of(call, mode="attended")
        transfers.insert(conn, transfer)
        child = _child(conn, call, transfer)
        assert calls.get(conn, organization_id, transfer.id) == child
        assert (child.direction, child.status, child.customer_number) == ("outbound", "ringing", transfer.number)
        assert (child.parent_call_id, child.agent_id, child.context_variables) == (
            call.id,
            call.agent_id,
            {"name": "Ada"},
        )
        assert (child.transfer_type, child.transfer_status, child.metadata) == ("attended", "initiated", {})
        assert (queued_calls.waiting(conn, ()), calls.transfers_of(conn, call.id)) == ([], [child])
        transfers.update(conn, transfer.id, status="briefing")
        assert (shown(conn, child.id), shown(conn, call.id)) == (("attended", "briefing"),) * 2

    await database.write(check)


async def test_a_child_call_needs_its_transfer(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = parent_call(conn, organization_id)
        with pytest.raises(sa.exc.NoResultFound):
            _child(conn, call, transfer_of(call))

    await database.write(check)


def _child(conn: sa.Connection, call: Call, transfer: Transfer) -> Call:
    return calls.create_child(
        conn,
        call_id=transfer.id,
        parent=call,
        phone_number_id=str(uuid4()),
        provider="sip",
        customer_number=transfer.number,
    )


async def test_open_transfers_of_a_dead_process_are_completed_if_they_were_connected(
    database: Database, organization_id: str
) -> None:
    def check(conn: sa.Connection) -> None:
        made = {}
        for status in get_args(TransferStatus):
            call = parent_call(conn, organization_id)
            made[status] = transfer_of(call)
            transfers.insert(conn, made[status])
            transfers.update(conn, made[status].id, status=status)
        before = {status: transfers.get(conn, made[status].id) for status in ENDED}
        now = utc_now() + timedelta(hours=1)
        assert transfers.close_open(conn, organization_id, now) == len(OPEN_STATUSES)
        assert transfers.close_open(conn, organization_id, now) == 0
        assert before == {status: transfers.get(conn, made[status].id) for status in ENDED}
        for status in OPEN_STATUSES:
            closed = transfers.get(conn, made[status].id)
            assert closed is not None
            assert (closed.status, closed.ended_at) == ("completed" if status == "connected" else "failed", now)
            assert shown(conn, closed.parent_call_id) == ("warm_briefing", closed.status)

    await database.write(check)


async def test_the_transfers_of_a_deleted_call_are_deleted(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call, other = (parent_call(conn, organization_id) for _ in range(2))
        for each in (call, other):
            transfers.insert(conn, transfer_of(each))
            calls.finish(conn, each.id, status="completed", ended_reason="transferred", ended_at=utc_now())
        deletion.delete_call(conn, organization_id, call.id)
        assert conn.execute(sa.select(tables.transfers.c.parent_call_id)).scalars().all() == [other.id]

    await database.write(check)
