"""The sandbox in `trunkline check`: which restrictions the workers that parse uploaded files have on this machine."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from config.settings import Settings

_RESTRICTIONS: Final = {"system_calls": "seccomp", "files": "Landlock", "network": "own network namespace"}


async def check_sandbox(settings: Settings) -> str:
    """Enter the sandbox in a process; returns a line with its restrictions. Raises `OSError`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "config.sandbox"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise OSError(f"the sandbox of document and sound workers cannot be entered (status {process.returncode})")
    return _describe(json.loads(output))


def _describe(missing: dict[str, str]) -> str:
    """A line with the restrictions. `missing`: why each is not in force, or an empty text if it is."""
    states = (f"{name} no: {missing[key]}" if missing[key] else f"{name} yes" for key, name in _RESTRICTIONS.items())
    return f"documents and sounds are read with limits, {', '.join(states)}"
