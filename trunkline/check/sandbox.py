"""What `trunkline check` says of the processes that parse what strangers send."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from config.settings import Settings

_PARTS: Final = {"system_calls": "seccomp", "files": "Landlock", "network": "own network namespace"}


async def workers(settings: Settings) -> str:
    """What holds them on this machine, tried by a process that enters the sandbox. Raises `OSError`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "config.sandbox"), stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate()
    if process.returncode != 0:
        raise OSError(f"the sandbox of document and sound workers cannot be entered (status {process.returncode})")
    return describe(json.loads(answer))


def describe(lacks: dict[str, str]) -> str:
    """A line of what there is, with the reason for each that is not."""
    parts = (f"{name} no: {lacks[part]}" if lacks[part] else f"{name} yes" for part, name in _PARTS.items())
    return f"documents and sounds are read with limits, {', '.join(parts)}"
