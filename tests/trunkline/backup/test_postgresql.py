"""Backup and restore of an installation whose database is of PostgreSQL, and replays that read it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from config.clock import utc_now
from config.errors import NotFound, StartupError
from config.settings import Settings
from media.replay.recording_reader import InvalidRecording
from storage.database.postgresql.connection import connect
from storage.database.sqlite.migrate import migrate
from storage.nodes.nodes import Node, store_heartbeat
from storage.row_copy.contents import Contents, contents
from storage.row_copy.copied_tables import copied_tables
from storage.row_copy.opening import open_source
from storage.row_copy.row_copy import copy_database
from tests.peers import postgresql
from tests.trunkline.stored_data import SOUND_FILE, store
from trunkline.backup.backup import back_up
from trunkline.backup.restore import restore
from trunkline.replay.replay import find_case


@dataclass(frozen=True)
class Stored:
    """An installation on PostgreSQL, its backup, and the name of its recording."""

    settings: Settings
    backup: Path
    recording: str


def _on_server(data_dir: Path, url: str) -> Settings:
    return Settings(data_dir=data_dir).with_changes({"database": {"url": url}})


def _all(url: str) -> dict[str, Contents]:
    with open_source(make_url(url), hold=False) as side:
        return {table.name: contents(side.rows(table)) for table in copied_tables()}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    data_dir = tmp_path_factory.mktemp("stored")
    in_file = Settings(data_dir=data_dir)
    migrate(data_dir / "trunkline.db")
    recording = store(in_file)
    url = postgresql.server().empty_database()
    assert not copy_database(make_url(in_file.database_url), make_url(url)).differs
    (data_dir / "trunkline.db").unlink()
    backup = tmp_path_factory.mktemp("backup") / "backup.tar"
    settings = _on_server(data_dir, url)
    back_up(settings, str(backup))
    return Stored(settings, backup, recording)


def test_a_backup_has_the_rows_of_the_server_in_a_file_of_sqlite(stored: Stored, tmp_path: Path) -> None:
    assert sorted(path.name for path in stored.backup.parent.iterdir()) == ["backup.tar"]
    in_file = Settings(data_dir=tmp_path / "restored")
    restored = restore(in_file, str(stored.backup))
    assert restored.server is None
    assert (in_file.data_dir / stored.recording).stat().st_size == 5004
    assert (in_file.data_dir / "trunkline.db").read_bytes()[18:20] == b"\x01\x01"  # no write-ahead log is missing
    assert _all(in_file.database_url) == _all(stored.settings.database_url)


def test_a_restore_fills_an_empty_database_and_replaces_the_rows_of_another(stored: Stored, tmp_path: Path) -> None:
    expected = _all(stored.settings.database_url)
    settings = _on_server(tmp_path / "first", postgresql.server().empty_database())
    restored = restore(settings, str(stored.backup))
    assert restored.server is not None
    assert (settings.data_dir / SOUND_FILE).read_bytes() == b"words"
    assert not (settings.data_dir / "trunkline.db").exists()
    assert _all(settings.database_url) == expected
    postgresql.server().execute(
        "UPDATE organizations SET name = 'another'", str(make_url(settings.database_url).database)
    )
    other = settings.with_changes({"data_dir": tmp_path / "second"})
    with pytest.raises(StartupError, match="has rows: --replace deletes them"):
        restore(other, str(stored.backup))
    assert not (tmp_path / "second/sounds").exists()
    restore(other, str(stored.backup), replace=True)
    assert _all(settings.database_url) == expected


def test_a_restore_that_fails_leaves_the_rows_and_the_files(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _on_server(tmp_path / "data", postgresql.server().empty_database())
    restore(settings, str(stored.backup))
    name = str(make_url(settings.database_url).database)
    postgresql.server().execute("UPDATE organizations SET name = 'another'", name)
    before = _all(settings.database_url)

    def fail(*_: object) -> None:
        raise StartupError("stopped before the commit")

    monkeypatch.setattr("storage.row_copy.row_copy.compare", fail)
    with pytest.raises(StartupError, match="stopped before the commit"):
        restore(settings, str(stored.backup), replace=True)
    assert _all(settings.database_url) == before
    assert sorted(path.name for path in settings.data_dir.iterdir()) == [
        "recordings", "secret.key", "server.lock", "sounds",
    ]  # fmt: skip


def test_a_restore_is_refused_while_a_node_runs(stored: Stored, tmp_path: Path) -> None:
    settings = _on_server(tmp_path / "data", postgresql.server().take_database())
    now = utc_now()
    with closing(connect(make_url(settings.database_url))) as conn, conn.begin():
        store_heartbeat(conn, Node("berlin", "1", None, "1", "up", 0, 1, now, now))
    with pytest.raises(StartupError, match="in use by berlin"):
        restore(settings, str(stored.backup), replace=True)


def test_a_replay_reads_the_call_from_the_server_and_migrates_nothing(stored: Stored) -> None:
    call_id = Path(stored.recording).stem
    with pytest.raises(InvalidRecording):  # of the call that was found
        asyncio.run(find_case(stored.settings, call_id))
    with pytest.raises(NotFound, match="there is no call unknown"):
        asyncio.run(find_case(stored.settings, "unknown"))
    url = postgresql.server().take_database()
    older = "UPDATE alembic_version SET version_num = '0031'"
    postgresql.server().execute(older, str(make_url(url).database))
    with pytest.raises(StartupError, match="at revision 0031, this version reads revision"):
        asyncio.run(find_case(stored.settings.with_changes({"database": {"url": url}}), call_id))
