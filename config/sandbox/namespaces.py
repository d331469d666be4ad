"""An empty network namespace for a worker."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from config.sandbox.libc import call

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000


def leave_network() -> str:
    """Move this process, which has one thread, into a new network namespace: by its privilege, else with a new user
    namespace (unshare(2)). Returns "", or why it is not allowed."""
    with suppress(OSError):
        call("unshare", CLONE_NEWNET)
        return ""
    try:
        call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    except OSError as error:
        return f"the system allows no user namespace ({error.strerror})"
    return ""
