"""A process that does work of the server which calls come before."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PASSED_ON: Final = (
    "ESPEAK_DATA_PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "TZ",
)  # fmt: skip
SECRET_PREFIXES: Final = ("TRUNKLINE_", "PG")
"""Prefixes of variables that may be secrets: settings, and those of PostgreSQL's client."""


def environment() -> dict[str, str]:
    """Returns the variables of a process that reads what users send: known ones alone, because others may be
    secrets."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def environment_without_secrets() -> dict[str, str]:
    """Returns the variables of a process that loads models as the server does, without those that may be secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SECRET_PREFIXES)}


def begin(parent: int, niceness: int) -> None:
    """Called first in such a process: it ends with its parent (its process id), is the first choice of the OOM killer,
    and has a lower priority by `niceness` (0..19)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the setting
        os._exit(0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.nice(niceness)
