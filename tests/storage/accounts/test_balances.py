"""Balances are exact, and every change is recorded."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from config.errors import Conflict
from storage import tables
from storage.accounts import balances, organizations
from storage.accounts.organizations import Organization
from storage.database import migrations
from storage.database.database import Database
from storage.database.sqlite import migrate


def _paid(conn: sa.Connection, balance: str = "0") -> Organization:
    return organizations.create(conn, "paying", plan="paid", balance=Decimal(balance))


def _stored(conn: sa.Connection) -> Decimal:
    found = organizations.by_name(conn, "paying")
    assert found is not None
    return found.balance


async def test_many_small_amounts_add_up_exactly(database: Database) -> None:
    """As floats they would be 20.000000000000014."""

    def work(conn: sa.Connection) -> Decimal:
        paid = _paid(conn)
        for _ in range(200):
            balances.change(conn, paid.id, Decimal("0.1"), made_by="server")
        return _stored(conn)

    assert await database.write(work) == Decimal(20)


async def test_a_large_balance_is_exact_to_the_millionth(database: Database) -> None:
    amounts = [Decimal(each) for each in ("0.000001", "-0.000001", "999999999999.999999", "-123456789012.345678")]

    def work(conn: sa.Connection) -> list[Decimal]:
        for amount in amounts:
            organizations.create(conn, str(amount), plan="paid", balance=amount)
        return [each.balance for each in organizations.all_of(conn) if each.plan == "paid"]

    assert sorted(await database.write(work)) == sorted(amounts)


async def test_a_change_records_the_balance_after_it_its_author_and_its_note(database: Database) -> None:
    def work(conn: sa.Connection) -> list[tuple[Decimal, Decimal, str, str | None, str | None]]:
        paid = _paid(conn)
        balances.change(conn, paid.id, Decimal("2.5"), made_by="kim", note="invoice 7")
        balances.change(conn, paid.id, Decimal("-3"), made_by="server", call_id="c")
        rows = balances.last_changes(conn, paid.id, 10)
        return [(row.amount, row.balance_after, row.made_by, row.note, row.call_id) for row in rows]

    assert await database.write(work) == [
        (Decimal("2.5"), Decimal("2.5"), "kim", "invoice 7", None),
        (Decimal(-3), Decimal("-0.5"), "server", None, "c"),
    ]


async def test_last_changes_returns_the_newest_of_one_organization(database: Database) -> None:
    def work(conn: sa.Connection) -> list[Decimal]:
        paid = _paid(conn)
        other = organizations.create(conn, "other", plan="paid")
        for amount in range(1, 6):
            balances.change(conn, paid.id, Decimal(amount), made_by="server")
            balances.change(conn, other.id, Decimal(-amount), made_by="server")
        return [row.amount for row in balances.last_changes(conn, paid.id, 3)]

    assert await database.write(work) == [3, 4, 5]


async def test_a_call_is_billed_once(database: Database) -> None:
    def pay(conn: sa.Connection, organization_id: str) -> None:
        balances.change(conn, organization_id, Decimal(-1), made_by="server", call_id="c")

    paid = await database.write(lambda conn: _paid(conn, "5"))
    await database.write(lambda conn: pay(conn, paid.id))
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(lambda conn: pay(conn, paid.id))
    assert await database.read(_stored) == 4


async def test_a_change_that_is_too_large_changes_nothing(database: Database) -> None:
    paid = await database.write(lambda conn: _paid(conn, "1"))
    with pytest.raises(Conflict, match="at most"):
        await database.write(lambda conn: balances.change(conn, paid.id, balances.MAX_BALANCE, made_by="kim"))
    assert await database.read(_stored) == 1
    assert await database.read(lambda conn: balances.last_changes(conn, paid.id, 10)) == []


async def test_a_call_is_billed_beyond_the_lower_limit_of_a_balance(database: Database) -> None:
    def pay(conn: sa.Connection, call_id: str) -> Decimal:
        found = organizations.by_name(conn, "paying")
        assert found is not None
        return balances.change(conn, found.id, -balances.MAX_BALANCE, made_by="server", call_id=call_id).balance_after

    await database.write(_paid)
    assert await database.write(lambda conn: pay(conn, "c")) == -balances.MAX_BALANCE
    assert await database.write(lambda conn: pay(conn, "d")) == -2 * balances.MAX_BALANCE


async def test_concurrent_changes_all_count(database: Database) -> None:
    paid = await database.write(_paid)
    work = (
        database.write(lambda conn: balances.change(conn, paid.id, Decimal("0.000001"), made_by="server"))
        for _ in range(50)
    )
    left = [change.balance_after for change in await asyncio.gather(*work)]
    assert sorted(left) == [Decimal(each) / 1_000_000 for each in range(1, 51)]
    assert await database.read(_stored) == Decimal("0.00005")


async def test_concurrent_changes_of_two_processes_all_count(database: Database) -> None:
    """A server that bills calls, while an operator tops up."""
    paid = await database.write(_paid)
    beside = Database(database.url.render_as_string())
    await beside.open()
    try:
        work = (
            each.write(partial(balances.change, organization_id=paid.id, amount=Decimal(by), made_by="server"))
            for _ in range(15)
            for each, by in ((database, "-0.3"), (beside, "0.7"))
        )
        await asyncio.gather(*work)
        assert await beside.read(_stored) == await database.read(_stored) == Decimal(6)
        changes = await database.read(lambda conn: balances.last_changes(conn, paid.id, 99))
    finally:
        await beside.close()
    sums = [change.balance_after - change.amount for change in changes]
    assert sums == [Decimal(0), *(change.balance_after for change in changes[:-1])]


def test_migration_keeps_balances_exact(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    amounts = ("0", "0.1", "12.5", "-3.000001", "1234567.654321")
    with engine.begin() as conn:
        settings = migrations.alembic_settings()
        settings.attributes["connection"] = conn
        command.upgrade(settings, "0006")
        for amount in amounts:
            sql = "INSERT INTO organizations (id, name, plan, balance, created_at) VALUES (?, ?, 'paid', ?, 1)"
            conn.exec_driver_sql(sql, (amount, amount, float(amount)))
    migrate.migrate(path)
    with engine.connect() as conn:
        stored = {each.name: each.balance for each in organizations.all_of(conn)}
        changes = {each.id: balances.last_changes(conn, each.id, 9) for each in organizations.all_of(conn)}
    assert stored == {amount: Decimal(amount) for amount in amounts}
    assert changes.pop("0") == []
    assert {name: [row.balance_after for row in rows] for name, rows in changes.items()} == {
        amount: [Decimal(amount)] for amount in amounts[1:]
    }
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT typeof(balance) FROM organizations GROUP BY 1").fetchall() == [("integer",)]
    assert "balance" in tables.organizations.c
