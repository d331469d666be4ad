"""Screening of a cold transfer's target before the caller is connected with it. The agent says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog

from calls.conversation.speech_input import final_transcript
from calls.session.agent_config import models_for
from calls.session.conversation_runner import CallParticipants, SpeechStreams, open_speech_streams
from calls.session.dependencies import CallDependencies
from calls.session.rtp_timeout import wait_rtp_timeout
from calls.session.transfer.child_call import ChildCall
from calls.session.transfer.guarded_speech import log_recognizer_error, open_guarded_streams
from calls.session.transfer.result import TransferResult, result_of_child_end
from calls.session.transfer.target_screening import TargetScreening
from calls.tools.toolset import ToolSet
from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.turn_taking.events import TurnEnded
from models.protocols import SpeechToTextStream
from storage.agents.agents import Agent
from storage.calls.calls import Call

log = structlog.get_logger()


class ColdScreening:
    """`run` screens an answered child call. `cancelled` is done when the caller wants to stay with the agent. Without a
    speech recognizer, and after its error, cadence and tones decide alone."""

    def __init__(
        self, parent: Call, agent: Agent, child: ChildCall, deps: CallDependencies, cancelled: asyncio.Future[None]
    ) -> None:
        self._parent = parent
        self._agent = agent
        self._child = child
        self._deps = deps
        self._cancelled = cancelled
        self._screening = TargetScreening(child, agent, deps.engine, waits=False)
        self._stt: SpeechToTextStream | None = None
        self._recognizing: set[asyncio.Task[None]] = set()
        self._over = False
        self._log = log.bind(call_id=child.call.id)

    async def run(self) -> TransferResult | None:
        """Returns None once the caller is to be connected, else what came of the call."""
        child, screening = self._child, self._screening
        streams = open_guarded_streams(
            self._open_streams, lambda error: log_recognizer_error(child.call.id, error), screening.recognizer_failed
        )
        try:
            audio = self._open_audio(streams)
            try:
                await self._wait()
            finally:
                self._over = True
                screening.stop_listening(audio)
        finally:
            for task in self._recognizing:
                task.cancel()
            streams.close()
        if screening.ended.done():
            return screening.ended.result()
        if self._cancelled.done():
            return TransferResult("cancelled")
        if child.lifecycle.is_ending:
            return result_of_child_end(child.lifecycle.reason, "the screening ended")
        return None

    def _open_audio(self, streams: SpeechStreams) -> CallAudio:
        self._stt, models = streams.stt, models_for(self._agent, self._deps.models)
        audio = self._child.open_audio(
            self._screening.listen(self, models.stt),
            streams.stt,
            streams.end_of_turn,
            models.end_of_turn.latency_ms,
        )
        audio.monitor = self._child.answer
        return audio

    async def _wait(self) -> None:
        """Wait for the verdict, or for an end."""
        screening, child = self._screening, self._child
        watching = asyncio.create_task(self._watch_rtp())
        ends = (child.lifecycle.ending, self._cancelled, watching)
        waited: tuple[asyncio.Future[Any], ...] = (screening.reached, screening.ended, *ends)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            await asyncio.wait((watching,))

    async def _watch_rtp(self) -> None:
        with suppress(KeyError):  # the leg has ended
            await wait_rtp_timeout(self._child.leg, self._deps.rtp_timeout_s, lambda: self._child.hold.is_on)
            self._child.lifecycle.end("media_timeout")

    def _open_streams(self) -> SpeechStreams:
        child = self._child
        participants = CallParticipants(child.call, self._agent, self._parent.customer_number, child.leg, child.meter)
        models = models_for(self._agent, self._deps.models)
        return open_speech_streams(models, participants, ToolSet(), child.media.rate, self._screening.partial_text)

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Recognize the target's turns; for the audio engine."""
        for event in events if not self._over else ():
            match event:
                case TurnEnded() if self._stt is not None:
                    task = asyncio.create_task(self._recognize(self._stt))
                    self._recognizing.add(task)
                    task.add_done_callback(self._recognizing.discard)
                case AudioFailure(error=error):
                    self._log.error("call.failed", error=repr(error), exc_info=error)
                    self._child.lifecycle.end("error")
                case _:
                    pass

    async def _recognize(self, stt: SpeechToTextStream) -> None:
        self._screening.final_text(await final_transcript(stt))
