"""What a worker process may do that parses what strangers send: its resources (`limits`), its network (`namespaces`),
its files (`landlock`) and its system calls (`seccomp`). A worker calls `limits.bound`, imports what it needs, calls
`enter`, and only then reads its input.

Each part is used where the machine has it, and the others hold without it: `trunkline check` tells. Of the standard
library alone, so that a worker loads it within milliseconds; `python -m config.sandbox` prints what this machine has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from config.sandbox import landlock, namespaces, seccomp


@dataclass(frozen=True)
class Sandbox:
    """What holds a process; each is empty where it does, else it says why it does not."""

    system_calls: str
    files: str
    network: str


def enter(readable: Sequence[Path] = (), *, forks: bool = False, without_landlock: bool = False) -> Sandbox:
    """Bind this process for good, before it reads its input: no network, no execution of programs, no signal to another
    process, no file opened for writing, none for reading but what lies beneath `readable`.

    Without Landlock nobody can tell one file from another: then no file at all can be opened, or any for reading
    (`without_landlock`). `forks`: it may fork itself. A call that no parser makes (`seccomp.BREACHES`) ends the process
    with SIGSYS, others that are not allowed fail with EPERM.
    """
    library = seccomp.library()  # a file, too
    network = namespaces.leave_network()
    files = landlock.restrict(readable)
    opens = bool(readable) and (not files or without_landlock)
    return Sandbox(seccomp.restrict(library, opens=opens, forks=forks), files, network)
