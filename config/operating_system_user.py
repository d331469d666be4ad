"""The user of the operating system who runs this process."""

from __future__ import annotations

import getpass
import os


def operating_system_user() -> str:
    """The name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"
