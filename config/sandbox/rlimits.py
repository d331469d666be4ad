"""Resource limits of a worker process (setrlimit(2))."""

from __future__ import annotations

import os
import resource
from typing import Final

NICENESS: Final = 10


def set_rlimits(memory_bytes: int, cpu_s: int, open_files: int) -> None:
    """Limit this process irrevocably: address space, CPU time, open files; no core dump, no file written, no further
    process. Lowers its priority below that of calls. Stricter limits stay."""
    os.nice(NICENESS)
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(limit)
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # The soft limit of CPU time sends SIGXCPU, which names the cause; the hard one sends SIGKILL.
        new_hard = soft + 1 if limit == resource.RLIMIT_CPU and soft != hard else soft
        resource.setrlimit(limit, (soft, new_hard))
