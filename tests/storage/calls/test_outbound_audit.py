"""Audit log of outbound calls: pages, deletion of old rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations
from storage.calls import outbound_audit
from storage.calls.outbound_audit import AttemptWithCall, DialRequest
from storage.database.database import Database

START = datetime(2026, 11, 21, tzinfo=UTC)


def _note(conn: sa.Connection, owner: str, at: datetime, destination: str) -> None:
    request = DialRequest(organization_id=owner, phone_number_id=None, destination=destination, client="192.0.2.9")
    attempt = outbound_audit.record(conn, request, "refused_prefix", detail="far away")
    table = tables.outbound_attempts
    conn.execute(sa.update(table).where(table.c.id == attempt.id).values(created_at=at))


def _pieces(conn: sa.Connection, owner: str, since: datetime, limit: int) -> list[list[AttemptWithCall]]:
    found, last = [], ""
    while piece := outbound_audit.page_after(conn, owner, since, last, limit=limit):
        found.append(list(piece))
        since, last = piece[-1].attempt.created_at, piece[-1].attempt.id
    return found


async def test_pages_of_the_audit_log_are_complete_and_in_order(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        other = organizations.create(conn, "other").id
        for each in range(7):
            _note(conn, organization_id, START + timedelta(seconds=each // 3), str(each))  # several at one moment
            _note(conn, other, START, "theirs")
        pieces = _pieces(conn, organization_id, START, 2)
        attempts = [each for piece in pieces for each in piece]
        assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
        assert sorted(each.attempt.destination for each in attempts) == [str(each) for each in range(7)]
        times = [each.attempt.created_at for each in attempts]
        assert times == sorted(times)
        assert (attempts[0].attempt.api_key_prefix, attempts[0].attempt.number, attempts[0].call_status) == (
            None,
            None,
            None,
        )
        [late] = _pieces(conn, organization_id, START + timedelta(seconds=2), 9)
        assert [each.attempt.destination for each in late] == ["6"]

    await database.write(check)


async def test_old_rows_are_deleted_oldest_first(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        for each in range(5):
            _note(conn, organization_id, START + timedelta(days=each), str(each))
        before = START + timedelta(days=3)
        assert outbound_audit.delete_before(conn, organization_id, before, limit=2) == 2
        [left] = _pieces(conn, organization_id, START, 9)
        assert [each.attempt.destination for each in left] == ["2", "3", "4"]
        assert [outbound_audit.delete_before(conn, organization_id, before, limit=2) for _ in range(2)] == [1, 0]

    await database.write(check)
