"""A peer of the tests that runs as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class Process:
    """A child process with a folder of its own; both are removed at the end of the `async with` block."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trunkline-peer-")
        self._child: asyncio.subprocess.Process | None = None

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return Path(self._folder.name)

    @property
    def child(self) -> asyncio.subprocess.Process:
        """The process. Raises `RuntimeError` before it is started."""
        if self._child is None:
            raise RuntimeError("not started")
        return self._child

    async def start(self, *command: str) -> None:
        """Starts the process in its folder, with its output in `output.txt` there."""
        with (self.folder / "output.txt").open("wb") as output:
            self._child = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """The output so far."""
        return (self.folder / "output.txt").read_text(errors="replace")

    async def close(self) -> None:
        """Terminates the process, kills it after 3 s, and removes its folder."""
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            try:
                await asyncio.wait_for(self._child.wait(), 3)
            except TimeoutError:
                self._child.kill()
                await self._child.wait()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)  # its children
        self._folder.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
