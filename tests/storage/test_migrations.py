"""Migrations: resulting tables, concurrent starts, data of earlier versions."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from config.errors import StartupError
from storage.accounts import audit_log
from storage.agents import agents, versions
from storage.calls import transfers
from storage.database import migrations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.tables import metadata
from storage.tables.columns import EPOCH
from storage.webhooks import attempt_claims, deliveries
from storage.webhooks.deliveries import DeliveryStatus

T = TypeVar("T")
ONE_MS = timedelta(milliseconds=1)


def _open(path: Path) -> None:
    async def once() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.open()
        await database.close()

    asyncio.run(once())


def _same_tables(path: Path) -> bool:
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    opts = {"compare_type": True, "include_name": lambda name, *_: not str(name).startswith("knowledge_index")}
    with engine.connect() as conn:
        return not compare_metadata(MigrationContext.configure(conn, opts=opts), metadata)


def test_migrations_of_an_empty_file_create_the_tables_of_the_metadata(tmp_path: Path) -> None:
    _open(tmp_path / "new.db")
    assert _same_tables(tmp_path / "new.db")


def test_head_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(migrations.alembic_settings()).get_heads() == [migrations.HEAD]


def test_a_second_open_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "twice.db"
    _open(path)
    before = path.read_bytes()
    _open(path)
    assert path.read_bytes() == before


def test_a_new_database_file_has_no_permissions_for_others(tmp_path: Path) -> None:
    _open(tmp_path / "mine.db")
    assert (tmp_path / "mine.db").stat().st_mode & 0o077 == 0


STARTER = """
import sys
from pathlib import Path
import alembic.command, alembic.config, sqlalchemy.dialects.sqlite
from storage.database.sqlite.migrate import migrate
print("loaded", flush=True)
sys.stdin.read()
migrate(Path(sys.argv[1]))
"""


def test_concurrent_starts_of_several_processes_all_migrate(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    command = [sys.executable, "-c", STARTER, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with ExitStack() as started:
        starts = [
            started.enter_context(
                subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(4)
        ]
        for start in starts:
            assert start.stdout is not None
            assert start.stdout.readline() == b"loaded\n"
        for start in starts:
            assert start.stdin is not None
            start.stdin.close()
        assert [start.wait() for start in starts] == [0, 0, 0, 0]
    assert _same_tables(path)


def test_a_failed_migration_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broken.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE calls (id TEXT)")
    with pytest.raises(StartupError, match="already exists"):
        _open(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("calls",)]


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "future.db"
    _open(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StartupError, match=r"newer version of Trunkline \(revision 9999, this version has"):
        _open(path)


def _version(path: Path, revision: str = "0001") -> None:
    """Create a database file of this revision."""
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.begin() as conn:
        settings = migrations.alembic_settings()
        settings.attributes["connection"] = conn
        command.upgrade(settings, revision)


CALL_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO agents (id, organization_id, name, name_folded, voice_speed, voice_stability, allow_end_call, is_active,
                    post_call_summary_enabled, post_call_extraction_schema, first_speaker, agent_greeting_enabled,
                    first_message_uninterruptible, first_message_delay, max_call_duration_seconds,
                    background_sound_volume, transfer_targets, created_at, updated_at) VALUES
    ('a', 'o', 'a', 'a', 1, 1, 1, 1, 0, '[]', 'agent', 0, 0, 0, 60, 1,
     '[{"name": "Sales", "description": "", "number": "12", "mode": "cold"}]', 1, 1);
INSERT INTO phone_numbers (id, organization_id, number, provider, metadata, carrier_credentials_encrypted, created_at,
                           updated_at) VALUES ('n', 'o', '1', 'sip', '{}', '{}', 1, 1);
INSERT INTO calls (id, organization_id, direction, status, customer_number, recorded, turn_count, transcript,
                   context_variables, metadata, created_at, updated_at) VALUES
    ('c', 'o', 'inbound', 'completed', '1', 0, 0, '[]', '{}', '{}', 1, 1);
"""


def test_migration_gives_earlier_rows_the_defaults_of_transfers(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0014")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(CALL_OF_AN_EARLIER_VERSION)
    _open(path)
    assert _same_tables(path)

    def look(conn: sa.Connection) -> None:
        agent, number = agents.get(conn, "o", "a"), phone_numbers.get(conn, "o", "n")
        assert agent is not None
        assert number is not None
        assert (agent.record_after_transfer, agent.stay_on_call) == (True, False)
        assert agent.transfer_targets[0]["mode"] == "cold"
        assert (agent.voicemail_detection, agent.voicemail_message) == ("off", None)
        assert (agent.recording_enabled, agent.recording_announcement) == (True, None)
        assert (number.sip_transfer_method, number.sip_transfer_caller_id) == ("auto", "own")
        assert transfers.of_call(conn, "c") == []
        first = versions.get(conn, "a", 1)
        assert first is not None
        assert (agent.version, first.author, first.changes) == (1, None, [])
        assert versions.differing(agent, first.fields) == []

    asyncio.run(_read(path, look))


CALLS_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO phone_numbers (id, organization_id, number, provider, metadata, carrier_credentials_encrypted, created_at,
                           updated_at) VALUES
    ('n', 'o', '+4930123456', 'sip', '{}', '{}', 1, 1000);
INSERT INTO calls (id, organization_id, phone_number_id, direction, status, customer_number, recorded, turn_count,
                   transcript, context_variables, metadata, created_at, updated_at)
    SELECT value ->> 0, 'o', value ->> 1, value ->> 2, 'completed', '100', 0, 0, '[]', '{}', '{}', value ->> 3, 2000
    FROM json_each('[["in", "n", "inbound", 1000], ["before the change", "n", "inbound", 999],
                     ["number deleted", "m", "inbound", 1000], ["out", "n", "outbound", 1]]');
"""


def test_migration_gives_calls_the_number_that_was_dialled_where_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0020")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(CALLS_OF_AN_EARLIER_VERSION)
    _open(path)
    assert _same_tables(path)
    with closing(sqlite3.connect(path)) as conn:
        called = dict(conn.execute("SELECT id, called_number FROM calls"))
    assert called == {"in": "+4930123456", "before the change": None, "number deleted": None, "out": "100"}


WEB_CALLS_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO calls (id, organization_id, provider, direction, status, customer_number, recorded, turn_count, transcript,
                   context_variables, metadata, created_at, updated_at)
    SELECT value ->> 0, 'o', value ->> 1, 'inbound', 'completed', 'web', 0, 0, '[]', '{}', value ->> 2, 1, 1
    FROM json_each('[["web", "web", {"test": true}], ["told", "web", {"test": true, "deliverWebhook": true}],
                     ["sip", "sip", {"test": true}]]');
"""


def test_migration_marks_web_calls_as_test_calls(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0026")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(WEB_CALLS_OF_AN_EARLIER_VERSION)
    _open(path)
    with closing(sqlite3.connect(path)) as conn:
        marks = {row[0]: row[1:] for row in conn.execute("SELECT id, test, deliver_webhook FROM calls")}
    assert marks == {"web": (1, 0), "told": (1, 1), "sip": (0, 1)}


CALLS = ("new", "tried", "done", "given up")
WEBHOOKS_OF_THE_FIRST_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO calls (id, organization_id, direction, status, customer_number, recorded, turn_count, transcript,
                   context_variables, metadata, created_at, updated_at)
    SELECT value, 'o', 'inbound', 'completed', '1', 0, 0, '[]', '{}', '{}', 1, 1
    FROM json_each('["new", "tried", "done", "given up"]');
INSERT INTO webhook_deliveries (id, organization_id, call_id, event, url, body, status, attempts, next_attempt_at,
                                created_at) VALUES
    ('d new', 'o', 'new', 'call.completed', 'https://x', x'7b7d', 'pending', 0, 1000, 1000),
    ('d tried', 'o', 'tried', 'call.completed', 'https://x', x'7b7d', 'pending', 2, 5000, 1000),
    ('d done', 'o', 'done', 'call.completed', 'https://x', x'7b7d', 'succeeded', 1, NULL, 1000),
    ('d given up', 'o', 'given up', 'call.completed', 'https://x', x'7b7d', 'failed', 1, NULL, 1000);
INSERT INTO webhook_attempts (id, delivery_id, attempt, status, response_status, duration_ms, manual, created_at) VALUES
    ('a1', 'd tried', 1, 'failed', 500, 20, 0, 1001),
    ('a2', 'd tried', 2, 'failed', NULL, 300, 0, 2000),
    ('a3', 'd done', 1, 'succeeded', 200, 20, 0, 1001),
    ('a4', 'd given up', 1, 'failed', 404, 20, 0, 1001);
"""


def test_migration_keeps_due_times_of_pending_webhooks_of_the_first_version(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(WEBHOOKS_OF_THE_FIRST_VERSION)
    _open(path)
    assert _same_tables(path)

    def look(conn: sa.Connection) -> tuple[dict[str, list[tuple[int, DeliveryStatus, int | None]]], list[str]]:
        pages = {each: deliveries.page(conn, each, limit=9, offset=0).items for each in CALLS}
        attempts = {
            call_id: [(each.attempt.attempt, each.attempt.status, _ms(each.attempt.next_attempt_at)) for each in items]
            for call_id, items in pages.items()
        }
        return attempts, [each.delivery.body.decode() for each in deliveries.due_attempts(conn, EPOCH + 5000 * ONE_MS)]

    attempts, sent = asyncio.run(_read(path, look))
    assert [each.destination for each in asyncio.run(_read(path, attempt_claims.due_destinations))] == ["x:443"]
    assert attempts == {
        "new": [(1, "pending", 1000)],
        "tried": [(3, "pending", 5000), (2, "failed", 5000), (1, "failed", None)],
        "done": [(1, "succeeded", None)],
        "given up": [(1, "failed", None)],
    }
    assert sent == ["{}", "{}"]


NUMBERS_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO phone_numbers (id, organization_id, number, provider, sip_mode, source, sip_outbound_proxy, metadata,
                           carrier_credentials_encrypted, created_at, updated_at) VALUES
    ('bare', 'o', '1', 'sip', NULL, NULL, 'edge.example', '{}', '{}', 1, 1),
    ('pbx', 'o', '2', 'sip', 'ip_allowlist', '192.0.2.1', 'edge.example', '{}', '{}', 1, 1),
    ('carrier', 'o', '3', 'sip', 'registration', 'sip.example', 'sip:Edge.example:5080', '{}', '{}', 1, 1),
    ('same', 'o', '4', 'sip', 'registration', 'sip.example', 'SIP.example', '{}', '{}', 1, 1);
"""


def test_migration_gives_numbers_their_source_and_outbound_proxy_as_sources(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0004")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(NUMBERS_OF_AN_EARLIER_VERSION)
    _open(path)
    with closing(sqlite3.connect(path)) as conn:
        stored = conn.execute("SELECT phone_number_id, source FROM phone_number_sources ORDER BY 1, 2").fetchall()
    assert stored == [
        ("carrier", "edge.example"),
        ("carrier", "sip.example"),
        ("pbx", "192.0.2.1"),
        ("same", "sip.example"),
    ]


TRUNKS_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1), ('d', 'demo', 'free',
                                                                                                  0, 2);
INSERT INTO api_keys (id, organization_id, prefix, sha256, name, requests_per_minute, created_at) VALUES
    ('k', 'd', 'tk_1', 'x', 'demo', 6000, 1);
INSERT INTO phone_numbers (id, organization_id, number, provider, sip_mode, source, sip_ip, sip_proxy,
                           sip_outbound_proxy, sip_sources, metadata, carrier_credentials_encrypted, created_at,
                           updated_at) VALUES
    ('bare', 'o', '1', 'sip', NULL, NULL, NULL, NULL, NULL, '[]', '{}', '{}', 1, 1),
    ('pbx', 'o', '2', 'sip', 'ip_allowlist', '192.0.2.1', '192.0.2.1', NULL, 'edge.example',
     '["198.51.100.7/24", "SBC.example."]', '{}', '{}', 1, 1),
    ('carrier', 'o', '3', 'sip', 'registration', 'sip.example', NULL, 'sip:Sip.example:5080', NULL, '[]', '{}', '{}', 1,
     1);
INSERT INTO phone_number_sources (phone_number_id, source, since) VALUES ('pbx', '192.0.2.1', 1);
"""


def test_migration_gives_numbers_the_trunks_that_they_named_and_marks_the_demo_organization(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0012")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(TRUNKS_OF_AN_EARLIER_VERSION)
    _open(path)
    assert _same_tables(path)
    with closing(sqlite3.connect(path)) as conn:
        stored = dict(conn.execute("SELECT id, trunks_taken_over FROM phone_numbers").fetchall())
        kept = conn.execute("SELECT phone_number_id, source, since FROM phone_number_sources").fetchall()
    assert {number: json.loads(trunks) for number, trunks in stored.items()} == {
        "bare": [],
        "pbx": ["192.0.2.1", "198.51.100.0/24", "edge.example", "sbc.example"],
        "carrier": ["sip.example"],
    }
    assert kept == [("pbx", "192.0.2.1", 1)]
    assert asyncio.run(_read(path, trunk_grants.count_organizations)) == 1


DOCUMENTS_OF_AN_EARLIER_VERSION = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO knowledge_documents (id, organization_id, agent_id, name, filename, mime_type, file_size, sha256, status,
                                 chunk_count, created_at, updated_at) VALUES
    ('one', 'o', 'a', 'One', 'f', 'text/plain', 1, 'same', 'ready', 1, 1, 1),
    ('two', 'o', 'a', 'Two', 'f', 'text/plain', 1, 'same', 'ready', 1, 2, 2);
INSERT INTO knowledge_chunks (id, document_id, position, content) VALUES (1, 'one', 0, 'x'), (2, 'two', 0, 'x');
"""


def test_migration_gives_each_document_its_own_content(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0009")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(DOCUMENTS_OF_AN_EARLIER_VERSION)
    _open(path)
    assert _same_tables(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        assert conn.execute("SELECT id, content_id FROM knowledge_documents ORDER BY id").fetchall() == [
            ("one", "one"),
            ("two", "two"),
        ]
        conn.execute("DELETE FROM knowledge_documents WHERE id = 'one'")
        assert conn.execute("SELECT document_id FROM knowledge_removals").fetchall() == [("one",)]


def test_migration_keeps_entries_of_the_audit_log_and_what_they_are_about(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0029")
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "INSERT INTO audit_entries (id, organization_id, created_at, actor, action, call_id, detail) VALUES "
            "('1', NULL, 5, 'root', 'listen', 'c', NULL), ('2', NULL, 6, 'root', 'user.create', NULL, 'anna')"
        )
    _open(path)
    assert _same_tables(path)
    stored = asyncio.run(_read(path, lambda conn: audit_log.entries_since(conn, None, EPOCH)))
    assert [(each.actor, each.actor_type, each.action, each.call_id, each.fields, each.detail) for each in stored] == [
        ("root", None, "listen", "c", [], None),
        ("root", None, "user.create", None, [], "anna"),
    ]


def _ms(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // ONE_MS


async def _read(path: Path, work: Callable[[sa.Connection], T]) -> T:
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    try:
        return await database.read(work)
    finally:
        await database.close()


WHAT_AN_EARLIER_VERSION_STORED = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO agents (id, organization_id, name, name_folded, voice_speed, voice_stability, allow_end_call, is_active,
                    post_call_summary_enabled, post_call_extraction_schema, first_speaker, agent_greeting_enabled,
                    first_message_uninterruptible, first_message_delay, max_call_duration_seconds,
                    background_sound_volume, transfer_targets, created_at, updated_at) VALUES
    ('a', 'o', 'a', 'a', 1, 1, 1, 1, 0, '[]', 'agent', 0, 0, 0, 60, 1, '[]', 1, 1);
INSERT INTO knowledge_documents (id, content_id, organization_id, agent_id, name, filename, mime_type, file_size,
                                 sha256, status, chunk_count, created_at, updated_at) VALUES
    ('d', 'd', 'o', 'a', 'd', 'd', 'text/plain', 70, 'x', 'ready', 0, 1, 1),
    ('e', 'e', 'o', 'a', 'e', 'e', 'text/plain', 30, 'y', 'failed', 0, 1, 1);
INSERT INTO background_sounds (id, organization_id, name, file_size, duration_ms, created_at) VALUES
    ('s', 'o', 's', 1, 1000, 1), ('preset', NULL, 'p', 1, 1000, 1);
INSERT INTO api_keys (id, organization_id, prefix, sha256, created_at, revoked_at) VALUES
    ('k', 'o', 'k', 'k', 1, NULL), ('l', 'o', 'l', 'l', 1, 2);
INSERT INTO idempotent_answers (organization_id, method, path, key, status, body, created_at) VALUES
    ('o', 'POST', '/v1/agents', 'key', 201, x'0102', 1);
"""


def test_migration_counts_stored_rows_toward_quotas_and_deletion_frees_them(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0012")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(WHAT_AN_EARLIER_VERSION_STORED)
    _open(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA foreign_keys=ON")
        assert dict(conn.execute("SELECT quota, used FROM quota_usage")) == {
            "agents": 1, "documents": 2, "document_bytes": 100, "sounds": 1, "sound_bytes": 32000, "api_keys": 1,
            "idempotent_answer_bytes": 2 + len("/v1/agents") + len("key"),
        }  # fmt: skip
        conn.execute("DELETE FROM agents")
        conn.execute("DELETE FROM idempotent_answers")
        conn.execute("UPDATE api_keys SET revoked_at = 3")
        left = {quota for quota, used in conn.execute("SELECT quota, used FROM quota_usage") if used}
        assert left == {"sounds", "sound_bytes"}


ENDED_CALLS_WITHOUT_FIGURES = """
INSERT INTO organizations (id, name, plan, balance, created_at) VALUES ('o', 'o', 'free', 0, 1);
INSERT INTO calls (id, organization_id, agent_id, phone_number_id, provider, direction, status, customer_number,
                   duration_seconds, cost, recorded, turn_count, transcript, timeline, ended_reason, context_variables,
                   metadata, created_at, updated_at, ended_at) VALUES
    ('a', 'o', 'one', 'n', 'sip', 'inbound', 'completed', '1', 60, 0.5, 0, 3, '[]',
     '[{"response_gap_ms": 710, "interrupted": true}, {"response_gap_ms": -3, "interrupted": false},
       {"response_gap_ms": null, "interrupted": false}, {"answer": "human"}]', 'busy', '{}', '{}', 1800000, 1, 2),
    ('b', 'o', NULL, 'n', 'sip', 'outbound', 'failed', '1', 0, NULL, 0, 0, '[]', '[]', 'error', '{}', '{}', 1, 1, 2),
    ('c', 'o', 'one', 'n', 'web', 'inbound', 'completed', '1', 9, NULL, 0, 1, '[]', '[]', 'busy', '{}', '{}', 1, 1, 2),
    ('d', 'o', 'one', 'n', 'sip', 'inbound', 'ringing', '1', NULL, NULL, 0, 0, '[]', '[{"response_gap_ms": 9}]', NULL,
     '{}', '{}', 1, 1, NULL);
"""
SUMS = (
    "SELECT agent_id, phone_number_id, direction, quarter, figure, amount FROM statistics "
    "JOIN statistics_scopes ON statistics_scopes.id = scope_id"
)


def test_migration_counts_the_calls_that_have_ended_as_triggers_do(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    _version(path, "0026")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(ENDED_CALLS_WITHOUT_FIGURES)
    _open(path)
    with closing(sqlite3.connect(path)) as conn:
        figures = "SELECT id, interruptions, response_gaps, longest_gap_ms FROM calls ORDER BY id"
        assert conn.execute(figures).fetchall() == [
            ("a", 1, "[710,0]", 710), ("b", 0, "[]", None), ("c", 0, "[]", None), ("d", 0, "[]", None)
        ]  # fmt: skip
        migrated = sorted(conn.execute(SUMS))
        assert {row[4:] for row in migrated if row[:4] == ("", "", "inbound", 2)} == {
            ("calls", 1), ("status.completed", 1), ("ended.busy", 1), ("durationSeconds", 60),
            ("costMillionths", 500_000), ("turns", 3), ("interruptions", 1), ("interruptedCalls", 1), ("gap.700", 1),
            ("gap.0", 1),
        }  # fmt: skip
        conn.execute("CREATE TEMPORARY TABLE kept AS SELECT * FROM calls")
        conn.execute("DELETE FROM calls")
        assert conn.execute("SELECT count(*) FROM statistics").fetchone() == (0,)
        conn.execute("INSERT INTO calls SELECT * FROM kept")
        assert sorted(conn.execute(SUMS)) == migrated
