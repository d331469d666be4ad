"""System calls without a function in Python's standard library."""

from __future__ import annotations

import ctypes
import os
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object) -> int:
    """Call a function of libc that returns -1 on failure. Raises `OSError`."""
    result: int = getattr(_LIBC, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def forbid_new_privileges() -> None:
    """Set no_new_privs (prctl(2)): executing a program grants it no privileges. Landlock and seccomp need it. Raises
    `OSError`."""
    call("prctl", PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
