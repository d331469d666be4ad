"""Runs the conversation of an answered call, with speech recognition, DTMF, stored progress, background sound and the
RTP timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from calls import metrics
from calls.call_record import turn_metrics
from calls.call_record.context_variables import ContextValue
from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.metering import UsageMeter
from calls.call_record.timeline import Timeline
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.dtmf_collector import MAX_DIGITS, DtmfCollector, DtmfEchoFilter
from calls.conversation.event_queue import EventQueue
from calls.conversation.idle_timer import HoldChanged
from calls.conversation.response_generator import LlmWithTools
from calls.conversation.speech_gate import SpeechGate
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.transfers import Transfers
from calls.live.live_call import LiveCall, TurnNews
from calls.post_call.redaction import redactor
from calls.session.agent_config import AgentModels, context_values
from calls.session.answer_storage import StoredAnswer, store_answer
from calls.session.call_observer import NO_OBSERVER, CallObserver
from calls.session.client_hold import ClientHold
from calls.session.dependencies import CallDependencies
from calls.session.lifecycle import CallLifecycle
from calls.session.live_transcript import store_progress
from calls.session.rtp_timeout import wait_rtp_timeout
from calls.session.stt_hotwords import hot_words
from calls.tools.builtin_tools import builtin_toolset, load_toolset
from calls.tools.http_tool import CallContext
from calls.tools.toolset import ToolSet
from calls.webhooks import call_events
from calls.webhooks.turn_feed import TurnFeed
from media.background.files import InvalidSound
from media.dtmf.keys import DtmfMethod
from media.engine.call_audio import CallAudio, DtmfDetected
from models.protocols import EndOfTurnStream, SpeechToTextStream, VoiceSettings
from models.runtime.request_context import ModelFallback, RequestContext, requests_for
from sipcore.dialogs.call_leg import CallLeg
from storage.agents.agents import Agent
from storage.calls.calls import Call
from storage.database.errors import StorageUnavailable
from storage.webhooks.deliveries import EventReceiver

NO_RTP_WARNING_S: Final = 3.0
"""Time without any RTP packet since the answer after which a warning is logged: the caller's audio does not arrive."""
BYE_DELAY_S: Final = 0.2
"""Between the last sample that was sent and the BYE, because the caller's jitter buffer still holds audio."""

log = structlog.get_logger()


@dataclass(frozen=True)
class CallParticipants:
    """The agent with its phone `number`, the caller's leg, and the meter of their usage."""

    call: Call
    agent: Agent
    number: str
    leg: CallLeg
    meter: UsageMeter = field(default_factory=UsageMeter)

    @property
    def values(self) -> dict[str, ContextValue]:
        """The values of placeholders in this call."""
        return context_values(self.call, self.number, self.leg.facts)

    @property
    def request_context(self) -> RequestContext:
        """For whom models work in this call."""
        return RequestContext(self.call.organization_id, self.agent.id, self.call.id, live=True)


@dataclass(frozen=True)
class SpeechStreams:
    """The streams of speech recognition and end-of-turn detection. `close` frees them."""

    stt: SpeechToTextStream
    end_of_turn: EndOfTurnStream

    def close(self) -> None:
        """Idempotent."""
        try:
            self.stt.close()
        finally:
            self.end_of_turn.close()


def open_speech_streams(
    models: AgentModels,
    participants: CallParticipants,
    tools: ToolSet,
    rate: int,
    on_partial_transcript: Callable[[str], None],
) -> SpeechStreams:
    """Returns the streams for a call at `rate` Hz. `on_partial_transcript` is called on a model's thread whenever the
    speech recognizer has other words."""
    stt = open_speech_to_text(models, participants, tools, rate, on_partial_transcript)
    try:
        end_of_turn = models.end_of_turn.open(rate=rate, language=participants.agent.language_hint, partial=stt.partial)
    except Exception:
        stt.close()
        raise
    return SpeechStreams(stt, end_of_turn)


def open_speech_to_text(
    models: AgentModels,
    participants: CallParticipants,
    tools: ToolSet,
    rate: int,
    on_partial_transcript: Callable[[str], None],
) -> SpeechToTextStream:
    """Returns the stream of speech recognition alone, metered."""
    agent = participants.agent
    values = participants.call.context_variables.values()
    phrases = hot_words(agent.name, agent.system_prompt or "", values, tools.definitions)
    call_soon, prefetch = asyncio.get_running_loop().call_soon_threadsafe, tools.knowledge_prefetch

    def on_words(partial_text: str) -> None:
        on_partial_transcript(partial_text)
        if prefetch is not None:
            call_soon(prefetch.on_partial_transcript, partial_text)

    stt = models.stt.open(rate=rate, language=agent.language_hint, on_words=on_words, hot_words=phrases)
    return participants.meter.meter_stt(stt, rate)


async def load_tools(participants: CallParticipants, deps: CallDependencies, *, can_transfer: bool = False) -> ToolSet:
    """Returns the agent's tools; only the built-in ones if the database cannot be read."""
    agent, call, leg = participants.agent, participants.call, participants.leg
    try:
        return await load_toolset(
            agent,
            CallContext(call.id, participants.values),
            database=deps.database,
            reads=deps.reads,
            http_access=deps.tool_http,
            send_digits=leg.send_digits,
            knowledge_search=deps.knowledge_search,
            can_transfer=can_transfer,
        )
    except StorageUnavailable as error:
        log.warning("call.without_own_tools", call_id=call.id, cause=error.cause)
        return builtin_toolset(agent, call.id, leg.send_digits)


class ConversationRunner:
    """`run` returns when the call is to end; the transcript of `conversation` is complete then."""

    def __init__(
        self,
        *,
        participants: CallParticipants,
        deps: CallDependencies,
        models: AgentModels,
        config: ConversationConfig,
        speech_streams: SpeechStreams,
        tools: ToolSet,
        audio: CallAudio,
        events: EventQueue,
        answered_at: datetime,
        since_answer_ms: float,
        transfers: Transfers | None = None,
        handovers: Sequence[asyncio.Future[Any]] = (),
        gate: SpeechGate | None = None,
        on_user_text: Callable[[str], str | None] = lambda _: None,
        on_response_finished: Callable[[], None] = lambda: None,
        max_dtmf_digits: int = MAX_DIGITS,
        hold: ClientHold,
        observer: CallObserver = NO_OBSERVER,
        live: LiveCall | None = None,
    ) -> None:
        """`answered_at` is stored; `since_answer_ms`: the time since then on a clock that nobody sets. `handovers`: the
        conversation ends without the call when one of them is done. `gate`: the agent is silent while it is closed.
        `on_user_text` returns the fixed response to words of the user, "" for none, or None if the language model
        responds; `on_response_finished` is called when a response was played to its end. `max_dtmf_digits`: digits of a
        complete DTMF entry."""
        self._hold = hold
        self._observer = observer
        self._live = live
        self._handovers = tuple(handovers)
        self._participants = participants
        self._deps = deps
        self._audio = audio
        self._events = events
        self._answered_at = answered_at
        self._progressed = asyncio.Event()
        self._dtmf_echo = DtmfEchoFilter()
        self._dtmf = DtmfCollector(
            events.put, asyncio.get_running_loop().call_later, deps.engine.now_ms, max_dtmf_digits
        )
        self._log = log.bind(call_id=participants.call.id)
        agent, call, meter = participants.agent, participants.call, participants.meter
        self._turns = None if deps.live_turns is None else TurnFeed(deps.live_turns, call, self)
        voice = VoiceSettings(models.voice_name, agent.voice_speed, agent.voice_stability, audio.rate)
        self.output = SpeechOutput(
            models.tts, voice, audio.playout, agent.language_hint, meter.count_spoken, gate or SpeechGate()
        )
        self.conversation = Conversation(
            call_id=call.id,
            config=config,
            events=events,
            stt=speech_streams.stt,
            llm=LlmWithTools(models.llm, tools, meter),
            output=self.output,
            timeline=Timeline(deps.engine.now_ms() - since_answer_ms, deps.engine.now_ms, turn_metrics.observe),
            set_uninterruptible=audio.set_uninterruptible,
            on_progress=self._progressed.set,
            on_inband_digit=self._on_inband_digit,
            transfers=transfers,
            on_user_text=on_user_text,
            on_response_finished=on_response_finished,
            on_turn=self._on_turn,
            on_tool=self._observer.on_tool,
        )

    def _on_fallback(self, fallback: ModelFallback) -> None:
        metrics.count_fallback(fallback)
        self.conversation.timeline.add_fallback(fallback)

    def _on_turn(self, turn: FinishedTurn) -> None:
        self._observer.on_turn(turn, self.conversation.timeline)
        if self._turns is not None:
            self._turns.on_turn(turn)

    def is_followed(self) -> bool:
        """See `TurnFollower`."""
        return self._deps.live_calls.events.is_followed(self._participants.call.organization_id)

    def times(self) -> dict[str, Any]:
        """See `TurnFollower`."""
        timeline = self.conversation.timeline
        return timeline.turn.to_json(timeline.zero_ms)

    def on_redacted_turn(self, sequence: int, turn: FinishedTurn, times: Mapping[str, Any]) -> None:
        """See `TurnFollower`."""
        call = self._participants.call
        self._deps.live_calls.publish_turn(call.organization_id, TurnNews(call.id, sequence, turn, times))

    def _on_inband_digit(self, key: DtmfDetected) -> None:
        """Pass on a DTMF tone that was detected in the audio, unless it is the echo of one that we sent."""
        if not self._dtmf_echo.is_echo(key.at_ms):
            self._dtmf.on_digit(key.digit, "inband", key.at_ms)

    async def run(self, lifecycle: CallLifecycle) -> None:
        """Hold the conversation until the call is to end, or until the caller is to be connected with the target of a
        transfer. Ends the call when the conversation ends, and at the agent's `max_call_duration_seconds`. Raises the
        errors of its tasks in an exception group."""
        leg = self._participants.leg
        self._connect_dtmf_and_hold(leg)
        limit = asyncio.get_running_loop().call_later(
            self._participants.agent.max_call_duration_seconds, lifecycle.end, "max_duration"
        )
        try:
            async with asyncio.TaskGroup() as group:
                with requests_for(replace(self._participants.request_context, on_fallback=self._on_fallback)):
                    conversation = group.create_task(self.conversation.run())
                side_work = (self._store_progress(), self._watch_rtp(lifecycle), self._play_background())
                side_tasks = [group.create_task(work) for work in side_work]
                waited: tuple[asyncio.Future[Any], ...] = (conversation, lifecycle.ending, *self._handovers)
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if conversation.done() and not lifecycle.is_ending:
                    lifecycle.end(conversation.result())
                    await asyncio.wait((leg.ended,), timeout=BYE_DELAY_S)
                for task in (conversation, *side_tasks):
                    task.cancel()
        finally:
            leg.on_digit = leg.on_hold_change = leg.on_dtmf_sending = None
            self._hold.on_change = lambda: None
            self._dtmf.close()
            limit.cancel()
            self.conversation.close()

    def _connect_dtmf_and_hold(self, leg: CallLeg) -> None:
        now_ms = self._deps.engine.now_ms
        leg.on_digit = self._on_digit
        leg.on_dtmf_sending = lambda on: self._dtmf_echo.set_sending(on, now_ms())
        leg.on_hold_change = lambda _: self._put_hold()
        self._hold.on_change = self._put_hold
        self._put_hold()

    def _on_digit(self, digit: str, method: DtmfMethod) -> None:
        """Pass on a DTMF digit, unless a client has the caller on hold."""
        if not self._hold.is_on:
            self._dtmf.on_digit(digit, method)

    def _put_hold(self) -> None:
        on_hold = self._participants.leg.on_hold or self._hold.is_on
        self._events.put(HoldChanged(on_hold, by_client=self._hold.is_on))

    async def _store_progress(self) -> None:
        """Store the answer, and the transcript after each change, so that a crash loses little of it."""
        call = self._participants.call
        answer = asyncio.create_task(self._store_answer())
        if self._deps.live_turns is not None:
            self._deps.live_turns.spawn(self._start_turns(answer))
        stored = await asyncio.shield(answer)
        await store_progress(
            self._deps.database,
            call.id,
            self.conversation,
            self._participants.meter,
            changed=self._progressed,
            rules=stored.rules,
        )

    async def _store_answer(self) -> StoredAnswer:
        leg, call, agent = self._participants.leg, self._participants.call, self._participants.agent
        await leg.wait_established()
        answered_at = self._answered_at if leg.is_established else None
        return await store_answer(self._deps, call, agent, answered_at, deferrable=True)

    async def _start_turns(self, answer: asyncio.Future[StoredAnswer]) -> None:
        """Send the finished turns to the receivers of `call.turn`, which are known once the answer is stored; the
        conversation may be over by then."""
        await asyncio.wait((answer,))
        if self._turns is not None and answer.exception() is None:
            stored = answer.result()
            redact = partial(redactor.redact_transcript, rules=stored.rules) if stored.rules else None
            if self._live is not None and redact is None:
                self._live.allow_partials()
            self._turns.start(stored.turn_receivers, redact, self._read_turn_receivers)

    async def _read_turn_receivers(self) -> Sequence[EventReceiver]:
        call, agent = self._participants.call, self._participants.agent
        read = partial(call_events.event_receivers, call=call, agent=agent, event="call.turn")
        return await self._deps.database.read(read)

    async def _play_background(self) -> None:
        """Play the agent's background sound under the call. One that cannot be read is logged and not played."""
        agent, audio, sounds = self._participants.agent, self._audio, self._deps.background_sounds
        if agent.background_sound_id is None or sounds is None:
            return
        try:
            await sounds.play(audio.slot, agent.background_sound_id, audio.rate, agent.background_sound_volume)
        except (OSError, InvalidSound) as error:
            self._log.warning("call.without_background", sound_id=agent.background_sound_id, error=str(error))

    async def _watch_rtp(self, lifecycle: CallLifecycle) -> None:
        """End the call at the RTP timeout; log a warning early if no packet arrives at all."""
        leg = self._participants.leg
        await asyncio.sleep(min(NO_RTP_WARNING_S, self._deps.rtp_timeout_s))
        if leg.rtp_silence_s() >= NO_RTP_WARNING_S and not leg.on_hold:
            self._log.warning(
                "call.no_rtp", waited_s=NO_RTP_WARNING_S, remedy="open the RTP ports for UDP in the firewall; check NAT"
            )
        await wait_rtp_timeout(leg, self._deps.rtp_timeout_s, lambda: self._hold.is_on)
        lifecycle.end("media_timeout")
