"""The write-ahead log holds what was deleted until it is emptied."""

from __future__ import annotations

import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from storage.database import wal

SECRET = "Zebra crossing at nine"


def test_the_log_is_emptied_unless_somebody_reads_from_it(tmp_path: Path) -> None:
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        for statement in ("journal_mode=WAL", "secure_delete=ON"):
            writer.execute(f"PRAGMA {statement}").fetchall()
        writer.execute("CREATE TABLE said(text)")
        writer.execute("INSERT INTO said VALUES (?)", (SECRET,))
        reader.execute("BEGIN")
        assert reader.execute("SELECT * FROM said").fetchall() == [(SECRET,)]
        writer.execute("DELETE FROM said")
        wal.checkpoint(path)
        assert not wal.truncate(path)
        assert SECRET.encode() in log.read_bytes()
        assert reader.execute("SELECT * FROM said").fetchall() == [(SECRET,)], "nobody was disturbed"
        reader.execute("COMMIT")
        assert wal.truncate(path)
        assert log.read_bytes() == b""
        assert SECRET.encode() not in path.read_bytes()


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full (setrlimit(2), RLIMIT_FSIZE)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_log_for_later(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for statement in ("journal_mode=WAL", "wal_autocheckpoint=0"):
            writer.execute(f"PRAGMA {statement}").fetchall()
        writer.execute("CREATE TABLE said(text)")
        writer.execute("INSERT INTO said VALUES (zeroblob(50000))")
        with _files_of_at_most(20_000):
            assert (wal.checkpoint(path), wal.truncate(path)) == (False, False)
        assert (wal.checkpoint(path), wal.truncate(path)) == (True, True)
        assert writer.execute("SELECT length(text) FROM said").fetchall() == [(50000,)]
