"""Sandbox of worker processes that parse untrusted input: resource limits (`rlimits`), network (`namespaces`), files
(`landlock`) and system calls (`seccomp`). A worker calls `rlimits.set_rlimits`, imports its modules, calls `enter`, and
only then reads its input.

Each part is used where the kernel has it, independently of the others; `trunkline check` reports what is missing. It
needs the standard library only, so that a worker loads it within milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from config.sandbox import landlock, namespaces, seccomp


@dataclass(frozen=True)
class SandboxReport:
    """The result of `enter`: for each part "" if it is enforced, else why it is not."""

    system_calls: str
    files: str
    network: str


def enter(
    readable: Sequence[Path] = (), *, may_fork: bool = False, read_all_without_landlock: bool = False
) -> SandboxReport:
    """Restrict this process irrevocably, before it reads its input: no network, no execution of programs, no signal to
    another process, no file opened for writing, and for reading only files beneath `readable`.

    Without Landlock files cannot be told apart: then no file can be opened, or with `read_all_without_landlock` any for
    reading. `may_fork`: it may fork itself. A forbidden system call (`seccomp.FORBIDDEN_CALLS`) ends the process with
    SIGSYS, others that are not allowed fail with EPERM.
    """
    library = seccomp.load_library()  # a file, too
    network = namespaces.leave_network()
    files = landlock.restrict(readable)
    opens = bool(readable) and (not files or read_all_without_landlock)
    return SandboxReport(seccomp.restrict(library, may_open=opens, may_fork=may_fork), files, network)
