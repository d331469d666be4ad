"""The PostgreSQL server of the benchmarks of several nodes, which syncs each commit to disk, and its CPU time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from bench.worker_process import TICKS_PER_S
from tests.peers.postgresql import PostgresqlServer


async def durable_server(folder: Path, stack: AsyncExitStack) -> PostgresqlServer:
    """Returns a server that runs until `stack` is closed, with its data in a new folder of this one."""

    def start() -> PostgresqlServer:
        folder.chmod(0o755)  # the server runs as another user
        own = folder / "postgresql"
        own.mkdir()
        return PostgresqlServer(own, durable=True)

    server = await asyncio.to_thread(start)
    stack.push_async_callback(asyncio.to_thread, server.close)
    return server


class PostgresqlLoad:
    """The CPU time of a server with all its processes, also of those that have ended."""

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server
        self._pid = (server.folder / "data" / "postmaster.pid").read_text().split()[0]

    def cpu_s(self) -> float:
        """CPU seconds since its start."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, _, rest = stat.read_text().partition(" ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = rest.rpartition(")")[2].split()
            if self._pid in (pid, fields[1]):
                ended = slice(11, 15) if pid == self._pid else slice(11, 13)
                ticks += sum(map(int, fields[ended]))
        return ticks / TICKS_PER_S

    def transactions(self) -> int:
        """Transactions since its start; sessions report theirs within some seconds."""
        return int(self._server.value("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"))
