"""Whether the database has changed, told without asking a thread."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class ChangeCounter:
    """Looks at what SQLite's processes share in memory (`PRAGMA data_version`): some microseconds, no lock that it
    would wait for, no disk. Therefore it may be asked on the event loop; on one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Blocks: it opens the file."""
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self.number()

    def number(self) -> int | None:
        """Another one after each commit of whatever connection and process; None when that cannot be told now."""
        try:
            # All rows are taken, else the statement would hold its view of the file and with it the write-ahead log.
            ((number,),) = self._connection.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            return None
        return int(number)

    def close(self) -> None:
        """Asked no more."""
        self._connection.close()
