"""The lives of a sender of webhooks, each ended by `kill -9`: the whole server, whose calls are refused by the phone
that they ring at, or the smallest process that ends calls."""

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
class Prepared:
    """What the database holds before the first life. `agents`: one for each address of the receiver."""

    key: str
    organization_id: str
    agents: list[str]
    number_id: str


class Refuser(asyncio.DatagramProtocol):
    """A phone that is always busy (RFC 3261, 21.4.24)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        """Refuse an INVITE; nothing else needs an answer."""
        head = data.decode(errors="replace").split("\r\n\r\n")[0].split("\r\n")
        if not head[0].startswith("INVITE "):
            return
        kept = [line for line in head[1:] if line.split(":")[0] in ("Via", "From", "To", "Call-ID", "CSeq")]
        lines = [f"{line};tag=busy" if line.startswith("To:") else line for line in kept]
        answer = ["SIP/2.0 486 Busy Here", *lines, "Content-Length: 0", "", ""]
        self._transport.sendto("\r\n".join(answer).encode(), source)


class Sender(ABC):
    """A process that can be started again and again on the same data."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    @abstractmethod
    async def spawn(self) -> None:
        """Start the process."""

    @abstractmethod
    async def ready(self) -> None:
        """Wait until it takes calls."""

    @abstractmethod
    async def end_call(self, number: int) -> bool:
        """Let it make the call of that number, which ends. False when it died; asking again makes no second call."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""

    @abstractmethod
    async def gone(self) -> None:
        """Wait for its end."""

    @abstractmethod
    async def stop(self) -> None:
        """Let it drain, and wait for its end."""

    async def kill(self) -> Kill:
        """`kill -9`."""
        since = time.monotonic()
        self.signal(signal.SIGKILL)
        await self.gone()
        return Kill(since, time.monotonic())


class SmallSender(Sender):
    """`bench.webhooks.minimal_sender`."""

    def __init__(self, environment: Mapping[str, str], prepared: Prepared) -> None:
        super().__init__(environment)
        self._prepared = prepared
        self._worker: Worker | None = None
        self._alive = False
        self._turn = asyncio.Lock()

    async def ready(self) -> None:
        """It has carried out an order."""
        assert self._worker is not None
        await self._worker.do("nothing")

    async def spawn(self) -> None:
        """As a worker."""
        self._alive = True
        arguments = [part for pair in self.environment.items() for part in pair]
        self._worker = await Worker("bench.webhooks.minimal_sender", sys.executable, *arguments).__aenter__()

    async def end_call(self, number: int) -> bool:
        """One order at a time."""
        assert self._worker is not None
        agent_id = self._prepared.agents[number % len(self._prepared.agents)]
        call = {
            "organization_id": self._prepared.organization_id,
            "agent_id": agent_id,
            "phone_number_id": self._prepared.number_id,
        }
        async with self._turn:
            try:
                if self._alive:
                    await self._worker.do("end", sid=f"call {number}", call=call)
            except (RuntimeError, ConnectionError):
                self._alive = False
            return self._alive

    def signal(self, number: signal.Signals) -> None:
        """To the worker."""
        assert self._worker is not None
        os.kill(self._worker.pid, number)

    async def gone(self) -> None:
        """Close its pipes too."""
        assert self._worker is not None
        await self._worker.__aexit__()

    async def stop(self) -> None:
        """It drains when its orders end."""
        await self.gone()


class WholeServer(Sender):
    """`trunkline serve`; calls are made through the API."""

    def __init__(self, environment: Mapping[str, str], prepared: Prepared, port: int) -> None:
        super().__init__(environment)
        self._prepared = prepared
        self._url = f"http://127.0.0.1:{port}/v1/calls"
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def spawn(self) -> None:
        """Its log is read from now on."""
        command = str(Path(sys.executable).with_name("trunkline"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")}
        self._process = await asyncio.create_subprocess_exec(
            command, "serve", env={**kept, **self.environment},
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, self._ready))
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._prepared.key}"})

    async def ready(self) -> None:
        """Wait for `ready` in its log."""
        async with asyncio.timeout(READY_S):
            await self._ready.wait()

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            if not ready.is_set() and json.loads(line).get("event") == "ready":
                ready.set()

    async def end_call(self, number: int) -> bool:
        """POST /calls under an idempotency key, until it is created."""
        assert self._session is not None
        agent_id = self._prepared.agents[number % len(self._prepared.agents)]
        body: dict[str, Any] = {"agentId": agent_id, "phoneNumberId": self._prepared.number_id, "to": f"+1555{number}"}
        headers = {"Idempotency-Key": f"call-{number}"}
        try:
            while True:
                async with self._session.post(self._url, json=body, headers=headers) as answer:
                    if answer.status == 201:
                        return True
                    if answer.status not in (429, 503):
                        raise AssertionError(f"POST /calls: {answer.status} {await answer.text()}")
                await asyncio.sleep(0.1)
        except (aiohttp.ClientError, OSError):
            return False

    def signal(self, number: signal.Signals) -> None:
        """To the server."""
        assert self._process is not None
        self._process.send_signal(number)

    async def gone(self) -> None:
        """Its log is read to its end."""
        assert self._process is not None and self._reading is not None and self._session is not None
        await self._process.wait()
        await self._reading
        await self._session.close()

    async def stop(self) -> None:
        """SIGTERM."""
        self.signal(signal.SIGTERM)
        await self.gone()
