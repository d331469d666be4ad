"""Locks of write transactions on all nodes: PostgreSQL's advisory locks, which end with the transaction or with the
connection (PostgreSQL documentation, 13.3.5)."""

from __future__ import annotations

from hashlib import sha256
from typing import Final


def key_of(name: str) -> int:
    """Returns the number of a lock, 64 bits with a sign."""
    return int.from_bytes(sha256(f"trunkline {name}".encode()).digest()[:8], "big", signed=True)


_INSTALLATION: Final = key_of("installation")
MIGRATION: Final = key_of("migration")
"""The lock of a migration, held by its transaction."""

COPY: Final = key_of("copy")
"""The lock of a copy of rows into a database, held by a session."""


def hold_writes(*, in_transaction: bool = False) -> str:
    """Returns the statement by which a session, or its transaction, stops all writes until it ends; it waits for those
    under way."""
    return f"SELECT pg_advisory{'_xact' if in_transaction else ''}_lock({_INSTALLATION})"


class IndependentLock(str):
    """The name of a lock whose writes wait for no write with another lock, not even one that runs alone: they change
    one row that no other write reads."""

    __slots__ = ()

    def __new__(cls, name: str) -> IndependentLock:
        """Nodes of several versions agree on the text."""
        return super().__new__(cls, f"apart {name}")


class HeartbeatLock(IndependentLock):
    """The name of the lock of a node's heartbeats, which are written before all other writes."""

    __slots__ = ()

    def __new__(cls, node: str) -> HeartbeatLock:
        """As `IndependentLock`."""
        return str.__new__(cls, f"heartbeat {node}")


def statement_of(lock: str | None) -> str:
    """Returns the statement that acquires the locks of a write. None: it runs alone; else it shares the installation
    with writes of other locks."""
    if isinstance(lock, IndependentLock):
        return f"SELECT pg_advisory_xact_lock({key_of(lock)})"
    if lock is None:
        return f"SELECT pg_advisory_xact_lock({_INSTALLATION})"
    return f"SELECT pg_advisory_xact_lock_shared({_INSTALLATION}); SELECT pg_advisory_xact_lock({key_of(lock)})"
