"""A database that cannot be opened: an outage is told from wrong settings, whatever language the server speaks."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.engine import make_url

from config.errors import StartupError
from storage.database.database import Database
from storage.database.errors import DatabaseAway
from storage.database.postgresql import connection_thread, engine
from storage.database.postgresql.connection import connect, execute, raw_connection
from storage.database.postgresql.migrate import migrate
from storage.database.postgresql.outage import is_outage
from tests.peers.ports import free_port
from tests.peers.postgresql import PostgresqlServer

ROLES = """
    CREATE ROLE with_password LOGIN PASSWORD 'right'; CREATE ROLE rejected LOGIN; CREATE ROLE plain LOGIN;
    CREATE ROLE limited LOGIN CONNECTION LIMIT 0; CREATE DATABASE own; CREATE DATABASE closed; CREATE DATABASE full_up
"""
CLIENTS = """local all all trust
host all with_password 127.0.0.1/32 scram-sha-256
host all rejected 127.0.0.1/32 reject
host all trunkline,plain,limited,nobody 127.0.0.1/32 trust
"""
REFUSALS = [
    ("trunkline", "no_such_database", "3D000", StartupError),
    ("nobody", "postgres", "28000", StartupError),
    ("rejected", "postgres", "28000", StartupError),
    ("without_an_entry", "postgres", "28000", StartupError),
    ("with_password:wrong", "postgres", "28P01", StartupError),
    ("plain", "own", "42501", StartupError),
    ("trunkline", "closed", "55000", StartupError),
    ("limited", "postgres", "53300", DatabaseAway),
    ("plain", "full_up", "53300", DatabaseAway),
]


@contextmanager
def server_with_language(language: str | None) -> Iterator[PostgresqlServer]:
    started = PostgresqlServer(Path(tempfile.mkdtemp(prefix="postgresql-")), free_port(), language=language)
    try:
        for statement in ROLES.split(";"):
            started.execute(statement)
        started.execute("REVOKE CONNECT ON DATABASE own FROM public")
        started.execute("ALTER DATABASE closed ALLOW_CONNECTIONS false")
        started.execute("ALTER DATABASE full_up CONNECTION LIMIT 0")
        Path(started.folder, "data", "pg_hba.conf").write_text(CLIENTS)
        started.stop()
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """A server that speaks German."""
    with server_with_language("de_DE") as started:
        yield started


async def refusal(url: str) -> StartupError:
    database = Database(url)
    with pytest.raises(StartupError) as caught:
        await database.open()
    await database.close()
    return caught.value


def url_of(server: PostgresqlServer, user: str = "trunkline", database: str = "postgres") -> str:
    return server.url(database).replace("trunkline@", f"{user}@")


def test_the_server_of_these_tests_speaks_german_where_that_can_be_compiled(server: PostgresqlServer) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        server.value("SELECT * FROM nowhere")
    translated = shutil.which("localedef") and Path("/usr/share/i18n/locales/de_DE").exists()
    assert ("existiert nicht" if translated else "does not exist") in str(caught.value)


@pytest.mark.parametrize(("user", "target", "sqlstate", "kind"), REFUSALS)
async def test_a_refusal_is_told_by_its_code(
    server: PostgresqlServer, user: str, target: str, sqlstate: str, kind: type[StartupError]
) -> None:
    error = await refusal(url_of(server, user, target))
    assert (type(error), f":  {sqlstate}: " in str(error)) == (kind, True), error
    assert "LOCATION" not in str(error)


async def test_what_is_refused_before_the_server_responds_is_told_too(server: PostgresqlServer) -> None:
    for url, kind in (
        (f"postgresql+psycopg://trunkline@127.0.0.1:{free_port()}/x", DatabaseAway),
        ("postgresql+psycopg://trunkline@/x?host=/nowhere", DatabaseAway),
        ("postgresql+psycopg://trunkline@nosuch.invalid/x", StartupError),
        (f"{url_of(server)}?sslmode=require", StartupError),
        (f"{url_of(server)}?sslmode=verify-full&sslrootcert=/nowhere", StartupError),
        (f"{url_of(server)}?sslmode=nonsense", StartupError),
        (url_of(server, "with_password"), StartupError),
    ):
        assert type(await refusal(url)) is kind, url


async def test_a_server_that_does_not_respond_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://trunkline@127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=1"
        error = await refusal(url)
    assert (type(error), "timeout" in str(error)) == (DatabaseAway, True)


async def test_a_server_that_stops_or_recovers_is_away() -> None:
    with server_with_language("de_DE") as server:
        with psycopg.connect(host=str(server.folder), port=str(server.port), user="trunkline", dbname="postgres"):
            await asyncio.to_thread(server.begin_smart_stop)
            stopping = await refusal(url_of(server))
        await asyncio.to_thread(server.wait_stopped)
        stopped = await refusal(url_of(server))
        await asyncio.to_thread(server.start_as_standby)
        recovering = await refusal(url_of(server))
    assert [type(each) for each in (stopping, stopped, recovering)] == [DatabaseAway] * 3
    assert ":  57P03: " in str(stopping)
    assert ":  57P03: " in str(recovering)


async def test_a_server_that_goes_away_before_all_connections_are_up_is_away(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = migrate

    def migrate_and_leave(url: Any) -> None:
        real(url)
        monkeypatch.setattr(connection_thread, "connect", lambda _: connect(make_url(unreachable)))

    unreachable = f"postgresql+psycopg://trunkline@127.0.0.1:{free_port()}/x"
    monkeypatch.setattr(engine, "migrate", migrate_and_leave)
    assert type(await refusal(await asyncio.to_thread(server.take_database))) is DatabaseAway


async def test_a_session_that_is_lost_without_a_word_is_an_outage(server: PostgresqlServer) -> None:
    def lose(use: Callable[[psycopg.Connection[Any]], object]) -> BaseException:
        core = connect(make_url(url_of(server)))
        raw = raw_connection(core)
        with socket.socket(fileno=raw.fileno()) as plain:
            plain.shutdown(socket.SHUT_RDWR)
            plain.detach()
        with pytest.raises(Exception) as caught:
            use(raw)
        core.invalidate()
        core.close()
        return caught.value

    for use in (lambda raw: raw.execute("SELECT 1"), lambda raw: execute(raw, "SELECT 1")):
        assert is_outage(await asyncio.to_thread(lose, use))


@pytest.mark.parametrize(
    ("text", "away"),
    [
        ('connection failed: connection to server at "db", port 5432 failed: No route to host', True),
        ('connection is bad: connection to server at "db", port 5432 failed: Network is unreachable', True),
        ('connection failed: connection to server at "db", port 5432 failed: server closed the connection', True),
        ('connection failed: connection to server at "db", port 5432 failed: SSL SYSCALL error: EOF detected', True),
        ('connection failed: connection to server at "db", port 5432 failed: session is read-only', True),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", True),
        ("failed to resolve host 'db': [Errno -2] Name or service not known", False),
        ('connection is bad: invalid port number: "99999"', False),
        ('connection failed: connection to server at "db" failed: SSL error: certificate verify failed', False),
        ('connection is bad: connection to server on socket "/s" failed: Permission denied', False),
    ],
)
def test_errors_without_a_code_are_told_by_the_text_of_the_client(text: str, away: bool) -> None:
    assert is_outage(psycopg.OperationalError(text)) == away


def test_errors_of_a_session_that_is_up_are_told_by_their_code() -> None:
    others: list[Any] = [None, ValueError("failed: Connection refused"), psycopg.ProgrammingError("invalid option")]
    assert [is_outage(each) for each in (*others, errors.UndefinedTable("x"))] == [False] * 4
    away = (errors.AdminShutdown, errors.CannotConnectNow, errors.ReadOnlySqlTransaction, errors.QueryCanceled)
    assert all(is_outage(each("x")) for each in away)
