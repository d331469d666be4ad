"""The Pipecat server that the turn benchmark is compared with (a worker process): Pipecat over its telephony WebSocket,
with models that answer at once. It runs in build/peer-turn and imports nothing of Trunkline but `bench.worker_process`.

Advantages of Pipecat in this comparison: no SIP, no RTP, no jitter buffer, no recording, no database, no log, 8 kHz
throughout so that nothing is resampled, JSON with base64 as its own serializer writes it, no wait beyond that of voice
activity detection. `stop_secs` and all other settings are Pipecat's defaults.
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

from bench.worker_process import serve_commands

RATE: Final = 8000


class ScriptedSttProcessor(FrameProcessor):
    """Emits a fixed transcription when voice activity detection reports the end of speech."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Passes every frame on."""
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
        """Answers every context; passes other frames on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            for part in (LLMFullResponseStartFrame(), LLMTextFrame(self._answer), LLMFullResponseEndFrame()):
                await self.push_frame(part)
        else:
            await self.push_frame(frame, direction)


class ScriptedTtsService(TTSService):
    """Returns the speech that was synthesized before."""

    def __init__(self, speech: bytes) -> None:
        super().__init__(sample_rate=RATE, push_start_frame=True, push_stop_frames=True)
        self._speech = speech

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yields the whole speech at once."""
        yield TTSAudioRawFrame(self._speech, RATE, 1, context_id=context_id)


def _pipeline(socket: WebSocket, answer: str, speech: bytes, stop_s: float) -> Pipeline:
    """The pipeline of one session."""
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
            ScriptedTtsService(speech),
            transport.output(),
            context.assistant(),
        ]
    )


async def main() -> None:
    """Serves commands from stdin."""
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
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        return {"port": server.servers[0].sockets[0].getsockname()[1]}

    await serve_commands({"start": start})
    for server, serving in servers:
        server.should_exit = server.force_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
