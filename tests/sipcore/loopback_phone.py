"""An endpoint on 127.0.0.1 with both ends of its calls in this process, and a reader of the audio of its pump."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from media.audio_port import INFO_COLUMNS, INFO_POSITION, Samples, row_of
from sipcore.audio.pump import Pump
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from tests.peers.ports import RTP_PORTS, free_port

CAPACITY = 22400
"""Samples of one read: 400 ms at 48 kHz."""


@dataclass
class Track:
    """All audio that one slot received and sent since it was followed."""

    first: int | None = None
    heard_parts: list[Samples] = field(default_factory=list)
    said_parts: list[Samples] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    info: list[NDArray[np.int64]] = field(default_factory=list)

    @property
    def received(self) -> Samples:
        """Received audio, int16[n]."""
        return np.concatenate([np.zeros(0, np.int16), *self.heard_parts])

    @property
    def sent(self) -> Samples:
        """Sent audio, int16[n], sample-aligned with `received`."""
        return np.concatenate([np.zeros(0, np.int16), *self.said_parts])


class AudioReader:
    """Reads the pump tick by tick, as the media engine does."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._heard = np.zeros((pump.rows, CAPACITY), np.int16)
        self._said = np.zeros((pump.rows, CAPACITY), np.int16)
        self._counts = np.zeros(pump.rows, np.int32)
        self._info = np.zeros((pump.rows, INFO_COLUMNS), np.int64)
        self.least = np.zeros(pump.rows, np.int32)
        self._tracks: dict[int, Track] = {}

    @property
    def arrays(self) -> tuple[Samples, Samples, NDArray[np.int32], NDArray[np.int64]]:
        """Those that `read` fills."""
        return self._heard, self._said, self._counts, self._info

    def follow(self, slot: int) -> Track:
        """Collect the received and sent audio of this slot from now on."""
        self.read()
        track = self._tracks[row_of(slot)] = Track()
        return track

    def read(self) -> int:
        """Drain the pump into the tracks; returns the number of rows that it filled."""
        rows = self._pump.read(*self.arrays, self.least)
        for row, track in self._tracks.items():
            count = int(self._counts[row])
            if row < rows and count:
                track.heard_parts.append(self._heard[row, :count].copy())
                track.said_parts.append(self._said[row, :count].copy())
                track.positions.append(int(self._info[row, INFO_POSITION]))
                track.counts.append(count)
                track.info.append(self._info[row].copy())
        return rows

    async def tick(self, *, read: bool = True) -> None:
        """Wait for a pump tick, without blocking the event loop, and read."""
        assert await asyncio.to_thread(self._pump.wait, 1000), "the pump does not tick"
        if read:
            self.read()

    async def ticks(self, count: int, *, read: bool = True) -> None:
        """Wait for that many ticks."""
        for _ in range(count):
            await self.tick(read=read)


@dataclass(frozen=True)
class Call:
    """Both legs of a call to ourselves, and their audio."""

    placed: Leg
    placed_media: Media
    taken: Leg
    taken_media: Media

    async def end(self) -> None:
        """Hang up and release the slots."""
        await self.placed.hangup()
        await asyncio.wait_for(asyncio.gather(self.placed.ended, self.taken.ended), 5)
        self.placed.release()
        self.taken.release()


class Phone:
    """The endpoint under test; `async with`."""

    def __init__(self, settings: EndpointSettings, host: str = "127.0.0.1") -> None:
        """`host`: where it listens, everywhere if need be; it is called on 127.0.0.1, or ::1 if that is all."""
        first, last = RTP_PORTS
        named = "[::1]" if host == "::1" else "127.0.0.1"
        self.settings = replace(settings, host=host, port=free_port(), rtp_first_port=first, rtp_last_port=last)
        self.incoming: asyncio.Queue[Leg] = asyncio.Queue()
        self.endpoint = Endpoint(self.settings, self.incoming.put_nowait)
        self.pump = self.endpoint.pump
        self.target = f"{named}:{self.settings.port}"
        self.uri = f"sip:100@{self.target}"

    async def __aenter__(self) -> Phone:
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1", "::1"])
        self.audio = AudioReader(self.pump)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.endpoint.close()

    async def next_leg(self) -> Leg:
        """The next inbound leg."""
        return await asyncio.wait_for(self.incoming.get(), 15)

    async def call(self, uri_parameters: str = "") -> Call:
        """Call ourselves and answer."""
        placed = await self.endpoint.call(self.uri + uri_parameters)
        taken = await self.next_leg()
        taken_media = await asyncio.wait_for(taken.answer(), 5)
        return Call(placed, await asyncio.wait_for(placed.wait_connected(), 5), taken, taken_media)
