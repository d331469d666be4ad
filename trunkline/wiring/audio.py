"""The server's audio: the engine on the endpoint's pump, the writer of recordings, and their metrics."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY

from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from sipcore.endpoint import Endpoint
from trunkline.wiring.audio_metrics import AudioCollector


def open_audio(endpoint: Endpoint, stack: AsyncExitStack) -> tuple[AudioEngine, RecordingWriter]:
    """Starts the audio engine and the recording writer, and registers the audio metrics."""
    writer = RecordingWriter()
    writer.start()
    stack.push_async_callback(asyncio.to_thread, writer.close)
    engine = AudioEngine(endpoint.pump, asyncio.get_running_loop().call_soon_threadsafe)
    engine.start()
    stack.push_async_callback(asyncio.to_thread, engine.close)
    collector = AudioCollector(endpoint.pump, engine)
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)
    return engine, writer
