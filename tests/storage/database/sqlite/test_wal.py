"""Deleted rows stay in the write-ahead log until it is truncated."""

from __future__ import annotations

import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from storage.database.sqlite import wal

SECRET = "Zebra crossing at nine"


def test_the_log_is_truncated_unless_a_reader_uses_it(tmp_path: Path) -> None:
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        for statement in ("journal_mode=WAL", "secure_delete=ON"):
            writer.execute(f"PRAGMA {statement}").fetchall()
        writer.execute("CREATE TABLE words(text)")
        writer.execute("INSERT INTO words VALUES (?)", (SECRET,))
        reader.execute("BEGIN")
        assert reader.execute("SELECT * FROM words").fetchall() == [(SECRET,)]
        writer.execute("DELETE FROM words")
        wal.checkpoint(path)
        assert not wal.truncate(path)
        assert SECRET.encode() in log.read_bytes()
        assert reader.execute("SELECT * FROM words").fetchall() == [(SECRET,)], "the reader is not disturbed"
        reader.execute("COMMIT")
        assert wal.truncate(path)
        assert log.read_bytes() == b""
        assert SECRET.encode() not in path.read_bytes()


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """Simulates a full disk (setrlimit(2), RLIMIT_FSIZE)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_log_for_a_later_attempt(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for statement in ("journal_mode=WAL", "wal_autocheckpoint=0"):
            writer.execute(f"PRAGMA {statement}").fetchall()
        writer.execute("CREATE TABLE words(text)")
        writer.execute("INSERT INTO words VALUES (zeroblob(50000))")
        with _files_of_at_most(20_000):
            assert (wal.checkpoint(path), wal.truncate(path)) == (False, False)
        assert (wal.checkpoint(path), wal.truncate(path)) == (True, True)
        assert writer.execute("SELECT length(text) FROM words").fetchall() == [(50000,)]
