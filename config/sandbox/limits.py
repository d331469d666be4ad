"""Resources of a worker process."""

from __future__ import annotations

import os
import resource
from typing import Final

NICENESS: Final = 10


def bound(memory_bytes: int, cpu_s: int, open_files: int) -> None:
    """Bound this process for good: address space, processor time, open files; no core dump, no file written, no further
    process; calls go first. Limits that are stricter already stay."""
    os.nice(NICENESS)
    for what, wanted in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # The signal of the soft limit on the processor's time tells why; that of the hard one would not.
        ceiling = most + 1 if what == resource.RLIMIT_CPU and most != hard else most
        resource.setrlimit(what, (most, ceiling))
