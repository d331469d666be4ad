"""Change number of a PostgreSQL database: triggers on the tables that servers keep in memory send a notification with
each commit (`LISTEN`, `NOTIFY`)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog

from storage.database.postgresql.connection import open_session
from storage.database.postgresql.notifications import CHANNEL

POLL_S: Final = 1.0
"""Without a connection for notifications the number changes this often, seconds."""
MAX_SILENCE_S: Final = 5.0
"""A connection without a notification is probed this often, seconds."""


log = structlog.get_logger()


class ChangeListener:
    """Listens on a thread of its own. On that thread `on_change` is called with the names of changed tables, or with
    None when it begins to listen, because changes may have been missed; `on_reconnect` when the database can be reached
    again. Without a connection the number changes every `POLL_S`."""

    def __init__(
        self, url: sa.URL, on_change: Callable[[frozenset[str] | None], None], on_reconnect: Callable[[], None]
    ) -> None:
        self._url: Final = url
        self._on_change: Final = on_change
        self._on_reconnect: Final = on_reconnect
        self._closing = threading.Event()
        self._number = 0
        self._thread = threading.Thread(target=self._run, name="postgresql changes", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    @property
    def number(self) -> int:
        """Another number after each notification."""
        return self._number

    def close(self) -> None:
        """End the thread; blocks for some milliseconds, or until a connection attempt has ended."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        was_away = False
        while not self._closing.is_set():
            try:
                with open_session(self._url) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._changed(None)  # what was committed before it listened
                    if was_away:
                        self._on_reconnect()
                    self._listen(connection)
            except psycopg.Error:
                pass
            except Exception as error:  # the thread must not end: caches would stay as they are
                log.error("database.changes_not_read", error=repr(error), exc_info=error)
            was_away = True
            self._closing.wait(random.uniform(0.5, 1) * POLL_S)
            self._number += 1

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        """Until the connection is lost, which raises `psycopg.Error`, or this is closed."""
        silent_s = 0.0
        while not self._closing.is_set():
            if found := frozenset(each.payload for each in connection.notifies(timeout=0.2, stop_after=1)):
                silent_s = 0.0
                self._changed(found)
            elif (silent_s := silent_s + 0.2) >= MAX_SILENCE_S:
                silent_s = 0.0
                connection.execute("SELECT 1")

    def _changed(self, tables: frozenset[str] | None) -> None:
        self._number += 1
        self._on_change(tables)
