"""A process that does work of the server which calls come before."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def begin(parent: int, niceness: int) -> None:
    """Called first in such a process: it ends with its parent (its process id), is the first choice of the OOM killer,
    and has a lower priority by `niceness` (0..19)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the setting
        os._exit(0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.nice(niceness)
