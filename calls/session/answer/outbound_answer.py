"""What an outbound call does with the verdict of answer detection (`voicemailDetection` of its agent)."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from calls.answer_detection.events import AnswerKind
from calls.answer_detection.settings import AnswerDetectionSettings
from calls.call_record.transcript import Transcript
from calls.conversation.speech_output import SpeechOutput
from calls.session.answer.answer_listener import MACHINES, AnswerListener
from calls.session.answer.reply_gate import TALKS_TO, ReplyGate
from calls.session.answer.voicemail_message import VoicemailMessage
from calls.session.client_hold import ClientHold
from calls.session.conversation_runner import BYE_DELAY_S
from calls.session.lifecycle import CallLifecycle
from media.engine.call_audio import CallAudio, CallEventListener
from media.engine.engine import AudioEngine
from models.protocols import SpeechToText
from storage.agents.agents import Agent
from storage.calls.calls import EndedReason

log = structlog.get_logger()


class OutboundAnswer:
    """Answer detection of one outbound call, from `listen` to `close`. A machine ends the call as `voicemail`; if the
    agent leaves messages, a voicemail ends the conversation (`is_voicemail` is done), and `leave_message` follows.
    People, call screening and menus talk with the agent; it waits silently in a queue."""

    def __init__(self, call_id: str, agent: Agent, lifecycle: CallLifecycle, hold: ClientHold) -> None:
        self.gate = ReplyGate(TALKS_TO | {AnswerKind.MENU})
        self.is_voicemail: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_id = call_id
        self._agent = agent
        self._lifecycle = lifecycle
        self._hold = hold
        self._listener: AnswerListener | None = None
        self._changed = asyncio.Event()
        self._log = log.bind(call_id=call_id)

    def listen(
        self, events: CallEventListener, rate: int, engine: AudioEngine, recognizer: SpeechToText
    ) -> AnswerListener:
        """Begin, at the answer. Returns the listener of the call's events, which passes them on to `events`."""
        self._listener = AnswerListener(
            call_id=self._call_id,
            settings=AnswerDetectionSettings(self._agent.language_hint),
            rate=rate,
            events=events,
            now_ms=engine.now_ms,
            post=asyncio.get_running_loop().call_soon_threadsafe,
            on_change=self._on_change,
            is_held=lambda: self._hold.is_on,
        )
        self._listener.spot_phrases(recognizer)
        return self._listener

    def on_partial_text(self, text: str) -> None:
        """The recognizer's words of the open turn so far. Any thread."""
        if self._listener is not None:
            self._listener.partial_text(text)

    def on_user_text(self, text: str) -> str | None:
        """The words of a turn that has ended. Returns "" if they get no response, because a machine has said them."""
        if self._listener is None:
            return None
        self._listener.final_text(text)
        return "" if self._is_machine else None

    def reason_of(self, reason: EndedReason) -> EndedReason:
        """Returns why the call ends, if the callee hangs up for this reason: a voicemail may do so at any time."""
        return "voicemail" if self._is_machine else reason

    def timeline_items(self) -> list[dict[str, Any]]:
        """The verdicts as they are stored."""
        return [] if self._listener is None else self._listener.timeline_items()

    def close(self) -> None:
        """The call ends."""
        if self._listener is not None:
            self._listener.stop()

    async def leave_message(self, text: str, output: SpeechOutput, audio: CallAudio, transcript: Transcript) -> None:
        """Leave a message in the voicemail once it records, then end the call. If the voicemail does not get so far
        within the time limits of answer detection, there is no message."""
        message = VoicemailMessage(self._call_id, text, output, audio)
        assert self._listener is not None
        self._listener.events = message
        leaving = asyncio.ensure_future(self._leave(message, transcript))
        try:
            await asyncio.wait((leaving, self._lifecycle.ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            await asyncio.wait((leaving,))
        if not leaving.cancelled():
            leaving.result()
            await asyncio.wait((self._lifecycle.ending,), timeout=BYE_DELAY_S)
        self._lifecycle.end("voicemail")

    async def _leave(self, message: VoicemailMessage, transcript: Transcript) -> None:
        if not await message.prepare():
            return
        listener = self._listener
        assert listener is not None
        while not (listener.message_may_start or listener.closed):
            self._changed.clear()
            await self._changed.wait()
        if listener.message_may_start:
            await message.play(transcript)
        else:
            self._log.warning("call.voicemail_message_not_left", kind=listener.kind)

    @property
    def _is_machine(self) -> bool:
        return self._listener is not None and self._listener.kind in MACHINES

    def _on_change(self) -> None:
        listener = self._listener
        assert listener is not None
        self.gate.update(listener)
        self._changed.set()
        if listener.kind is AnswerKind.VOICEMAIL and self._agent.voicemail_detection == "leave_message":
            if not self.is_voicemail.done():
                self.is_voicemail.set_result(None)
        elif listener.kind in MACHINES:
            self._lifecycle.end("voicemail")
