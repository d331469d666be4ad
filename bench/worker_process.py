"""Worker processes of the benchmarks: commands and responses are lines of JSON on stdin and stdout; CPU time and memory
of a process from /proc."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
Command = dict[str, Any]


class Worker:
    """A Python module that runs as a child process, by default with this process's Python interpreter."""

    def __init__(self, module: str, python: str = sys.executable, *arguments: str) -> None:
        self._module = module
        self._python = python
        self._arguments = arguments
        self._child: asyncio.subprocess.Process

    async def __aenter__(self) -> Worker:
        self._child = await asyncio.create_subprocess_exec(
            self._python, "-m", self._module, *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._child.stdin:
            self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), 20)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command and returns its response. Raises `RuntimeError` if the process has ended."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        line = await self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} has ended")
        response: dict[str, Any] = json.loads(line)
        return response


async def serve_commands(handlers: dict[str, Callable[..., Awaitable[dict[str, Any]]]]) -> None:
    """The child's side: runs the handler of each command until stdin ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        command: Command = json.loads(line)
        response = await handlers[command.pop("command")](**command)
        print(json.dumps(response), flush=True)


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU time of a process by thread name, s."""
    seconds: dict[str, float] = {}
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except FileNotFoundError:
            continue
        fields = rest.split()
        seconds[name] = seconds.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return seconds


def resident_kb(pid: int) -> int:
    """Resident memory of a process, kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def machine() -> dict[str, Any]:
    """The processor, cores, system, Python version and load average of this machine, for a table of results."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
