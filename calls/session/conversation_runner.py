"""The talk of a live call with everything around it: what it hears by, what it speaks with, its digits, its progress in
the database, its background sound, and the watch over its media."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from calls.call_record import turn_metrics
from calls.call_record.context_variables import ContextValue
from calls.call_record.metering import UsageMeter
from calls.call_record.timeline import Timeline
from calls.conversation.config import ConversationConfig
from calls.conversation.conversation import Conversation
from calls.conversation.dtmf_collector import DtmfCollector, DtmfEchoFilter
from calls.conversation.event_queue import EventQueue
from calls.conversation.idle_timer import HoldChanged
from calls.conversation.response_generator import LlmWithTools
from calls.conversation.speech_output import SpeechOutput
from calls.post_call.redaction import redactor
from calls.session.agent_config import AgentModels, context_values
from calls.session.dependencies import CallDependencies
from calls.session.rtp_timeout import RtpTimeout
from calls.session.stt_hotwords import hot_words
from calls.tools.builtin_tools import builtin_toolset, load_toolset
from calls.tools.http_tool import CallContext
from calls.tools.toolset import ToolSet
from config.clock import utc_now
from media.background.files import InvalidSound
from media.engine.call_audio import CallAudio, DtmfDetected
from models.protocols import EndOfTurnStream, SpeechToTextStream, VoiceSettings
from models.turn_detection import backchannels
from sipcore.dialogs.leg import Leg
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call, EndedReason
from storage.database.database import StorageTrouble

NO_RTP_S: Final = 3.0
"""A call in which no packet came until then is one that nobody hears: its operator wants to know."""
LAST_WORD_S: Final = 0.2
"""Between the last sample that was sent and our BYE: the caller's jitter buffer still holds it."""
PROGRESS_AFTER_S: Final = 1.0
"""What was said is stored so long after it, with what came meanwhile: each time all of the talk is written."""

log = structlog.get_logger()


@dataclass(frozen=True)
class CallParticipants:
    """Who talks: our agent, on our `number`, through a leg; and what is measured of it."""

    call: Call
    agent: Agent
    number: str
    leg: Leg
    meter: UsageMeter = field(default_factory=UsageMeter)

    @property
    def values(self) -> dict[str, ContextValue]:
        """What placeholders stand for."""
        return context_values(self.call, self.number, self.leg.facts)


@dataclass(frozen=True)
class SpeechInput:
    """What the agent hears by. `close` frees it."""

    stt: SpeechToTextStream
    end_of_turn: EndOfTurnStream

    def close(self) -> None:
        """Idempotent."""
        self.stt.close()
        self.end_of_turn.close()


def open_speech_input(
    models: AgentModels, parties: CallParticipants, belt: ToolSet, rate: int, has_words: Callable[[bool], None]
) -> SpeechInput:
    """For a call at `rate` Hz. `has_words` is called from a model's thread whenever the recognizer has other words;
    True: they only say that the caller listens."""
    agent = parties.agent
    values = parties.call.context_variables.values()
    expected = hot_words(agent.name, agent.system_prompt or "", values, belt.definitions)
    post, lookup = asyncio.get_running_loop().call_soon_threadsafe, belt.knowledge_prefetch

    def words(partial_text: str) -> None:
        has_words(backchannels.is_backchannel(partial_text, agent.language_hint))
        if lookup is not None:
            post(lookup.hears, partial_text)

    ear = models.stt.open(rate=rate, language=agent.language_hint, on_words=words, hot_words=expected)
    ear = parties.meter.meter_stt(ear, rate)
    return SpeechInput(ear, models.end_of_turn.open(rate=rate, language=agent.language_hint, partial=ear.partial))


async def load_tools(parties: CallParticipants, house: CallDependencies) -> ToolSet:
    """The agent's tools. When the database is in trouble the call has those that need none."""
    agent, call = parties.agent, parties.call
    context = CallContext(call.id, parties.values)
    digits = parties.leg.send_digits
    try:
        return await load_toolset(
            agent,
            context,
            database=house.database,
            outside=house.tool_http,
            send_digits=digits,
            searching=house.knowledge_search,
        )
    except StorageTrouble as trouble:
        log.warning("call.without_own_tools", call_id=call.id, cause=trouble.cause)
        return builtin_toolset(agent, call.id, digits)


class ConversationRunner:
    """`run` talks until someone or something ends the call; afterwards the transcript is what was heard."""

    def __init__(
        self,
        parties: CallParticipants,
        house: CallDependencies,
        models: AgentModels,
        script: ConversationConfig,
        senses: SpeechInput,
        belt: ToolSet,
        sound: CallAudio,
        inbox: EventQueue,
        answered_at: datetime,
    ) -> None:
        self._parties = parties
        self._house = house
        self._sound = sound
        self._answered_at = answered_at
        self._changed = asyncio.Event()
        self._inbox = inbox
        self._own_keys = DtmfEchoFilter()
        self._entry = DtmfCollector(inbox.put, asyncio.get_running_loop().call_later, house.engine.now_ms)
        self._log = log.bind(call_id=parties.call.id)
        agent, call = parties.agent, parties.call
        sound.speech_sink, sound.end_of_turn_sink = senses.stt, senses.end_of_turn
        voice = VoiceSettings(models.voice_name, agent.voice_speed, agent.voice_stability, sound.rate)
        self.conversation = Conversation(
            call_id=call.id,
            config=script,
            events=inbox,
            stt=senses.stt,
            llm=LlmWithTools(models.llm, belt, parties.meter),
            output=SpeechOutput(models.tts, voice, sound.playout, agent.language_hint, parties.meter.count_spoken),
            timeline=self._timeline(),
            set_uninterruptible=sound.set_uninterruptible,
            on_progress=self._changed.set,
            on_inband_digit=self._hear_key,
        )

    def _timeline(self) -> Timeline:
        """It counts from the answer, a moment ago, which has its time on another clock."""
        clock = self._house.engine.now_ms
        ago = utc_now() - self._answered_at
        return Timeline(clock() - ago.total_seconds() * 1000, clock, turn_metrics.observe)

    def _hear_key(self, key: DtmfDetected) -> None:
        """A key that was heard as sound: the caller's, or the echo of one that we pressed."""
        if not self._own_keys.is_echo(key.at_ms):
            self._entry.on_digit(key.digit, "inband", key.at_ms)

    async def run(self, ending: asyncio.Future[EndedReason], end: Callable[[EndedReason], None]) -> None:
        """`ending` is done when the call is to end; `end` ends it. Raises what went wrong."""
        leg = self._parties.leg
        self._listen_to(leg)
        limit = asyncio.get_running_loop().call_later(
            self._parties.agent.max_call_duration_seconds, end, "max_duration"
        )
        try:
            async with asyncio.TaskGroup() as group:
                talk = group.create_task(self.conversation.run())
                work = (self._keep_progress(), self._watch_media(end), self._play_background())
                aside = [group.create_task(each) for each in work]
                await asyncio.wait((talk, ending), return_when=asyncio.FIRST_COMPLETED)
                if not ending.done():
                    end(talk.result())
                    await asyncio.wait((leg.ended,), timeout=LAST_WORD_S)
                for task in (talk, *aside):
                    task.cancel()
        finally:
            leg.on_digit = leg.on_hold_change = leg.on_dtmf_sending = None
            self._entry.close()
            limit.cancel()
            self.conversation.close()

    def _listen_to(self, leg: Leg) -> None:
        clock = self._house.engine.now_ms
        leg.on_digit = self._entry.on_digit
        leg.on_dtmf_sending = lambda on: self._own_keys.set_sending(on, clock())
        leg.on_hold_change = lambda held: self._inbox.put(HoldChanged(held))
        self._inbox.put(HoldChanged(leg.on_hold))

    async def _keep_progress(self) -> None:
        """Store the answer and then what was said when that has changed, so that a crash loses little of it. The end of
        the call stores all of it again, therefore trouble here is only logged."""
        call_id, owner = self._parties.call.id, self._parties.call.organization_id
        rules = redactor.REDACT_EVERYTHING  # until it is known

        def answered(conn: sa.Connection) -> bool:
            nonlocal rules
            rules = redactor.rules_of_organization(conn, owner)  # the call may wait for room on a full disk
            return calls.answered(conn, call_id, self._answered_at)

        await self._store(answered)
        while True:
            await self._changed.wait()
            await asyncio.sleep(PROGRESS_AFTER_S)
            self._changed.clear()
            talk, timeline = self.conversation.transcript, self.conversation.timeline
            items, times = await redactor.redact_progress(talk.items(), timeline.items(), rules)
            await self._store(
                partial(
                    calls.note_progress,
                    call_id=call_id,
                    transcript=items,
                    timeline=times,
                    turn_count=talk.turn_count,
                    usage=self._parties.meter.usage().to_json(),
                )
            )

    async def _store(self, write: Callable[[sa.Connection], bool]) -> None:
        try:
            await self._house.database.write(write, patient=True)
        except StorageTrouble as trouble:
            tell = self._log.debug if trouble.disk_full else self._log.warning  # a full disk is told once
            tell("call.progress_not_stored", cause=trouble.cause)

    async def _play_background(self) -> None:
        """Put the agent's background sound under the call; one that cannot be read is missed by nobody else."""
        agent, sound, backgrounds = self._parties.agent, self._sound, self._house.background_sounds
        if agent.background_sound_id is None or backgrounds is None:
            return
        try:
            await backgrounds.play(sound.slot, agent.background_sound_id, sound.rate, agent.background_sound_volume)
        except (OSError, InvalidSound) as error:
            self._log.warning("call.without_background", sound_id=agent.background_sound_id, error=str(error))

    async def _watch_media(self, end: Callable[[EndedReason], None]) -> None:
        """End the call when no packet has come for too long; say early when none comes at all."""
        leg, watch = self._parties.leg, RtpTimeout(self._house.rtp_timeout_s)
        await asyncio.sleep(min(NO_RTP_S, self._house.rtp_timeout_s))
        if leg.rtp_silence_s() >= NO_RTP_S and not leg.on_hold:
            self._log.warning("call.no_rtp", waited_s=NO_RTP_S, remedy="let UDP through to the RTP ports; mind NAT")
        wait_s = watch.next_check_s(leg.rtp_silence_s(), leg.on_hold)
        while wait_s is not None:
            await asyncio.sleep(wait_s)
            wait_s = watch.next_check_s(leg.rtp_silence_s(), leg.on_hold)
        end("media_timeout")
