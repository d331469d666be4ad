"""Webhook senders that can be killed (`kill -9`) and started again: the full server, whose outbound calls are rejected
by a busy phone, or the minimal process that ends calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import aiohttp

from bench.webhooks.invariants import Kill
from bench.worker_process import Worker

RTP_PORTS: Final = "40000-42000"
READY_S: Final = 60.0


@dataclass(frozen=True)
class SeedData:
    """The content of the database before the first start. `agents`: the ids of one agent for each URL of the
    receiver."""

    key: str
    organization_id: str
    agents: list[str]
    number_id: str


class BusyPhone(asyncio.DatagramProtocol):
    """A phone that is always busy (RFC 3261, 21.4.24)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        """Rejects an INVITE with 486; ignores other requests."""
        head = data.decode(errors="replace").split("\r\n\r\n")[0].split("\r\n")
        if not head[0].startswith("INVITE "):
            return
        copied = [line for line in head[1:] if line.split(":")[0] in ("Via", "From", "To", "Call-ID", "CSeq")]
        headers = [f"{line};tag=busy" if line.startswith("To:") else line for line in copied]
        response = ["SIP/2.0 486 Busy Here", *headers, "Content-Length: 0", "", ""]
        self._transport.sendto("\r\n".join(response).encode(), source)


class Sender(ABC):
    """A process that can be started repeatedly on the same data."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    @abstractmethod
    async def spawn(self) -> None:
        """Starts the process."""

    @abstractmethod
    async def wait_ready(self) -> None:
        """Waits until the process can make calls."""

    @abstractmethod
    async def end_call(self, number: int) -> bool:
        """Lets the process make call `number`, which ends at once. Returns False if the process has ended; a repeated
        request makes no second call."""

    @abstractmethod
    def send_signal(self, number: signal.Signals) -> None:
        """Sends the process a signal."""

    @abstractmethod
    async def wait_ended(self) -> None:
        """Waits for the end of the process."""

    @abstractmethod
    async def stop(self) -> None:
        """Lets the process drain, and waits for its end."""

    async def kill(self) -> Kill:
        """Kills the process (`kill -9`) and waits for its end."""
        signalled_s = time.monotonic()
        self.send_signal(signal.SIGKILL)
        await self.wait_ended()
        return Kill(signalled_s, time.monotonic())


class MinimalSender(Sender):
    """The process `bench.webhooks.minimal_sender`."""

    def __init__(self, environment: Mapping[str, str], seed_data: SeedData) -> None:
        super().__init__(environment)
        self._seed_data = seed_data
        self._worker: Worker | None = None
        self._alive = False
        self._command_lock = asyncio.Lock()

    async def wait_ready(self) -> None:
        """Waits for the response to a command."""
        assert self._worker is not None
        await self._worker.request("ping")

    async def spawn(self) -> None:
        """Starts a worker process."""
        self._alive = True
        arguments = [part for pair in self.environment.items() for part in pair]
        self._worker = await Worker("bench.webhooks.minimal_sender", sys.executable, *arguments).__aenter__()

    async def end_call(self, number: int) -> bool:
        """Sends the command `end`, one at a time."""
        assert self._worker is not None
        agent_id = self._seed_data.agents[number % len(self._seed_data.agents)]
        call = {
            "organization_id": self._seed_data.organization_id,
            "agent_id": agent_id,
            "phone_number_id": self._seed_data.number_id,
        }
        async with self._command_lock:
            try:
                if self._alive:
                    await self._worker.request("end", sid=f"call {number}", call=call)
            except (RuntimeError, ConnectionError):
                self._alive = False
            return self._alive

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the worker a signal."""
        assert self._worker is not None
        os.kill(self._worker.pid, number)

    async def wait_ended(self) -> None:
        """Closes the worker's stdin and waits for its end."""
        assert self._worker is not None
        await self._worker.__aexit__()

    async def stop(self) -> None:
        """Closes the worker's stdin, at whose end it drains."""
        await self.wait_ended()


class FullServer(Sender):
    """The process `trunkline serve`, whose calls are made through the API."""

    def __init__(self, environment: Mapping[str, str], seed_data: SeedData, port: int) -> None:
        super().__init__(environment)
        self._seed_data = seed_data
        self._url = f"http://127.0.0.1:{port}/v1/calls"
        self._process: asyncio.subprocess.Process | None = None
        self._log_reader: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def spawn(self) -> None:
        """Starts the server and reads its log from now on."""
        command = str(Path(sys.executable).with_name("trunkline"))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")}
        self._process = await asyncio.create_subprocess_exec(
            command, "serve", env={**inherited, **self.environment},
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._ready = asyncio.Event()
        self._log_reader = asyncio.create_task(self._read_log(self._process, self._ready))
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._seed_data.key}"})

    async def wait_ready(self) -> None:
        """Waits for the event `ready` in the log."""
        async with asyncio.timeout(READY_S):
            await self._ready.wait()

    async def _read_log(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            if not ready.is_set() and json.loads(line).get("event") == "ready":
                ready.set()

    async def end_call(self, number: int) -> bool:
        """Repeats POST /calls with an idempotency key until the call is created."""
        assert self._session is not None
        agent_id = self._seed_data.agents[number % len(self._seed_data.agents)]
        body: dict[str, Any] = {"agentId": agent_id, "phoneNumberId": self._seed_data.number_id, "to": f"+1555{number}"}
        headers = {"Idempotency-Key": f"call-{number}"}
        try:
            while True:
                async with self._session.post(self._url, json=body, headers=headers) as response:
                    if response.status == 201:
                        return True
                    if response.status not in (429, 503):
                        raise AssertionError(f"POST /calls: {response.status} {await response.text()}")
                await asyncio.sleep(0.1)
        except (aiohttp.ClientError, OSError):
            return False

    def send_signal(self, number: signal.Signals) -> None:
        """Sends the server a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def wait_ended(self) -> None:
        """Waits for the end of the server and of its log."""
        assert self._process is not None and self._log_reader is not None and self._session is not None
        await self._process.wait()
        await self._log_reader
        await self._session.close()

    async def stop(self) -> None:
        """Sends SIGTERM and waits for the end of the server."""
        self.send_signal(signal.SIGTERM)
        await self.wait_ended()
