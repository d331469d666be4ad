"""System calls that Python has no function for."""

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
    """No program that this process might execute gains rights by being executed (prctl(2)); Landlock and seccomp ask
    for it. Raises `OSError`."""
    call("prctl", PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
