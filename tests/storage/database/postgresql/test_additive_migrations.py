"""Servers of `COMPATIBLE_FROM` go on with the tables of `HEAD`: what has been migrated since then only adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from storage.database import database_url, migrations
from storage.database.postgresql.connection import connect, execute, raw_connection
from tests.peers import postgresql

EXCEPTIONS: Final[dict[str, str]] = {}
"""Statements, as in the failure of the test, that servers of `COMPATIBLE_FROM` bear all the same, each with the
reason."""
_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
_OF_A_TABLE: Final = re.compile(
    r"^(?:ALTER TABLE|CREATE (?:UNIQUE )?INDEX .* ON|CREATE (?:CONSTRAINT )?TRIGGER .* ON) (\w+)"
)
_ADDS: Final = (
    re.compile(r"^(?:SELECT|INSERT INTO|UPDATE|COMMENT ON|CREATE TABLE|CREATE INDEX|DROP INDEX) "),
    re.compile(r"^CREATE (?:OR REPLACE )?(?:FUNCTION|(?:CONSTRAINT )?TRIGGER) "),
    re.compile(r"^ALTER TABLE \w+ ADD COLUMN \w+ (?!.*NOT NULL)(?!.*\b(?:UNIQUE|CHECK|REFERENCES|PRIMARY)\b)"),
    re.compile(r"^ALTER TABLE \w+ ADD COLUMN \w+ (?=.*\bDEFAULT\b)(?!.*\b(?:UNIQUE|CHECK|REFERENCES|PRIMARY)\b)"),
)


_FURTHER_ACTION: Final = re.compile(r"^ALTER TABLE .*?, *(?:ADD|ALTER|DROP|RENAME|SET|VALIDATE)\b")
_PIECES: Final = re.compile(r"(\$\w*\$).*?\1|'(?:[^']|'')*'|[^;$']+|\$", re.DOTALL)


def _is_additive(statement: str, new_tables: set[str]) -> bool:
    of = _OF_A_TABLE.match(statement)
    if of is not None and of[1] in new_tables:
        return True
    return any(form.match(statement) for form in _ADDS) and not _FURTHER_ACTION.match(statement)


def _split(script: str) -> list[str]:
    """The statements of a script, each on one line; a `;` in a text or in a function's body ends none."""
    statements, end = [""], 0
    for piece in _PIECES.finditer(script):
        if ";" in script[end : piece.start()]:
            statements.append("")
        statements[-1] += piece[0]
        end = piece.end()
    return [" ".join(each.split()) for each in statements if each.strip()]


@pytest.mark.parametrize(
    ("statement", "additive"),
    [
        ("ALTER TABLE calls ADD COLUMN node VARCHAR", True),
        ("ALTER TABLE calls ADD COLUMN test BOOLEAN DEFAULT false NOT NULL", True),
        ("ALTER TABLE calls ADD COLUMN test BOOLEAN NOT NULL", False),
        ("ALTER TABLE calls ADD COLUMN agent VARCHAR REFERENCES agents (id)", False),
        ("ALTER TABLE calls DROP COLUMN node", False),
        ("ALTER TABLE calls RENAME node TO server", False),
        ("ALTER TABLE calls ALTER COLUMN node SET NOT NULL", False),
        ("ALTER TABLE calls ALTER COLUMN node TYPE INTEGER", False),
        ("ALTER TABLE calls ADD CONSTRAINT uq_calls UNIQUE (node)", False),
        ("CREATE UNIQUE INDEX ix_calls ON calls (node)", False),
        ("CREATE UNIQUE INDEX ix_new ON new (node)", True),
        ("ALTER TABLE new ADD CONSTRAINT uq_new UNIQUE (node)", True),
        ("CREATE INDEX ix_calls ON calls (node)", True),
        ("DROP TABLE calls", False),
        ("DROP TRIGGER changed ON calls", False),
        ("DELETE FROM calls", False),
        ("ALTER TABLE calls ADD COLUMN x TEXT, DROP COLUMN y", False),
        ("ALTER TABLE calls ADD COLUMN x TEXT, ADD COLUMN y TEXT NOT NULL", False),
        ("ALTER TABLE calls ADD COLUMN x NUMERIC(9, 2)", True),
    ],
)
def test_the_rule_finds_statements_that_servers_of_the_version_before_do_not_bear(
    statement: str, additive: bool
) -> None:
    assert _is_additive(statement, {"new"}) is additive


def test_statements_of_a_script_are_looked_at_one_by_one() -> None:
    script = "SELECT ';';DROP TABLE calls ;\nCREATE FUNCTION f() AS $$ BEGIN a; b; END $$; CREATE TABLE x (y TEXT);"
    assert _split(script) == [
        "SELECT ';'",
        "DROP TABLE calls",
        "CREATE FUNCTION f() AS $$ BEGIN a; b; END $$",
        "CREATE TABLE x (y TEXT)",
    ]


@pytest.fixture(scope="module")
def conn() -> Iterator[sa.Connection]:
    """A connection to a database at `COMPATIBLE_FROM`."""
    with closing(connect(database_url.parse(postgresql.server().empty_database()))) as conn:
        _upgrade(conn, migrations.COMPATIBLE_FROM)
        yield conn


def _upgrade(conn: sa.Connection, revision: str) -> None:
    with conn.begin():
        execute(raw_connection(conn), "SET LOCAL idle_in_transaction_session_timeout = 0")
        settings = migrations.alembic_settings("postgresql")
        settings.attributes["connection"] = conn
        command.upgrade(settings, revision)


def _statements(conn: sa.Connection) -> list[str]:
    """Migrate to the newest revision; returns its statements."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.extend(_split(statement))

    sa.event.listen(conn, "before_cursor_execute", note)
    _upgrade(conn, "head")
    sa.event.remove(conn, "before_cursor_execute", note)
    return [each for each in found if "alembic_version" not in each and not each.startswith("SELECT pg_catalog")]


def test_migrations_since_the_oldest_compatible_revision_only_add(conn: sa.Connection) -> None:
    script = ScriptDirectory.from_config(migrations.alembic_settings("postgresql"))
    assert script.get_revision(migrations.COMPATIBLE_FROM) is not None
    before = sa.MetaData()
    with conn.begin():
        before.reflect(conn)
    statements = _statements(conn)
    new_tables = {found[1] for each in statements if (found := _TABLE.match(each))}
    refused = [each for each in statements if not _is_additive(each, new_tables) and each not in EXCEPTIONS]
    assert refused == [], "take another form, give its reason in EXCEPTIONS, or raise COMPATIBLE_FROM"
    _check_rows_of(before, conn)


def _check_rows_of(before: sa.MetaData, conn: sa.Connection) -> None:
    """A row of each table is stored and read as before."""
    before.remove(before.tables["alembic_version"])
    with conn.begin() as transaction:
        execute(raw_connection(conn), "SET LOCAL session_replication_role = replica")  # references are not checked
        for table in before.tables.values():
            row = {each.name: _value(each) for each in table.columns if not each.computed}
            conn.execute(sa.insert(table).values(row))
            stored = conn.execute(sa.select(table)).mappings().one()
            assert {name: stored[name] for name in row} == row, table.name
        transaction.rollback()


def _value(column: sa.Column[Any]) -> Any:
    match column.type:
        case sa.Boolean():
            return True
        case sa.Integer() | sa.Float() | sa.Numeric():
            return 7
        case sa.LargeBinary():
            return b"x"
        case sa.JSON():
            return {"a": 1}
        case _:
            return "x"
