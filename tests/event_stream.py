"""A client of a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

WAIT_S = 30.0


@dataclass(frozen=True)
class Event:
    """A received event. `name` is "" for one that only tells an id."""

    id: str
    name: str
    data: Any


class EventStream:
    """The events of one connection; all that were received are in `events`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[Event] = []
        self._taken = 0
        self._received = asyncio.Condition()
        self._ended = False

    async def read(self) -> None:
        """Read until the stream ends."""
        try:
            fields: dict[str, str] = {}
            async for line in self.response.content:
                text = line.decode().removesuffix("\n")
                if text:
                    name, _, value = text.partition(":")
                    fields[name] = value.removeprefix(" ")
                elif "id" in fields or "event" in fields:
                    data = json.loads(fields["data"]) if "data" in fields else None
                    await self._take(Event(fields.get("id", ""), fields.get("event", ""), data))
                    fields = {}
        except aiohttp.ClientError:
            pass
        finally:
            async with self._received:
                self._ended = True
                self._received.notify_all()

    async def _take(self, event: Event) -> None:
        async with self._received:
            self.events.append(event)
            self._received.notify_all()

    async def event(self, name: str, holds: Callable[[Any], bool] = lambda _: True) -> Event:
        """Wait for an event of this name with such data, after the one that was waited for last."""
        async with self._waiting_for(name), self._received:
            while True:
                for at in range(self._taken, len(self.events)):
                    if self.events[at].name == name and holds(self.events[at].data):
                        self._taken = at + 1
                        return self.events[at]
                assert not self._ended, f"the stream ended without {name}: {self.events}"
                await self._received.wait()

    @asynccontextmanager
    async def _waiting_for(self, name: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                yield
        except TimeoutError as error:
            raise AssertionError(f"no such {name} after {self._taken} of {self.events}") from error

    async def ended(self) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(WAIT_S), self._received:
            await self._received.wait_for(lambda: self._ended)

    def data(self, name: str, **fields: Any) -> list[Any]:
        """The data of all events so far of this name and with these fields."""
        return [
            each.data
            for each in self.events
            if each.name == name and all(each.data[field] == value for field, value in fields.items())
        ]


@asynccontextmanager
async def following(
    origin: str, key: str, *, after: str | None = None, path: str = "/v1/events", cookie: str | None = None
) -> AsyncIterator[EventStream]:
    """Follow the events of the organization with this API key, from the event `after` on; yields once the stream has
    begun. `cookie`: of a session, in place of the key."""
    client = {"Authorization": f"Bearer {key}"} if cookie is None else {"Cookie": cookie}
    headers = {**client, **({} if after is None else {"Last-Event-ID": after})}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(headers=headers, trust_env=False, timeout=timeout) as session,
        session.get(f"{origin}{path}") as response,
    ):
        assert response.status == 200, await response.text()
        stream = EventStream(response)
        reading = asyncio.create_task(stream.read())
        try:
            async with asyncio.timeout(WAIT_S), stream._received:
                await stream._received.wait_for(lambda: bool(stream.events))
            yield stream
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
