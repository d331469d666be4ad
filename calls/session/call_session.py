"""One live call, from ringing to its stored end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from datetime import datetime
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
import structlog

from calls.call_record.end_reason import end_status_of, ended_reason_of, q850_cause_of, sip_end_of
from calls.call_record.media_quality import final_media_quality
from calls.call_record.metering import UsageMeter
from calls.call_record.outcome import CallOutcome
from calls.call_record.sip_trace import TracedCall
from calls.call_record.transcript import Transcript
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.event_queue import EventQueue
from calls.conversation.prompt_prefill import PromptPrefill
from calls.conversation.response_generator import first_prompt
from calls.session.agent_config import AgentModels, conversation_config, models_for, turn_settings
from calls.session.conversation_runner import CallParticipants, ConversationRunner, load_tools, open_speech_input
from calls.session.dependencies import CallDependencies
from calls.session.snapshot import CallSnapshot
from calls.session.transfer import ReferHandler, ReroutePolicy, TransferSupport, trunk_address_check
from calls.tools.toolset import ToolSet
from config.clock import utc_now
from media.engine.call_audio import CallAudio
from media.recording import Recording, RecordingResult
from sipcore.dialogs.leg import Leg, LegEnd, Media
from storage.agents.agents import Agent
from storage.calls import calls, recordings
from storage.calls.calls import Call, EndedReason
from storage.database.database import StorageTrouble
from storage.phone_numbers.phone_numbers import PhoneNumber

RECORDING_CLOSES_S: Final = 5.0
"""A recording that takes longer to close counts as it is."""

log = structlog.get_logger()


class CallSession:
    """`run` is the whole life of a call that was admitted, or placed; `end` ends it from outside."""

    has_leg: Final = True
    """It has a leg."""

    def __init__(
        self,
        call: Call,
        agent: Agent,
        number: PhoneNumber,
        leg: Leg,
        equipment: CallDependencies,
        transfers: TransferSupport | None = None,
    ) -> None:
        """Without `transfers` the peer cannot have us call somebody else, whatever its number allows."""
        self.call = call
        self._agent = agent
        self._number = number
        self._leg = leg
        leg.may_be_replaced_by = trunk_address_check(number, equipment.aliases_of)
        self._house = equipment
        self._ending: asyncio.Future[EndedReason] = asyncio.get_running_loop().create_future()
        self._answered_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._sound_of_call: CallAudio | None = None
        self._conversation: Conversation | None = None
        self._meter = UsageMeter()
        self._recorded = False
        self._log = log.bind(call_id=call.id)
        if transfers is not None:
            guide = ReroutePolicy(call, number, equipment.database, equipment.aliases_of)
            leg.on_refer = ReferHandler(call, guide, transfers, equipment.ring_timeout_s, self._ending)

    def snapshot(self) -> CallSnapshot:
        """How it stands."""
        return CallSnapshot(self.call, self._leg, self._answered_at)

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        if not self._ending.done():
            self._ended_at = utc_now()
            self._ending.set_result(reason)

    async def run(self) -> None:
        """Ring, answer or be answered, talk, hang up, store the end. Whatever goes wrong ends this call as `error` and
        is logged once. Raises `StorageTrouble` when the end could not be stored."""
        self._leg.ended.add_done_callback(self._leg_ended)
        if self._house.sip_traces is not None:
            self._house.sip_traces.start(TracedCall(self.call.id, self._number.id), self._leg.facts)
        try:
            await self._talk()
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._log.error("call.failed", error=repr(_root_of(error)), exc_info=error)
            self.end("error")
        reason = await self._ending
        await self._hang_up(reason)
        media_quality = final_media_quality(self._leg, self.call.id)
        self._release()
        talk = self._conversation.transcript if self._conversation else Transcript()
        outcome = CallOutcome(
            status=end_status_of(reason, answered=self._answered_at is not None),
            reason=reason,
            answered_at=self._answered_at,
            ended_at=self._ended_at or utc_now(),
            transcript=talk.items(),
            timeline=self._conversation.timeline.items() if self._conversation else (),
            turn_count=talk.turn_count,
            recorded=self._recorded,
            media_quality=media_quality,
            sip_end=sip_end_of(self._leg.ended.result()) if self._leg.ended.done() else None,
            usage=self._meter.usage(),
        )
        try:
            await self._house.finalizer.finish(self.call.id, outcome, self._agent)
        finally:
            if self._house.sip_traces is not None:
                self._house.sip_traces.call_ended(self.call.id)

    async def _talk(self) -> None:
        """The call up to its hanging up. When this returns, the reason of its end is known or on its way."""
        models = models_for(self._agent, self._house.models)
        parties = CallParticipants(self.call, self._agent, self._number.number, self._leg, self._meter)
        script = conversation_config(self._agent, parties.values, self.call.id)
        _, belt = await asyncio.gather(self._ring(), load_tools(parties, self._house))
        with closing(PromptPrefill(models.llm)) as ahead:
            ahead.start(first_prompt(self.call.id, script, belt))
            await self._meet(parties, models, script, belt)

    async def _meet(
        self, parties: CallParticipants, models: AgentModels, script: ConversationConfig, belt: ToolSet
    ) -> None:
        """From the answer on."""
        media = await self._pick_up()
        if media is None:
            return
        self._answered_at = self._answered_at or utc_now()
        self._log.info("call.answered", codec=media.codec, rate=media.rate, models=models.names)
        with closing(open_speech_input(models, parties, belt, media.rate, self._has_words)) as senses:
            async with self._sound(media, models.end_of_turn.latency_ms) as (sound, inbox):
                talk = ConversationRunner(
                    parties, self._house, models, script, senses, belt, sound, inbox, self._answered_at
                )
                self._conversation = talk.conversation
                await talk.run(self._ending, self.end)

    async def _ring(self) -> None:
        if self._inbound:
            await self._leg.send_ringing()

    async def _pick_up(self) -> Media | None:
        """Answer, or wait until the callee does; None when the call ends before there is sound."""
        if self._inbound:
            return await self._sound_after(self._leg.answer())
        return await self._sound_after(self._leg.connected()) if await self._is_answered() else None

    async def _is_answered(self) -> bool:
        """Whether the callee takes the call before `ring_timeout_s` is over and before it ends for another reason."""
        ringing = asyncio.create_task(self._note_ringing())
        await asyncio.wait(
            (self._leg.answered, self._ending),
            timeout=self._house.ring_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        ringing.cancel()
        await asyncio.wait((ringing,))
        if not ringing.cancelled():
            ringing.result()
        if self._leg.answered.done():
            self._answered_at = utc_now()
            return True
        if not self._ending.done():
            self.end("no_answer" if await self._leg.latest_status() else "unreachable")
        return False

    async def _note_ringing(self) -> None:
        await asyncio.wait((self._leg.ringing,))
        self._log.info("call.ringing")
        await self._store(partial(calls.rings, call_id=self.call.id))

    async def _sound_after(self, connecting: Coroutine[Any, Any, Media]) -> Media | None:
        """The sound, once there is some; None when the call ends first. A peer may confirm the dialog and never agree
        on any sound: that is a media timeout as any other."""
        answering = asyncio.ensure_future(connecting)
        await asyncio.wait(
            (answering, self._ending), timeout=self._house.rtp_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not answering.done():
            self.end("media_timeout")
            answering.cancel()
            await asyncio.wait((answering,))
            return None
        try:
            return answering.result()
        except ConnectionError:
            return None

    @asynccontextmanager
    async def _sound(self, media: Media, ask_ahead_ms: float) -> AsyncIterator[tuple[CallAudio, EventQueue]]:
        """The call in the audio engine, recorded. Leaving it hangs up and closes the recording."""
        closed: asyncio.Future[RecordingResult] = asyncio.get_running_loop().create_future()
        recording = self._record(media, closed)
        inbox = EventQueue()
        try:
            settings = turn_settings(self._agent)
            sound = self._house.engine.add(media.slot, settings, inbox, recording, ask_ahead_ms)
        except (KeyError, ValueError):
            recording.close()
            raise
        self._sound_of_call = sound
        try:
            yield sound, inbox
        finally:
            self._house.engine.remove(media.slot)
            await self._hang_up(self._ending.result() if self._ending.done() else None)
            self._recorded = await self._close_recording(recording, closed)

    def _record(self, media: Media, closed: asyncio.Future[RecordingResult]) -> Recording:
        loop = closed.get_loop()
        return self._house.recordings.open(
            recordings.path_of(self._house.data_dir, self.call.id, self.call.created_at),
            rate=media.rate,
            call_id=self.call.id,
            on_closed=lambda end: _tell(loop, closed, end),
        )

    async def _close_recording(self, recording: Recording, closed: asyncio.Future[RecordingResult]) -> bool:
        """Wait until the engine has let go of the call and its recording is on the disk; whether it holds sound."""
        await asyncio.wait((closed,), timeout=RECORDING_CLOSES_S)
        if closed.done():
            return closed.result().frames > 0
        self._log.error("recording.not_closed", path=str(recording.path), waited_s=RECORDING_CLOSES_S)
        recording.close()
        return await asyncio.to_thread(recordings.last_written, self._house.data_dir, self.call) is not None

    async def _store(self, write: Callable[[sa.Connection], bool]) -> None:
        try:
            await self._house.database.write(write)
        except StorageTrouble as trouble:
            tell = self._log.debug if trouble.disk_full else self._log.warning  # a full disk is told once
            tell("call.progress_not_stored", cause=trouble.cause)

    async def _hang_up(self, reason: EndedReason | None) -> None:
        """End the leg; a call that failed before it was answered is refused with 500."""
        if self._leg.ended.done():
            return
        try:
            if reason == "error" and self._inbound and self._answered_at is None:
                await self._leg.reject(500)
            else:
                await self._leg.hangup(q850_cause_of(reason))
        except Exception as error:  # noqa: BLE001 - what follows a call follows it whatever SIP says
            self._log.error("call.hangup_failed", error=repr(error), exc_info=error)

    def _release(self) -> None:
        """Give the slot back. The sound of a leg that was given up before it had any may come until it ends."""
        if self._leg.has_media:
            self._leg.release()
        else:
            self._leg.ended.add_done_callback(lambda _: self._leg.release())

    def _has_words(self, backchannel: bool) -> None:
        """From a model's thread: the recognizer has words."""
        if self._sound_of_call is not None:
            self._sound_of_call.on_transcript(backchannel)

    def _leg_ended(self, ended: asyncio.Future[LegEnd]) -> None:
        if ended.cancelled() or not ended.result().by_peer:
            return
        answered = self._answered_at is not None or self._leg.answered.done()
        self.end(ended_reason_of(ended.result(), inbound=self._inbound, answered=answered))

    @property
    def _inbound(self) -> bool:
        return self._leg.facts.direction == "inbound"


def _tell(loop: asyncio.AbstractEventLoop, closed: asyncio.Future[RecordingResult], end: RecordingResult) -> None:
    """From the writer's thread; a loop that is gone needs no news."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(closed.set_result, end)


def _root_of(error: BaseException) -> BaseException:
    """The first error in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
