"""Session of PostgreSQL whose failed connection has the SQLSTATE of the server's refusal."""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, Final, NoReturn, Self

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGenConn
from psycopg.pq import ConnStatus, PollingStatus, abc
from psycopg.pq.misc import find_libpq_full_path
from psycopg.waiting import Ready, Wait

_DEFAULT: Final = 1
"""PQERRORS_DEFAULT of libpq's PGVerbosity."""
_VERBOSE: Final = 2
"""PQERRORS_VERBOSE."""
_SQLSTATE: Final = re.compile(r":  ([0-9A-Z]{5}): ")
"""The code in a message of `_VERBOSE`. The severity before it and the text after it are in the server's language, this
form is libpq's own."""


class Session(psycopg.Connection[Any]):
    """A connection. If the server refuses it the error is of the class of its SQLSTATE, such as `CannotConnectNow`, in
    whatever language it responds: before a connection is up libpq has the code in a verbose message only."""

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        """As the method of psycopg."""
        pgconn = pq.PGconn.connect_start(conninfo.encode())
        if pgconn.status == ConnStatus.BAD:
            _raise_failed(pgconn, "connection is bad")
        _set_verbosity(pgconn, _VERBOSE)
        while (status := pgconn.connect_poll()) != PollingStatus.OK:
            if status == PollingStatus.FAILED:
                _raise_failed(pgconn, "connection failed")
            wait = Wait.R if status == PollingStatus.READING else Wait.W
            ready: Ready | int = Ready.NONE
            while not ready:
                ready = yield pgconn.socket, wait
        _set_verbosity(pgconn, _DEFAULT)
        pgconn.nonblocking = 1
        return cls(pgconn)


def _raise_failed(pgconn: abc.PGconn, what: str) -> NoReturn:
    text = pgconn.get_error_message().partition("\nLOCATION:")[0]
    found = _SQLSTATE.search(text)
    kind = psycopg.OperationalError if found is None else _class_of(found[1])
    raise kind(f"{what}: {text}", pgconn=errors.finish_pgconn(pgconn))


def _class_of(sqlstate: str) -> type[psycopg.Error]:
    try:
        return errors.lookup(sqlstate)
    except KeyError:
        return type("UnknownRefusal", (psycopg.OperationalError,), {"sqlstate": sqlstate})


def _load_libpq() -> ctypes.CDLL:
    """The libpq that psycopg has loaded: its functions are found through the module that is linked with it."""
    path = find_libpq_full_path() if pq.__impl__ == "python" else sys.modules[pq.PGconn.__module__].__file__
    return ctypes.CDLL(path)


_set_error_verbosity: Final = _load_libpq().PQsetErrorVerbosity
_set_error_verbosity.argtypes = (ctypes.c_void_p, ctypes.c_int)


def _set_verbosity(pgconn: Any, verbosity: int) -> None:
    _set_error_verbosity(pgconn.pgconn_ptr, verbosity)
