"""Runs a scripted phone as a process: sends it commands and waits for its events."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

EVENT_TIMEOUT_S: Final = 40.0
"""Longest time between two events of a phone: the agent speaks for a while."""


class PhoneFailed(Exception):
    """A phone did not hear, or do, what it should."""


class PhoneProcess:
    """A phone (`trunkline.demo.scripted_phone`). `name` is shown in errors; its recordings go to `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name: Final = name
        self._folder: Final = folder
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._hears = False
        self.port = 0

    async def __aenter__(self) -> Self:
        """Start the process, which does not get SIGINT from the terminal."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trunkline.demo.scripted_phone", str(self._folder),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._reading = asyncio.create_task(self._read(self._process.stdout))
        self.port = (await self.until("listening"))["port"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._reading is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
        await self._reading

    async def until(self, *events: str) -> dict[str, Any]:
        """Wait for one of these events, and drop those before it. Raises `PhoneFailed`."""
        try:
            async with asyncio.timeout(EVENT_TIMEOUT_S):
                while (event := await self._events.get())["event"] not in events:
                    if event["event"] in ("ended", "stopped"):
                        raise PhoneFailed(f"the {self.name}'s call ended before it {events[0]}")
        except TimeoutError:
            raise PhoneFailed(
                f"the {self.name}'s phone reported no {events[0]!r} for {EVENT_TIMEOUT_S:.0f} s"
            ) from None
        return event

    async def until_hears(self) -> None:
        """Wait for a sound, unless the phone hears one already. Raises `PhoneFailed`."""
        if not self._hears:
            await self.until("hears")

    def drop_events(self) -> None:
        """Drop the events so far."""
        while not self._events.empty():
            self._events.get_nowait()

    async def call(self, uri: str) -> float:
        """Call and wait for the answer; returns its UNIX time."""
        await self._send("call", uri)
        return float((await self.until("connected"))["at_s"])

    async def answer(self) -> None:
        """Answer a call that rings."""
        await self._send("answer")
        await self.until("connected")

    async def say(self, line: str) -> float:
        """Say a line; returns the UNIX time of its end."""
        await self._send("say", line)
        return float((await self.until("spoke"))["at_s"])

    async def say_last(self, line: str) -> dict[str, Any]:
        """Say a line after which the other side hangs up, perhaps before the silence at the line's end was sent;
        returns the event `ended`."""
        await self._send("say", line)
        event = await self.until("spoke", "ended")
        return event if event["event"] == "ended" else await self.until("ended")

    async def hang_up(self) -> None:
        """End the call."""
        await self._send("hang_up")

    async def _send(self, do: str, what: str = "") -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "what": what}).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            event = json.loads(line)
            if event["event"] in ("hears", "heard", "connected"):
                self._hears = event["event"] == "hears"
            self._events.put_nowait(event)
        self._events.put_nowait({"event": "stopped"})
