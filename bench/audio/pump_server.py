"""The measured server of the pump benchmark (a worker process): SIP endpoint, pump, tick engine with voice activity
detection, recordings; no conversation."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.encryption import UNENCRYPTED, encryption_settings
from bench.worker_process import serve_commands
from config import logging as logs
from media.engine.call_audio import CallEvent
from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from media.turn_taking.settings import TurnSettings
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings

PORTS = range(40000, 42000)


class CountingListener:
    """Counts the media events of all calls and ignores their content."""

    events = 0

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Counts the events."""
        self.events += len(events)


class PumpServer:
    """Answers every call and, if `with_engine`, records it and detects voice activity."""

    def __init__(self, calls: int, with_engine: bool, folder: Path, encryption: Mapping[str, Any]) -> None:
        self.endpoint = Endpoint(
            EndpointSettings(
                host="127.0.0.1",
                port=0,
                rtp_first_port=PORTS[0],
                rtp_last_port=PORTS[-1],
                codecs=("PCMU",),
                max_calls=calls,
                max_invites_per_second=100_000,
                **encryption_settings(encryption),
            ),
            self._on_incoming,
        )
        self._folder = folder
        self._with_engine = with_engine
        self._writer = RecordingWriter()
        self._engine = AudioEngine(self.endpoint.pump, asyncio.get_running_loop().call_soon_threadsafe)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = CountingListener()
        self._spinning = threading.Event()

    async def start(self) -> dict[str, Any]:
        """Starts the endpoint, the recording writer and the engine. Returns the SIP port."""
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])
        self._writer.start()
        if self._with_engine:
            self._engine.start()
        return {"port": self.endpoint.sip_port}

    def _on_incoming(self, leg: Leg) -> None:
        task = asyncio.create_task(self._serve(leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, leg: Leg) -> None:
        media = await leg.answer()
        if self._with_engine:
            path = self._folder / f"{leg.sip_call_id}.wav"
            recording = self._writer.open(path, rate=media.rate, call_id=leg.sip_call_id)
            self._engine.add(media.slot, TurnSettings(), self._listener, recording)
        await leg.ended
        self._engine.remove(media.slot)
        leg.release()

    async def spin(self, on: bool) -> dict[str, Any]:
        """Starts or stops a Python thread that spins and thereby competes for the GIL."""
        if on:
            self._spinning.set()
            threading.Thread(target=_spin, args=(self._spinning,), daemon=True).start()
        else:
            self._spinning.clear()
        return {}

    async def stats(self, reset: bool) -> dict[str, Any]:
        """The counters of the pump and the engine; `reset` resets those of the pump."""
        pump, engine = self.endpoint.pump.stats(reset=reset), self._engine.stats
        return {
            "calls": pump.calls,
            "realtime": pump.realtime,
            "shards": pump.shards,
            "skipped_ticks": pump.skipped_ticks,
            "lateness_ms": pump.lateness_ms,
            "deviation_ms": pump.deviation_ms,
            "engine_ticks": engine.ticks,
            "engine_seconds": engine.tick_seconds,
            "engine_longest_ms": engine.longest_tick_seconds * 1000,
            "windows_run": engine.windows_run,
            "windows_skipped": engine.windows_skipped,
            "events": self._listener.events,
        }

    async def close(self) -> None:
        """Closes the engine, then the endpoint, then the recording writer."""
        self._spinning.clear()
        if self._with_engine:
            await asyncio.to_thread(self._engine.close)
        await self.endpoint.close()
        await asyncio.to_thread(self._writer.close)


def _spin(on: threading.Event) -> None:
    (Path("/proc/self/task") / str(threading.get_native_id()) / "comm").write_text("spinning")
    count = 0
    while on.is_set():
        count += 1


async def main() -> None:
    """Serves commands from stdin."""
    logs.configure("error", "console")
    servers: list[PumpServer] = []
    with tempfile.TemporaryDirectory() as folder:

        async def start(calls: int, with_engine: bool, encryption: Mapping[str, Any] = UNENCRYPTED) -> dict[str, Any]:
            servers.append(PumpServer(calls, with_engine, Path(folder), encryption))
            return await servers[0].start()

        async def spin(on: bool) -> dict[str, Any]:
            return await servers[0].spin(on)

        async def stats(reset: bool) -> dict[str, Any]:
            return await servers[0].stats(reset)

        await serve_commands({"start": start, "spin": spin, "stats": stats})
        for server in servers:
            await server.close()


if __name__ == "__main__":
    asyncio.run(main())
