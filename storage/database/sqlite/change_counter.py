"""Change counter: a number that changes with every commit, readable on the event loop."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class ChangeCounter:
    """Reads `PRAGMA data_version` from the shared memory of SQLite's processes: some microseconds, without waiting for
    a lock or the disk. It may be called on the event loop; on one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Opens the file; blocks."""
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self.number()

    def number(self) -> int | None:
        """Returns another number after each commit of any connection and process; None when it cannot be read now."""
        try:
            # All rows are fetched, else the open statement would keep its read lock on the write-ahead log.
            ((number,),) = self._connection.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            return None
        return int(number)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
