"""The child call of a transfer: the leg to the target, from its INVITE to its stored end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import structlog

from calls.call_record.end_reason import end_status_of, ended_reason_of, q850_cause_of, sip_end_of
from calls.call_record.media_quality import final_media_quality
from calls.call_record.metering import UsageMeter
from calls.call_record.outcome import CallOutcome, TransferEnd
from calls.call_record.sip_trace import TracedCall
from calls.call_record.transcript import Transcript
from calls.conversation.conversation import Conversation
from calls.session.answer.answer_listener import AnswerListener
from calls.session.answer_storage import store_answer
from calls.session.call_listener import CallListener
from calls.session.call_recording import CallRecording
from calls.session.client_hold import ClientHold
from calls.session.dependencies import CallDependencies
from calls.session.leg_hold_music import LegHoldMusic
from calls.session.lifecycle import CallLifecycle
from calls.session.transfer.result import TransferResult, result_of_status
from config.clock import utc_now
from config.errors import Conflict
from media.engine.call_audio import CallAudio, CallEvent, CallEventListener, EndOfTurnSink, SpeechSink
from media.turn_taking.settings import TurnSettings
from sipcore.dialogs.leg import Leg, LegEnd, Media
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason

_NO_AUDIO: Final = TransferResult("failed", 200, "the target answered without usable audio", cause="no_audio")

log = structlog.get_logger()


class UnplacedChildCall:
    """A child call whose INVITE is not sent yet. `lifecycle.end` ends it from outside."""

    def __init__(self) -> None:
        self.lifecycle = CallLifecycle()
        self.end_stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the end of the call is stored, or could not be."""

    def listen(self) -> CallListener:
        """Raises `Conflict`: there is nobody to listen to."""
        raise Conflict("The call is not in progress")

    def set_held(self, on: bool) -> None:
        """Raises `Conflict`: there is nobody to put on hold."""
        raise Conflict("The call is not in progress")


class ChildCall:
    """`wait_answered`, then `open_audio`; `hang_up` and `store_end` whatever happened before. `conversation` is the
    briefing, if there is one. `lifecycle.end` ends the call from outside; before the INVITE was sent, that of
    `unplaced`."""

    def __init__(self, call: Call, agent: Agent, leg: Leg, deps: CallDependencies, unplaced: UnplacedChildCall) -> None:
        self.call = call
        self.leg = leg
        self.lifecycle = unplaced.lifecycle
        self.meter = UsageMeter()
        self.audio: CallAudio | None = None
        self.conversation: Conversation | None = None
        self.answer: AnswerListener | None = None
        """Who or what has answered."""
        self._agent = agent
        self._deps = deps
        self.music = LegHoldMusic(deps.hold_music, leg, agent, call.id)
        self.hold = ClientHold(call.id, self.music)
        self._recording: CallRecording | None = None
        self.ended_by_us: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once our side ends the call."""
        self.end_stored = unplaced.end_stored
        self.lifecycle.ending.add_done_callback(self._on_ending)
        self._storing_answer: asyncio.Task[Any] | None = None
        self._log = log.bind(call_id=call.id, parent_call_id=call.parent_call_id)
        self._is_referred_to = False
        self._leg_ended_at: datetime | None = None
        leg.ended.add_done_callback(self._on_leg_ended)
        if deps.sip_traces is not None:
            deps.sip_traces.start(TracedCall(call.id, call.phone_number_id), leg.facts)

    @property
    def answered_at(self) -> datetime | None:
        """The time of the answer; None before it."""
        return self.lifecycle.answered_at

    @property
    def media(self) -> Media:
        """The audio of the answered leg."""
        assert self.leg.media is not None
        return self.leg.media

    @property
    def has_been_silent(self) -> bool:
        """No RTP has come from the answered target for the RTP timeout, and it is not on hold."""
        is_held = self.leg.on_hold or self.hold.is_on
        return not is_held and self.leg.rtp_silence_s() >= self._deps.rtp_timeout_s

    async def wait_answered(self, cancelled: asyncio.Future[None]) -> TransferResult | None:
        """Wait for the answer, for the ring timeout at most, and for its audio. Returns None then, else how it ended.
        Early media is no answer."""
        leg, timeout = self.leg, self._deps.ring_timeout_s
        ends = (leg.ended, self.lifecycle.ending, cancelled)
        await asyncio.wait((leg.answered, *ends), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if leg.answered.done():
            return await self._wait_audio(cancelled)
        if leg.ended.done():
            end = leg.ended.result()
            return result_of_status(end.code, end.reason)
        if cancelled.done() or self.lifecycle.is_ending:
            return TransferResult("cancelled")
        self.lifecycle.end("no_answer")
        return TransferResult("no_answer", 408, "ring timeout")

    async def _wait_audio(self, cancelled: asyncio.Future[None]) -> TransferResult | None:
        """Wait until the answered call has audio, for the RTP timeout at most."""
        leg, answered_at = self.leg, self.lifecycle.mark_answered()
        connecting = asyncio.ensure_future(leg.wait_connected())
        timeout = self._deps.rtp_timeout_s
        try:
            ends = (self.lifecycle.ending, cancelled)
            await asyncio.wait((connecting, *ends), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connecting.cancel()
        if leg.ended.done() and leg.ended.result().by_peer:
            if leg.ended.result().code >= 300:  # no BYE: the 200 has no SDP, for example
                return _NO_AUDIO
            return TransferResult("declined", 200, "the target hung up right after the answer")
        if cancelled.done() or self.lifecycle.is_ending:
            return TransferResult("cancelled")
        if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
            self.lifecycle.mark_active()
            self._deps.live_calls.of(self.call).on_answered(answered_at, leg)
            self._log.info("call.answered", codec=self.media.codec, rate=self.media.rate)
            self._storing_answer = asyncio.create_task(store_answer(self._deps, self.call, self._agent, answered_at))
            return None
        self.lifecycle.end("media_timeout")
        return _NO_AUDIO

    def open_audio(
        self,
        listener: CallEventListener | None = None,
        speech_sink: SpeechSink | None = None,
        end_of_turn_sink: EndOfTurnSink | None = None,
        end_of_turn_latency_ms: float = 0.0,
    ) -> CallAudio:
        """Add the answered call to the audio engine, unless it is there already, and record it, if the agent of the
        caller's call does. Without a `listener` it is not listened to."""
        if self.audio is None:
            if self._agent.recording_enabled:
                self._recording = CallRecording(
                    self._deps.recordings,
                    self._deps.data_dir,
                    self.call,
                    self.media.rate,
                    self._deps.engine.now_ms() - self.lifecycle.since_answer_ms(),
                )
            try:
                self.audio = self._deps.engine.add(
                    self.media.slot,
                    TurnSettings(),
                    listener or _IgnoredEvents(),
                    None if self._recording is None else self._recording.recording,
                    end_of_turn_latency_ms,
                )
            except (KeyError, ValueError):
                if self._recording is not None:
                    self._recording.recording.close()
                raise
            self.hold.attach(self.audio)
            self.audio.speech_sink, self.audio.end_of_turn_sink = speech_sink, end_of_turn_sink
            if listener is None:
                self.audio.set_listening(False)
        return self.audio

    def listen(self) -> CallListener:
        """Listen in. Raises `Conflict` if the call has no audio."""
        if self.audio is None or self.audio.is_over or not self.lifecycle.is_active:
            raise Conflict("The call is not in progress")
        return CallListener(self.audio, lambda: self.conversation.timeline if self.conversation else None)

    def set_held(self, on: bool) -> None:
        """Put the target on hold, or resume the call. Raises `Conflict` if the call is not in progress."""
        if not self.lifecycle.is_active:
            raise Conflict("The call is not in progress")
        self.hold.set(on)

    @contextmanager
    def referred_to(self) -> Iterator[None]:
        """For the duration of the block a REFER with `Replaces` names this call. A peer that takes it over ends the
        leg, as one that hangs up does, so the call then ends after the block, unless it has another reason by then."""
        self._is_referred_to = True
        try:
            yield
        finally:
            self._is_referred_to = False
            if self.leg.ended.done():
                self._on_leg_ended(self.leg.ended)

    async def hang_up(self) -> None:
        """Send BYE or CANCEL. Without a reason for the end, our side ends the call."""
        self.lifecycle.end("agent_ended")
        if self.answer is not None:
            self.answer.stop()
        if self.audio is not None:
            self._deps.engine.remove(self.media.slot)
        try:
            await self.leg.hangup(q850_cause_of(self.lifecycle.reason))
        except Exception as error:  # noqa: BLE001 - the end of the call is stored all the same
            self._log.error("call.hangup_failed", error=repr(error), exc_info=error)
        await self.music.close()

    async def store_end(self, transfer_ends: Sequence[TransferEnd]) -> None:
        """Free the audio of a call that was hung up, and store its end, in one transaction with `transfer_ends`. Raises
        `StorageUnavailable`."""
        reason = self.lifecycle.ending.result()
        if self._storing_answer is not None:
            await asyncio.wait((self._storing_answer,))
        recorded = self._recording is not None and await self._recording.wait_closed()
        media_quality = final_media_quality(self.leg, self.call.id)
        if self.leg.has_media:
            self.leg.release()
        else:
            self.leg.ended.add_done_callback(lambda _: self.leg.release())
        conversation = self.conversation
        transcript = Transcript() if conversation is None else conversation.transcript
        outcome = CallOutcome(
            status=end_status_of(reason, answered=self.lifecycle.is_answered),
            reason=reason,
            answered_at=self.answered_at,
            ended_at=self.lifecycle.ended_at or utc_now(),
            transcript=transcript.items(words=True),
            timeline=[
                *(() if conversation is None else conversation.timeline.items()),
                *(() if self.answer is None else self.answer.timeline_items()),
            ],
            turn_count=transcript.turn_count,
            recorded=recorded,
            media_quality=media_quality,
            sip_end=sip_end_of(self.leg.ended.result()) if self.leg.ended.done() else None,
            usage=self.meter.usage(),
            transfer_ends=transfer_ends,
        )
        await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
        self.lifecycle.mark_ended()

    def _on_ending(self, _: asyncio.Future[EndedReason]) -> None:
        if not self.leg.ended.done():
            self.ended_by_us.set_result(None)

    def _on_leg_ended(self, ended: asyncio.Future[LegEnd]) -> None:
        self._leg_ended_at = self._leg_ended_at or utc_now()
        if ended.cancelled() or not ended.result().by_peer or self._is_referred_to:
            return
        reason = ended_reason_of(ended.result(), inbound=False, answered=self.leg.answered.done())
        self.lifecycle.end(reason, self._leg_ended_at)


class _IgnoredEvents:
    """The listener of a call that is not listened to."""

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Ignores them."""
