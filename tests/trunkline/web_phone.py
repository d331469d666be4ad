"""The WebSocket client of a test call, as a browser is: it sends audio and keys, and keeps what it receives."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import numpy as np

from media.audio_port import Samples
from tests.trunkline.api_client import Client

RATE = 16000
FRAME = 320
"""Samples of a frame: 20 ms."""


class WebPhone:
    """An open WebSocket. It sends a frame for each received one, so both sides are in step; silence, if it has nothing
    to say, and nothing while `mute`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.frames: list[bytes] = []
        self.messages: list[dict[str, Any]] = []
        self.clears: list[int] = []
        """How many frames had been received at each `clear`."""
        self.mute = False
        self._to_say: deque[bytes] = deque()
        self._came = asyncio.Event()
        self.talking = asyncio.create_task(self._talk())

    async def hears(self, frames: int) -> Samples:
        """Wait for so many more frames; returns their audio, int16 at 16 kHz."""
        start = len(self.frames)
        async with asyncio.timeout(frames * 0.02 + 10):
            while len(self.frames) < start + frames:
                await self._next()
        return self.sound(start)

    def sound(self, since: int = 0) -> Samples:
        """The audio since that frame."""
        return np.frombuffer(b"".join(self.frames[since:]), np.int16)

    def say(self, samples: Samples) -> None:
        """Send audio at 16 kHz."""
        padded = np.pad(samples, (0, -len(samples) % FRAME)).astype("<i2")
        self._to_say.extend(padded[at : at + FRAME].tobytes() for at in range(0, len(padded), FRAME))

    async def has_said(self) -> None:
        """Wait until all audio has been sent."""
        while self._to_say:
            await self.hears(1)

    async def send(self, **message: Any) -> None:
        """Send a text frame."""
        await self.socket.send_json(message)

    async def message(self, **wanted: Any) -> dict[str, Any]:
        """Wait for the first message with these values; earlier ones count."""
        async with asyncio.timeout(20):
            while True:
                for message in self.messages:
                    if wanted.items() <= message.items():
                        return message
                assert not self.talking.done(), f"closed without {wanted}: {self.messages}"
                await self._next()

    async def closed(self) -> int:
        """Wait until the server has closed the connection; returns the code."""
        async with asyncio.timeout(20):
            await self.talking
        assert self.socket.close_code is not None
        return self.socket.close_code

    async def _next(self) -> None:
        self._came.clear()
        await self._came.wait()

    async def _talk(self) -> None:
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.frames.append(message.data)
                if not self.mute:
                    await self.socket.send_bytes(self._to_say.popleft() if self._to_say else bytes(2 * FRAME))
            else:
                received = json.loads(message.data)
                self.messages.append(received)
                if received["type"] == "clear":
                    self.clears.append(len(self.frames))
            self._came.set()
        self._came.set()


@asynccontextmanager
async def open_socket(url: str, **options: Any) -> AsyncIterator[WebPhone]:
    """Connect with that URL. Raises `aiohttp.WSServerHandshakeError` if the server refuses."""
    async with aiohttp.ClientSession(trust_env=False) as session, session.ws_connect(url, **options) as socket:
        phone = WebPhone(socket)
        try:
            yield phone
        finally:
            phone.talking.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await phone.talking


@asynccontextmanager
async def web_call(client: Client, agent_id: str, **fields: Any) -> AsyncIterator[tuple[str, WebPhone]]:
    """Create a test call and connect; yields its id and the browser."""
    created = await client.v1("POST", "calls/test", {"agentId": agent_id, **fields})
    async with open_socket(created["websocketUrl"]) as phone:
        yield created["call"]["id"], phone
