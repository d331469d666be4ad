"""One conversation: the agent listens, responds and is interrupted. All events come through one queue and are handled
in order; `Conversation._handle` shows what each of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

import structlog

from calls import metrics
from calls.call_record.timeline import Timeline
from calls.call_record.transcript import Transcript, TranscriptLine
from calls.conversation.agent_response import AgentResponse, ResponseOptions
from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry, DtmfKeyPressed
from calls.conversation.event_queue import ConversationEvent, EventQueue, ResponseFinished, UserIdle
from calls.conversation.idle_timer import HoldChanged, UserIdleTimer
from calls.conversation.prompt_prefill import PromptPrefill
from calls.conversation.response_generator import LlmWithTools, ResponseGenerator, SpeculativeResponse
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.state import ConversationEnd, ConversationState, LastTurn, UserState
from config.errors import ModelError
from media.engine.call_audio import AudioFailure, DtmfDetected, UtterancePlayed
from media.turns.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    Speculate,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
)
from models.protocols import SpeechToTextStream
from models.turn_detection.backchannels import is_backchannel

log = structlog.get_logger()


class Conversation:
    """`run` holds the conversation; `close` brings the transcript to what was heard, whenever it stops.

    `set_uninterruptible` tells the audio engine whether a barge-in may cut what plays; `on_progress` is called when
    the transcript has changed for good, and when the agent becomes audible; `on_inband_digit` gets DTMF tones that were
    detected in the audio."""

    def __init__(
        self,
        *,
        call_id: str,
        config: ConversationConfig,
        events: EventQueue,
        stt: SpeechToTextStream,
        llm: LlmWithTools,
        output: SpeechOutput,
        timeline: Timeline,
        set_uninterruptible: Callable[[bool], None],
        on_progress: Callable[[], None] = lambda: None,
        on_inband_digit: Callable[[DtmfDetected], None] = lambda _: None,
    ) -> None:
        self.transcript = Transcript()
        self.timeline = timeline
        self._config = config
        self._events = events
        self._stt = stt
        self._playout = output.playout
        self._set_uninterruptible = set_uninterruptible
        self._on_progress = on_progress
        self._on_inband_digit = on_inband_digit
        self._generator = ResponseGenerator(
            call_id=call_id,
            config=config,
            llm=llm,
            output=output,
            transcript=self.transcript,
            timeline=timeline,
            on_line=self._on_line,
        )
        loop = asyncio.get_running_loop()
        self._idle_timer = UserIdleTimer(
            config.user_idle_ms, lambda: events.put(UserIdle()), loop.call_later, loop.time
        )
        self._prefill = PromptPrefill(llm.model)
        self._generator.on_documents_found(self._prefill_while_user_speaks)
        self._state = ConversationState()
        self._response: AgentResponse | None = None  # the one that is given at the moment
        self._speculative: SpeculativeResponse | None = None
        self._log = log.bind(call_id=call_id)

    async def run(self) -> ConversationEnd:
        """Talk until the agent ends the call; returns why. Raises in an exception group what a model or the audio
        engine raised."""
        end: ConversationEnd | None = None
        async with asyncio.TaskGroup() as group:
            self._open(group)
            try:
                while end is None:
                    self._idle_timer.set_idle(self._is_idle)
                    await self._handle(await self._events.get(), group)
                    end = None if self._state.user_is_speaking else self._state.end_requested
            finally:
                self._idle_timer.reset()
                self._prefill.close()
                self._drop_speculative()
                self._generator.close()
        return end

    def close(self) -> None:
        """Nothing more is heard: cancel the response, so that the transcript ends where the sound did. DTMF entries
        that were not handled yet come into the transcript without a response."""
        for event in self._events.drain():
            if isinstance(event, DtmfEntry):
                self.transcript.add_user_turn(event.digits)
                self.timeline.add_caller_turn(self.transcript.turn_count, None)
        response = self._response
        if response is not None:
            response.cancel()
            self._playout.flush()
            self._end_response(response)

    async def _handle(  # noqa: C901 - one short case an event: all transitions can be read here
        self, event: ConversationEvent, group: asyncio.TaskGroup
    ) -> None:
        state = self._state
        match event:
            case SpeechStarted():
                state.user_started_speaking()
                if self._response is not None and not (self._response.has_started and state.agent_is_audible):
                    self._response.hold()
            case SpeechStopped() | AskEndOfTurn():
                pass  # for the audio engine alone
            case Speculate():
                self._speculate(group)
            case SpeechResumed():
                self._drop_speculative()
            case TurnDropped():
                state.user_stopped_speaking()
                self._drop_speculative()
                if self._response is not None:
                    self._response.release()
            case TurnEnded():
                state.user_stopped_speaking()
                await self._end_turn(event, group)
            case BargeIn():
                self._interrupt(event)
            case AgentStarted(at_ms):
                state.agent_is_audible = True
                self.timeline.agent_audible(at_ms)
                self._on_progress()
            case PlayoutPaused(at_ms):
                state.playout_paused_ms = at_ms
            case PlayoutResumed():
                state.playout_paused_ms = None
            case AgentStopped():
                state.agent_is_audible = False
                self.timeline.agent_silent()
                if state.user_is_speaking and self._response is not None:  # it waits for a tool
                    self._response.hold()
            case UtterancePlayed(utterance=utterance):
                if self._response is not None:
                    self._response.on_utterance_sent(utterance)
            case ResponseFinished(response):
                self._finish(response, group)
            case DtmfDetected():
                self._on_inband_digit(event)
            case DtmfKeyPressed():
                self._idle_timer.reset()
            case DtmfEntry(digits):
                self._user_said(digits, group)
            case UserIdle():
                self._prompt_idle_user(group)
            case HoldChanged(held):
                self._idle_timer.set_on_hold(held)
            case AudioFailure(error=error):
                raise error
            case _:
                assert_never(event)

    @property
    def _is_idle(self) -> bool:
        """True while neither side speaks nor is about to."""
        no_response = self._response is None and self._speculative is None
        return no_response and not (self._state.user_is_speaking or self._state.agent_is_audible)

    async def _end_turn(self, ended: TurnEnded, group: asyncio.TaskGroup) -> None:
        text = (await self._stt.end_turn()).strip()
        if text:
            self._user_said(text, group, ended)
            return
        self._drop_speculative()
        if self._response is not None:
            self._response.release()
        if self._state.user is UserState.NOT_UNDERSTOOD and self._response is None:
            self._state.user_asked_to_repeat()
            self._give(self._generator.scripted(self._generator.phrases.say_again, ResponseOptions()), group)

    def _user_said(self, text: str, group: asyncio.TaskGroup, ended: TurnEnded | None = None) -> None:
        """Take words of the user, or the digits of a DTMF entry when no turn has `ended`, and respond to them."""
        response, dtmf = self._response, ended is None
        self._generator.user_said(text, continues=not dtmf and self._continues_turn, dtmf=dtmf)
        self._state.user_understood(dtmf=dtmf)
        self.timeline.add_caller_turn(self.transcript.turn_count, ended)
        ended_by = self.timeline.turn.ended_by
        self._log.info("turn.user", turn=self.transcript.turn_count, ended_by=ended_by, characters=len(text))
        self._log.debug("turn.user.text", text=text)
        self._on_progress()
        if response is not None and self._outlasts(response, text):
            self._state.response_owed |= response.has_started and response.options.uninterruptible
            self._drop_speculative()
            if not self._state.user_is_speaking:  # DTMF may come while the user speaks
                response.release()
            return
        options = self._options
        if response is not None:
            self._drop_response(response)
        self._respond(options, group)

    def _outlasts(self, response: AgentResponse, text: str) -> bool:
        """True if the present response goes on after these words: nothing interrupts an uninterruptible one, a greeting
        is said in any case, and an "okay" to an agent that waits for a tool asks for nothing."""
        if response.options.uninterruptible and response.has_started:
            return True
        if response.options.scripted and not response.has_started:
            return True
        return self._generator.waits_for_tool(response) and is_backchannel(text, self._config.language)

    @property
    def _continues_turn(self) -> bool:
        """True if the next words continue the last turn, because nothing of its response was heard."""
        response = self._response
        unheard = response is not None and not response.has_started and not response.options.scripted
        last_turn = self._state.last_turn
        return last_turn is LastTurn.OPEN or (unheard and last_turn is not LastTurn.DTMF)

    @property
    def _options(self) -> ResponseOptions:
        """The options of the response to what is being said: those of a response that it replaces before that has
        started."""
        if self._response is not None and not self._response.has_started:
            return self._response.options
        return ResponseOptions()

    def _interrupt(self, event: BargeIn) -> None:
        """The engine has flushed the playout already; what was written since then goes too."""
        stopped_ms = self._state.playout_flushed(event.at_ms)
        response = self._response
        if response is None or not response.has_started:
            return
        metrics.INTERRUPTIONS.inc()
        metrics.BARGE_IN.observe(max(stopped_ms - event.speech_start_ms, 0.0) / 1000)
        self._drop_response(response, stopped_ms)
        self._state.user_interrupted_agent(heard=bool(response.heard_text))
        self._log.info("call.interrupted", heard_characters=len(response.heard_text))

    def _prompt_idle_user(self, group: asyncio.TaskGroup) -> None:
        """Ask whether the user is still there, or say goodbye; nothing if a side speaks since the timer expired."""
        if not self._is_idle:
            return
        self.timeline.add_idle_prompt()
        last = self._state.user_prompted()
        phrases = self._generator.phrases
        text = phrases.silent_goodbye if last else phrases.still_there
        self._log.info("call.silent", asked=self._state.idle_prompts - 1, hangs_up=last)
        self._give(self._generator.scripted(text, ResponseOptions(), end_call=last), group)

    # ---- speculative responses and prefill ----

    def _speculate(self, group: asyncio.TaskGroup) -> None:
        """The user may have finished: prepare a response."""
        self._drop_speculative()
        response = self._response
        if response is None or not (response.has_started or response.options.scripted):
            speculative = self._speculative = SpeculativeResponse()
            speculative.task = group.create_task(self._prepare(speculative, group))

    async def _prepare(self, speculative: SpeculativeResponse, group: asyncio.TaskGroup) -> None:
        """Make the response to the words so far. A speech recognizer that fails here fails again at the turn's end."""
        try:
            text = (await self._stt.flush()).strip()
        except ModelError as error:
            self._log.info("guess.failed", error=str(error))
            return
        if text:
            prompt = self._generator.prompt_if_said(text, continues=self._continues_turn)
            self._prefill.stop()
            speculative.response = self._generator.generate(prompt, self._options, group, speculative=True)
            await self._run(speculative.response)

    def _drop_speculative(self) -> None:
        """The user's turn goes on, or is answered otherwise."""
        speculative, self._speculative = self._speculative, None
        if speculative is not None:
            self._generator.cancel(speculative)

    def _prefill_while_user_speaks(self) -> None:
        """The documents have passages about what the user is saying."""
        if self._response is not None or self._speculative is not None:
            return
        if prompt := self._generator.prefill_prompt(self._stt.partial()):
            self._prefill.start(prompt)

    # ---- the agent's responses ----

    def _open(self, group: asyncio.TaskGroup) -> None:
        """Say the first message, if the agent speaks first."""
        config = self._config
        if not config.speaks_first:
            return
        self.timeline.add_opening()
        options = ResponseOptions(
            not_before=asyncio.get_running_loop().time() + config.first_message_delay_ms / 1000,
            uninterruptible=config.first_message_uninterruptible,
            scripted=config.greeting is not None,
        )
        if config.greeting is None:
            self._respond(options, group)
        else:
            self._give(self._generator.scripted(config.greeting, options), group)

    def _respond(self, options: ResponseOptions, group: asyncio.TaskGroup) -> None:
        """Respond to the transcript as it stands; with the speculative response, if it answers just that."""
        prompt = self._generator.prompt(self.transcript.messages())
        self._prefill.stop()
        speculative = self._speculative
        response = None if speculative is None else speculative.response_to(prompt)
        if speculative is None or response is None:
            self._drop_speculative()
            self._give(self._generator.generate(prompt, options, group), group)
            return
        metrics.SPECULATIONS.labels(outcome="used").inc()
        self._speculative, self._response = None, response
        response.task = speculative.task
        self._generator.confirm(response)

    def _give(self, response: AgentResponse, group: asyncio.TaskGroup) -> None:
        """Begin a response that is certain to be given."""
        self._response = response
        self._generator.confirm(response)
        if self._state.user_is_speaking:
            response.hold()
        response.task = group.create_task(self._run(response))

    async def _run(self, response: AgentResponse) -> None:
        """An error in a response that is not given does not end the call."""
        try:
            await response.run()
        except Exception as error:
            if response.is_due:
                raise
            response.fail()
            self._log.warning("answer.failed_unheard", error=repr(error))
        else:
            self._events.put(ResponseFinished(response))

    def _on_line(self, response: AgentResponse, line: TranscriptLine) -> None:
        """A line of a response is about to be heard."""
        self.transcript.add_agent_line(line)
        if not response.has_started:
            self.timeline.response_queued()
            if response.options.uninterruptible:
                self._set_uninterruptible(True)

    def _finish(self, response: AgentResponse, group: asyncio.TaskGroup) -> None:
        """A response was sent to its end. If the agent wants to hang up after it, a user who speaks at this moment may
        have more to say."""
        if response is not self._response:
            return
        self._end_response(response)
        if response.next_action is not None:
            self._state.agent_said_goodbye(failed=response.next_action.failed)
        elif self._state.response_owed:
            self._state.response_owed = False
            self._respond(ResponseOptions(), group)

    def _drop_response(self, response: AgentResponse, at_ms: float | None = None) -> None:
        """Cut the present response, at the present or at `at_ms`."""
        self.timeline.interrupted(self.timeline.now_ms() if at_ms is None else at_ms)
        response.cancel()
        if response.has_started:
            self._playout.flush()
        self._end_response(response)

    def _end_response(self, response: AgentResponse) -> None:
        self._response = None
        if not response.has_started:
            return
        response.update_transcript()
        self.timeline.response_ended(response.heard_ms)
        if response.options.uninterruptible:
            self._set_uninterruptible(False)
        self._log.info("turn.agent", heard_characters=len(response.heard_text))
        self._log.debug("turn.agent.text", text=response.heard_text)
        self._on_progress()
        self._prefill.start(self._generator.prompt(self.transcript.messages()))
