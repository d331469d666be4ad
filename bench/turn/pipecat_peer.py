"""The peer of the turn's bench: Pipecat over its telephony WebSocket, with models that answer at once. It runs in
build/peer-turn and needs nothing of Trunkline but `bench.worker_process`.

In the peer's favour: no SIP, no RTP, no jitter buffer, no recording, no database, no log, 8 kHz throughout so that
nothing is resampled, JSON with base64 as its own serializer writes it, no wait beyond the voice activity's own.
`stop_secs` and all else are its defaults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.services.tts_service import TTSService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from bench.worker_process import obey

RATE: Final = 8000
CHUNK: Final = RATE // 50 * 2
"""Bytes of 20 ms."""


class ScriptedSttProcessor(FrameProcessor):
    """Knows the words when the voice activity says that speech has ended."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass everything on."""
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame) and direction is FrameDirection.DOWNSTREAM:
            await self.push_frame(TranscriptionFrame("hello there", "caller", "", finalized=True))


class ScriptedLlmProcessor(FrameProcessor):
    """Always gives the same answer."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self._answer = answer

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """A context is a question."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            for part in (LLMFullResponseStartFrame(), LLMTextFrame(self._answer), LLMFullResponseEndFrame()):
                await self.push_frame(part)
        else:
            await self.push_frame(frame, direction)


class ScriptedTtsService(TTSService):
    """Has spoken the answer before."""

    def __init__(self, sound: bytes) -> None:
        super().__init__(sample_rate=RATE, push_start_frame=True, push_stop_frames=True)
        self._sound = sound

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """All of it at once."""
        yield TTSAudioRawFrame(self._sound, RATE, 1, context_id=context_id)


def _pipeline(socket: WebSocket, answer: str, sound: bytes, stop_s: float) -> Pipeline:
    """One session."""
    serializer = TwilioFrameSerializer("bench", params=TwilioFrameSerializer.InputParams(auto_hang_up=False))
    transport = FastAPIWebsocketTransport(
        websocket=socket,
        params=FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=serializer),
    )
    turns = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0)])
    context = LLMContextAggregatorPair(LLMContext(), user_params=LLMUserAggregatorParams(user_turn_strategies=turns))
    voice_activity = SileroVADAnalyzer(params=VADParams(stop_secs=stop_s))
    return Pipeline(
        [
            transport.input(),
            VADProcessor(vad_analyzer=voice_activity),
            ScriptedSttProcessor(),
            context.user(),
            ScriptedLlmProcessor(answer),
            ScriptedTtsService(sound),
            transport.output(),
            context.assistant(),
        ]
    )


async def main() -> None:
    """Take orders."""
    logger.remove()
    servers: list[tuple[uvicorn.Server, asyncio.Task[None]]] = []

    async def start(answer: str, sound: str, stop_ms: int) -> dict[str, Any]:
        app, speech = FastAPI(), await asyncio.to_thread(Path(sound).read_bytes)

        @app.websocket("/")
        async def session(socket: WebSocket) -> None:
            await socket.accept()
            rates = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
            pipeline = _pipeline(socket, answer, speech, stop_ms / 1000)
            worker = PipelineWorker(pipeline, params=rates, idle_timeout_secs=None)
            runner = WorkerRunner(handle_sigint=False)
            await runner.add_workers(worker)
            await runner.run()

        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
        servers.append((server, asyncio.create_task(server.serve())))
        while not server.started:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        return {"port": server.servers[0].sockets[0].getsockname()[1]}

    await obey({"start": start})
    for server, serving in servers:
        server.should_exit = server.force_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
