"""Tells an outage of PostgreSQL from wrong settings."""

from __future__ import annotations

import socket
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError

_CLASSES: Final = ("08", "53", "57", "25006")
"""SQLSTATEs: connection exception, insufficient resources such as connections, operator intervention (starting,
stopping, a cancelled authentication), and a standby, which takes no writes until it is promoted."""
_WRONG_TLS: Final = ("certificate", "SSL", "TLS")
_LOST_TLS: Final = ("SSL SYSCALL error", "SSL connection has been closed unexpectedly")
_WRONG_SETTINGS: Final = ("Permission denied", "no password supplied", "password file", "authentication method")


def is_outage(error: BaseException | None) -> bool:
    """True if a connection failed or was lost because the server cannot be reached, is starting or stopping, has no
    connection left, or takes no writes; False if the settings may be wrong: password, role, database, permissions,
    certificate, or a host that does not exist. What the server responds is told by its SQLSTATE; what has none comes
    from libpq and psycopg, whose texts are English."""
    if isinstance(error, DBAPIError):
        error = error.orig
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_CLASSES)
    return isinstance(error, psycopg.OperationalError) and not _is_wrong_setting(str(error))


def _is_wrong_setting(text: str) -> bool:
    if "failed to resolve host" in text:
        return f"[Errno {socket.EAI_AGAIN}]" not in text
    if text.startswith("connection is bad: ") and " failed: " not in text:  # there was no attempt
        return True
    if any(each in text for each in _LOST_TLS):
        return False
    return any(each in text for each in (*_WRONG_TLS, *_WRONG_SETTINGS))
