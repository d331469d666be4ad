"""Errors of the database."""

from __future__ import annotations

from typing import Final

from config.errors import StartupError, Unavailable

DISK_FULL: Final = "the disk is full"


class StorageUnavailable(Unavailable):
    """The database is unavailable (disk full, locked, ...); the transaction was rolled back. `cause` is for the log,
    the message for clients. `unreachable`: its server does not answer; `read_only`: it takes no writes, such as one
    that has become a standby. `outcome_unknown`: the connection was lost while the transaction was being committed, so
    that it may be stored."""

    def __init__(
        self, cause: str, *, unreachable: bool = False, read_only: bool = False, outcome_unknown: bool = False
    ) -> None:
        super().__init__("Service temporarily unavailable", retry_after_s=5)
        self.cause = cause
        self._unreachable = unreachable
        self._read_only = read_only
        self.outcome_unknown = outcome_unknown

    @property
    def disk_full(self) -> bool:
        """True if the disk is full."""
        return self.cause == DISK_FULL

    @property
    def is_unreachable(self) -> bool:
        """True if the server of the database does not answer."""
        return self._unreachable

    @property
    def is_outage(self) -> bool:
        """True if it may last: then calls go on, and what is to be stored of them waits in memory."""
        return self.disk_full or self._unreachable or self._read_only

    def __str__(self) -> str:
        return f"storage: {self.cause}"


class DatabaseAway(StartupError):
    """The database cannot be opened now, and nothing says that the settings are wrong: its server does not answer, or
    is starting."""


def not_open() -> StorageUnavailable:
    """Returns the error of a transaction on a database that is not open."""
    return StorageUnavailable("the database is not open")
