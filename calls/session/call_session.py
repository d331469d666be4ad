"""The session of one call with a SIP leg, from ringing to its stored end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, Final

import structlog

from calls.call_record.context_variables import substitute
from calls.call_record.end_reason import end_status_of, ended_reason_of, q850_cause_of, sip_end_of
from calls.call_record.media_quality import final_media_quality
from calls.call_record.metering import NO_USAGE, UsageMeter
from calls.call_record.outcome import CallOutcome
from calls.call_record.sip_trace import TracedCall
from calls.call_record.transcript import Transcript
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.event_queue import EventQueue, NoteReceived, TransferRequested
from calls.conversation.prompt_prefill import PromptPrefill
from calls.conversation.response_generator import first_prompt
from calls.conversation.speech_input import add_call, report_partial_transcript
from calls.session.agent_config import AgentModels, conversation_config, models_for, turn_settings
from calls.session.answer.outbound_answer import OutboundAnswer
from calls.session.best_effort_write import best_effort_write_after_start
from calls.session.call_listener import CallListener
from calls.session.call_observer import BothObservers, CallObserver
from calls.session.call_recording import CallRecording
from calls.session.call_snapshot import CallSnapshot
from calls.session.client_hold import ClientHold
from calls.session.conversation_runner import (
    CallParticipants,
    ConversationRunner,
    SpeechStreams,
    load_tools,
    open_speech_streams,
)
from calls.session.dependencies import CallDependencies
from calls.session.leg_hold_music import LegHoldMusic
from calls.session.lifecycle import CallLifecycle
from calls.session.peer_reroute import ReferHandler, ReferSupport, ReroutePolicy, trunk_address_check
from calls.session.takeover import Takeover
from calls.session.transfer.bridged_legs import ConnectedLeg
from calls.session.transfer.call_transfers import CallTransfers, TransferDependencies
from calls.tools.toolset import ToolSet
from config.clock import utc_now
from config.errors import Conflict
from media.engine.call_audio import CallAudio
from models.runtime.request_context import requests_for
from sipcore.dialogs.call_leg import CallLeg
from sipcore.dialogs.leg import Leg, LegEnd, Media
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call, EndedReason
from storage.calls.transfers import Transfer, TransferOrder
from storage.phone_numbers.phone_numbers import PhoneNumber

log = structlog.get_logger()

_REJECTIONS: Final[Mapping[EndedReason | None, int]] = {"error": 500, "server_shutdown": 503}


class CallSession:
    """`run` runs a call that was admitted or placed until its end is stored; `end` ends it from outside."""

    has_leg: Final = True

    def __init__(
        self,
        *,
        call: Call,
        agent: Agent,
        number: PhoneNumber | None,
        leg: CallLeg,
        deps: CallDependencies,
        transfers: ReferSupport | None = None,
        lifecycle: CallLifecycle | None = None,
        transfer_dependencies: TransferDependencies | None = None,
        observer: CallObserver | None = None,
    ) -> None:
        """`number` is None for a leg without SIP. `observer` follows the call.
        Without `transfers` every REFER of the peer is declined. Without `lifecycle` the call begins as RINGING.
        Without `transfer_dependencies` the agent cannot transfer the call."""
        self.call = call
        self._agent = agent
        self._number = number
        self._leg = leg
        self._deps = deps
        self._lifecycle = CallLifecycle() if lifecycle is None else lifecycle
        self._audio: CallAudio | None = None
        self._conversation: Conversation | None = None
        self._meter = UsageMeter()
        self._events: EventQueue | None = None
        self._recorded = False
        self._log = log.bind(call_id=call.id)
        self._music = LegHoldMusic(deps.hold_music, leg, agent, call.id)
        self._hold = ClientHold(call.id, self._music)
        screened = call.direction == "outbound" and agent.voicemail_detection != "off"
        self._answer = OutboundAnswer(call.id, agent, self._lifecycle, self._hold) if screened else None
        self._live = deps.live_calls.of(call)
        self._live.on_row(call)
        self._observer: CallObserver = self._live if observer is None else BothObservers(self._live, observer)
        self._transfers: CallTransfers | None = None
        if transfer_dependencies is not None:
            self._transfers = CallTransfers(
                call=call,
                agent=agent,
                leg=leg,
                music=self._music,
                hold=self._hold,
                lifecycle=self._lifecycle,
                meter=self._meter,
                deps=deps,
                transfer_dependencies=transfer_dependencies,
                transcript=lambda: self._conversation.transcript.items() if self._conversation else [],
                on_transfer=self._observer.on_transfer,
            )
        self._takeover: Takeover | None = None
        if transfer_dependencies is not None:
            self._takeover = Takeover(transfer_dependencies.pump, self._lifecycle, deps)
        if isinstance(leg, Leg) and number is not None:
            self._allow_takeovers(leg, number, transfers)

    def _allow_takeovers(self, leg: Leg, number: PhoneNumber, transfers: ReferSupport | None) -> None:
        call, deps = self.call, self._deps
        leg.may_be_replaced_by = trunk_address_check(number, deps.aliases_of)
        if transfers is not None:
            leg.on_refer = ReferHandler(
                call=call,
                policy=ReroutePolicy(call, number, deps.database, deps.aliases_of),
                transfers=transfers,
                ring_timeout_s=deps.ring_timeout_s,
                ending=self._lifecycle.ending,
            )

    def snapshot(self) -> CallSnapshot:
        """The state of the call at this moment."""
        return CallSnapshot(self.call, self._leg, self._lifecycle.answered_at, held=self._hold.is_on)

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        self._lifecycle.end(reason)

    async def transfer(self, order: TransferOrder) -> Transfer:
        """Start a transfer that a client asks for; returns it as stored. Raises `Invalid` for an unknown target,
        `Conflict` if the agent does not talk with the caller or another transfer is under way, and the errors of
        outbound calls."""
        if self._transfers is None or self._events is None:
            raise Conflict("The call is not in progress")
        transfer = await self._transfers.accept(order)
        self._events.put(TransferRequested(order))
        return transfer

    def whisper(self, text: str, author: str) -> None:
        """Give the agent a note, which the caller does not hear. Raises `Conflict` if the agent does not talk with the
        caller."""
        self._require_agent().put(NoteReceived(text, author))

    def check_takeover(self) -> None:
        """Raises `Conflict` if nobody can take the call over, because the agent does not talk with the caller."""
        self._require_agent()
        if self._takeover is None:
            raise Conflict("The call cannot be taken over")

    def take_over(self, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """Connect a person of this name, who has come on this leg, with the caller in the agent's place. Returns what
        is done once the call is to end. Raises `Conflict`, and then leaves the leg to its owner."""
        self.check_takeover()
        assert self._takeover is not None
        self._takeover.join(leg, name)
        return self._lifecycle.ending

    def _require_agent(self) -> EventQueue:
        if self._events is None or not self._lifecycle.is_active or any(each.done() for each in self._handovers):
            raise Conflict("The call is not in progress with the agent")
        return self._events

    def listen(self) -> CallListener:
        """Listen in. Raises `Conflict` if the call is not in progress."""
        if self._audio is None or self._audio.is_over or not self._lifecycle.is_active:
            raise Conflict("The call is not in progress")
        return CallListener(self._audio, lambda: self._conversation.timeline if self._conversation else None)

    def set_held(self, on: bool) -> None:
        """Put the caller on hold, or resume the call. Raises `Conflict` if the call is not in progress."""
        if not self._lifecycle.is_active:
            raise Conflict("The call is not in progress")
        self._hold.set(on)

    async def run(self) -> None:
        """Ring, answer or be answered, hold the conversation, hang up, store the end. An error ends this call as
        `error` and is logged once. Raises `StorageUnavailable` if the end could not be stored."""
        self._leg.ended.add_done_callback(self._on_leg_ended)
        traces = None if self._number is None else self._deps.sip_traces
        if traces is not None and self._number is not None:
            traces.start(TracedCall(self.call.id, self._number.id), self._leg.facts)
        try:
            await self._ring_and_converse()
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._log.error("call.failed", error=repr(_first_error(error)), exc_info=error)
            self.end("error")
        reason = await self._lifecycle.ending
        await self._hang_up(reason)
        if self._transfers is not None:
            await self._transfers.wait_stored()
        if self._takeover is not None:
            await self._takeover.wait_transcribed()
        media_quality = final_media_quality(self._leg, self.call.id)
        established = self._lifecycle.is_answered and self._leg.is_established
        if self._lifecycle.is_answered and not established:
            self._log.warning("call.no_ack", remedy="see whether the peer got the 200 OK, and its Contact header")
        self._release_media()
        outcome = self._outcome(reason, media_quality, established=established)
        try:
            await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
        finally:
            self._lifecycle.mark_ended()
            if traces is not None:
                traces.on_call_ended(self.call.id)

    def _outcome(self, reason: EndedReason, media_quality: dict[str, Any] | None, *, established: bool) -> CallOutcome:
        """A call that was not established was not answered: nobody heard what was said, and it costs nothing."""
        conversation, lifecycle = self._conversation, self._lifecycle
        transcript = conversation.transcript if conversation else Transcript()
        return CallOutcome(
            status=end_status_of(reason, answered=established),
            reason=reason,
            answered_at=lifecycle.answered_at if established else None,
            ended_at=lifecycle.ended_at or utc_now(),
            transcript=transcript.items(words=True) if established else (),
            timeline=[
                *(conversation.timeline.items() if conversation else ()),
                *(self._answer.timeline_items() if self._answer else ()),
            ],
            turn_count=transcript.turn_count,
            recorded=self._recorded,
            media_quality=media_quality,
            sip_end=self._sip_end,
            usage=self._meter.usage() if established else NO_USAGE,
            transfer_ends=() if self._transfers is None else self._transfers.ends,
            child_call_ids=() if self._transfers is None else self._transfers.ids,
        )

    @property
    def _sip_end(self) -> dict[str, Any] | None:
        """None while the leg goes on, and for one without SIP."""
        ended = self._leg.ended
        return sip_end_of(ended.result()) if ended.done() and ended.result().has_sip else None

    async def _ring_and_converse(self) -> None:
        """Run the call until it is hung up. Afterwards the reason of its end is known, or the leg is about to end."""
        models = models_for(self._agent, self._deps.models)
        number = "" if self._number is None else self._number.number
        participants = CallParticipants(self.call, self._agent, number, self._leg, self._meter)
        config = conversation_config(self._agent, participants.values, self.call.id)
        _, tools = await asyncio.gather(
            self._send_ringing(), load_tools(participants, self._deps, can_transfer=self._transfers is not None)
        )
        with closing(PromptPrefill(models.llm)) as prefill:
            with requests_for(participants.request_context):
                prefill.start(first_prompt(self.call.id, config, tools))
            await self._answer_and_converse(participants, models, config, tools)

    async def _answer_and_converse(
        self, participants: CallParticipants, models: AgentModels, config: ConversationConfig, tools: ToolSet
    ) -> None:
        media = await self._connect()
        if media is None:
            return
        answered_at = self._lifecycle.mark_answered()
        self._lifecycle.mark_active()
        self._live.on_answered(answered_at, self._leg)
        self._log.info("call.answered", codec=media.codec, rate=media.rate, models=models.names)
        with closing(
            open_speech_streams(models, participants, tools, media.rate, self._on_partial_transcript)
        ) as speech_streams:
            async with self._call_audio(media, speech_streams, models) as (audio, events):
                runner = ConversationRunner(
                    participants=participants,
                    deps=self._deps,
                    models=models,
                    config=config,
                    speech_streams=speech_streams,
                    tools=tools,
                    audio=audio,
                    events=events,
                    answered_at=answered_at,
                    since_answer_ms=self._lifecycle.since_answer_ms(),
                    transfers=self._transfers,
                    handovers=self._handovers,
                    gate=None if self._answer is None else self._answer.gate,
                    on_user_text=(lambda _: None) if self._answer is None else self._answer.on_user_text,
                    hold=self._hold,
                    observer=self._observer,
                    live=self._live,
                )
                self._conversation = runner.conversation
                self._events = events
                try:
                    await runner.run(self._lifecycle)
                    await self._run_handover(runner, audio, participants)
                finally:
                    await self._music.close()
                    if self._takeover is not None:
                        await self._takeover.close()
                    if self._transfers is not None:
                        await self._transfers.close()

    @property
    def _handovers(self) -> list[asyncio.Future[Any]]:
        """What ends the conversation and not the call."""
        transfers, answer, takeover = self._transfers, self._answer, self._takeover
        return [
            *([transfers.connected] if transfers else ()),
            *([answer.is_voicemail] if answer else ()),
            *([takeover.joined] if takeover else ()),
        ]

    async def _run_handover(self, runner: ConversationRunner, audio: CallAudio, participants: CallParticipants) -> None:
        """Run what follows the conversation, if it has not ended the call."""
        if self._takeover is not None and self._takeover.joined.done():
            if not self._lifecycle.is_ending:
                caller = ConnectedLeg(self.call.id, self._leg, self._music, self._hold)
                await self._takeover.run(caller, audio, participants, runner.conversation)
        elif self._transfers is not None and self._transfers.connected.done():
            await self._transfers.run_connected(audio, participants, runner.conversation)
        elif self._answer is not None and self._answer.is_voicemail.done():
            text = substitute(self._agent.voicemail_message or "", participants.values, call_id=self.call.id)
            await self._answer.leave_message(text, runner.output, audio, runner.conversation.transcript)

    async def _send_ringing(self) -> None:
        if self._is_inbound:
            await self._leg.send_ringing()

    async def _connect(self) -> Media | None:
        """Answer, or wait for the callee's answer. Returns None if the call ends before audio was negotiated."""
        if self._is_inbound:
            return await self._wait_for_media(self._leg.answer())
        return await self._wait_for_media(self._leg.wait_connected()) if await self._wait_answered() else None

    async def _wait_answered(self) -> bool:
        """Wait for the callee's answer, for `ring_timeout_s` at most. Returns False if the call ends first."""
        ringing = asyncio.create_task(self._store_ringing())
        await asyncio.wait(
            (self._leg.answered, self._lifecycle.ending),
            timeout=self._deps.ring_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        ringing.cancel()
        await asyncio.wait((ringing,))
        if not ringing.cancelled():
            ringing.result()
        if self._leg.answered.done():
            self._live.on_answered(self._lifecycle.mark_answered(), self._leg)
            return True
        if not self._lifecycle.is_ending:
            self.end("no_answer" if await self._leg.latest_status() else "unreachable")
        return False

    async def _store_ringing(self) -> None:
        await asyncio.wait((self._leg.ringing,))
        self._log.info("call.ringing")
        self._live.on_ringing()
        await best_effort_write_after_start(self._deps, self.call.id, partial(calls.mark_ringing, call_id=self.call.id))

    async def _wait_for_media(self, connecting: Coroutine[Any, Any, Media]) -> Media | None:
        """Returns the negotiated audio; None if the call ends first. A peer that confirms the dialog and never
        negotiates audio is a media timeout, too."""
        answering = asyncio.ensure_future(connecting)
        await asyncio.wait(
            (answering, self._lifecycle.ending),
            timeout=self._deps.rtp_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not answering.done() and self._was_ended_by_bye:  # right after the answer
            answering.cancel()
            return self._leg.media
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
    async def _call_audio(
        self, media: Media, speech_streams: SpeechStreams, models: AgentModels
    ) -> AsyncIterator[tuple[CallAudio, EventQueue]]:
        """Adds the call to the audio engine and records it, if its agent does. Leaving the block hangs up and closes
        the recording."""
        recording = None
        if self._agent.recording_enabled:
            recording = CallRecording(
                self._deps.recordings,
                self._deps.data_dir,
                self.call,
                media.rate,
                self._deps.engine.now_ms() - self._lifecycle.since_answer_ms(),
            )
        events = EventQueue(self._observer.on_event)
        listen = None if self._answer is None else self._answer.listen
        answer = None if listen is None else listen(events, media.rate, self._deps.engine, models.stt)
        try:
            self._audio = add_call(
                self._deps.engine,
                media.slot,
                turn_settings(self._agent),
                answer or events,
                stt=speech_streams.stt,
                end_of_turn=speech_streams.end_of_turn,
                end_of_turn_latency_ms=models.end_of_turn.latency_ms,
                recording=None if recording is None else recording.recording,
            )
        except (KeyError, ValueError):
            if recording is not None:
                recording.recording.close()
            raise
        self._audio.monitor = answer
        self._hold.attach(self._audio)
        try:
            yield self._audio, events
        finally:
            if self._answer is not None:
                self._answer.close()
            self._deps.engine.remove(media.slot)
            await self._hang_up(self._lifecycle.reason)
            self._recorded = recording is not None and await recording.wait_closed()

    async def _hang_up(self, reason: EndedReason | None) -> None:
        """End the leg. An inbound call that the server ends before it was answered is rejected with 5xx, so that a
        proxy tries another node."""
        if self._leg.ended.done():
            return
        status = _REJECTIONS.get(reason) if self._is_inbound and not self._lifecycle.is_answered else None
        try:
            if status is not None:
                await self._leg.reject(status)
            else:
                await self._leg.hangup(q850_cause_of(reason))
        except Exception as error:  # noqa: BLE001 - the end of the call is stored all the same
            self._log.error("call.hangup_failed", error=repr(error), exc_info=error)

    def _release_media(self) -> None:
        """Free the pump's slot. A leg that was hung up before it had audio may get audio until it ends."""
        if self._leg.has_media:
            self._leg.release()
        else:
            self._leg.ended.add_done_callback(lambda _: self._leg.release())

    def _on_partial_transcript(self, text: str) -> None:
        """Called on a model's thread when the speech recognizer has other words."""
        self._observer.on_partial_transcript(text)
        if self._audio is not None:
            report_partial_transcript(self._audio, text, self._agent.language_hint)
        if self._answer is not None:
            self._answer.on_partial_text(text)

    def _on_leg_ended(self, ended: asyncio.Future[LegEnd]) -> None:
        if ended.cancelled() or not ended.result().by_peer:
            return
        answered = self._lifecycle.is_answered or self._leg.answered.done()
        reason = ended_reason_of(ended.result(), inbound=self._is_inbound, answered=answered)
        if self._answer is not None:
            reason = self._answer.reason_of(reason)
        if self._transfers is None or not self._transfers.defer_end(reason):
            self.end(reason)

    @property
    def _was_ended_by_bye(self) -> bool:
        """The peer has ended the leg with BYE, and so after the answer; CANCEL and a rejection have a status."""
        ended = self._leg.ended
        return ended.done() and not ended.cancelled() and ended.result().by_peer and ended.result().code < 300

    @property
    def _is_inbound(self) -> bool:
        return self._leg.facts.direction == "inbound"


def _first_error(error: BaseException) -> BaseException:
    """Returns the first error in an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
