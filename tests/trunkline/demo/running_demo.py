"""`trunkline demo` as a process: what it has printed, and what it has stored."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.trunkline.recording_analysis import read_wav
from tests.trunkline.server_process import TRUNKLINE, environment

LAST_LINE = "Ctrl-C stops the server."


@dataclass
class Demo:
    """A demo: its data directory, what it has printed, and what it has logged."""

    data_dir: Path
    printed: str = ""
    errors: str = ""
    https_port: int = 0
    process: asyncio.subprocess.Process | None = None
    _reading: list[asyncio.Task[None]] = field(default_factory=list)
    _serves: asyncio.Event = field(default_factory=asyncio.Event)

    def read(self, process: asyncio.subprocess.Process) -> None:
        """Collect what a process writes."""
        assert process.stdout is not None and process.stderr is not None
        self.process = process
        self._reading = [
            asyncio.create_task(self._read_out(process.stdout)),
            asyncio.create_task(self._read_errors(process.stderr)),
        ]

    async def _read_out(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.printed += line.decode()
            if line.decode().startswith(LAST_LINE):
                self._serves.set()
        self._serves.set()

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.errors += line.decode()

    async def after_its_calls(self, timeout_s: float = 360) -> Demo:
        """Wait until it has printed where it serves, or has ended."""
        await asyncio.wait_for(self._serves.wait(), timeout_s)
        return self

    async def terminated(self, timeout_s: float = 20) -> int:
        """End it by SIGTERM, if it still runs; returns its exit status."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
        status = await asyncio.wait_for(self.process.wait(), timeout_s)
        await asyncio.wait(self._reading)
        return status

    def address(self, of: str) -> str:
        """An address that it has printed: `address`, `dashboard` or `HTTPS`."""
        [line] = [line for line in self.printed.splitlines() if line.startswith(f"  {of} ")]
        return line.split()[1]

    def rows(self, query: str) -> list[sqlite3.Row]:
        """Rows of the database file."""
        with sqlite3.connect(self.data_dir / "trunkline.db") as database:
            database.row_factory = sqlite3.Row
            return database.execute(query).fetchall()

    @property
    def call(self) -> sqlite3.Row:
        """The last call of the first scene, which went as scripted. A busy machine may have needed more than one."""
        transferred = "SELECT parent_call_id FROM calls WHERE parent_call_id IS NOT NULL"
        return self.rows(
            f"SELECT * FROM calls WHERE parent_call_id IS NULL AND id NOT IN ({transferred}) ORDER BY created_at"
        )[-1]

    @property
    def legs(self) -> list[sqlite3.Row]:
        """The last call of the second scene and its second legs, in order."""
        rows = self.rows("SELECT * FROM calls ORDER BY created_at")
        parent = [row for row in rows if row["parent_call_id"] is None][-1]
        return [parent, *(row for row in rows if row["parent_call_id"] == parent["id"])]

    @property
    def shown(self) -> str:
        """The output about the last call of the first scene."""
        return self.printed.partition("Second scene")[0].rpartition("A scripted caller calls")[2]

    @property
    def shown_transfers(self) -> str:
        """The output about the last call of the second scene."""
        return self.printed.rpartition("Second scene")[2]

    def recording(self, call_id: str | None = None) -> tuple[int, Any]:
        """The rate and the samples of a call's recording, by default of that of the first scene."""
        [path] = (self.data_dir / "recordings").rglob(f"{call_id or self.call['id']}.wav")
        return read_wav(path.read_bytes())


@asynccontextmanager
async def demo_that_serves(folder: Path, settings: dict[str, Any]) -> AsyncIterator[Demo]:
    """Start a demo as `make run` does, on the folder `data`."""
    process = await asyncio.create_subprocess_exec(
        TRUNKLINE, "demo", "--keep-serving", cwd=folder, env=environment(folder / "data", settings),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    demo = Demo(folder / "data", https_port=settings["api"]["https_port"])
    demo.read(process)
    try:
        yield demo
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
