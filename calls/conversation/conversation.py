"""The talk of one call: it listens, answers and is interrupted. Everything that happens comes through one inbox and is
dealt with in order, so that each change of state stands in one place: `Conversation._take`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
from calls.conversation.state import MAX_IDLE_PROMPTS, ConversationEnd, ConversationState
from config.errors import ModelError
from media.engine.call_audio import AudioFailure, DtmfDetected, UtterancePlayed
from media.turns.events import (
    AgentStarted,
    AgentStopped,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    Speculate,
    SpeechResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from models.protocols import SpeechToTextStream
from models.turn_detection.backchannels import is_backchannel

log = structlog.get_logger()


class Conversation:
    """`run` talks; `settle` brings the transcript to what was heard, whenever the talk stops.

    `protect` tells the audio engine whether what plays can be interrupted; `on_progress` is called when the transcript
    has changed for good, and when the agent is heard; `on_tone` gets keys that were heard as sound."""

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
        self._script = config
        self._inbox = events
        self._ear = stt
        self._playout = output.playout
        self._protect = set_uninterruptible
        self._on_progress = on_progress
        self._on_tone = on_inband_digit
        self._answering = ResponseGenerator(call_id, config, llm, output, self.transcript, timeline, self._begin)
        loop = asyncio.get_running_loop()
        self._silence = UserIdleTimer(config.user_idle_ms, lambda: events.put(UserIdle()), loop.call_later, loop.time)
        self._ahead = PromptPrefill(llm.llm)
        self._answering.on_documents_found(self._read_ahead)
        self._response: AgentResponse | None = None
        self._speculative: SpeculativeResponse | None = None
        self._floor = ConversationState()
        self._log = log.bind(call_id=call_id)

    async def run(self) -> ConversationEnd:
        """Talk until the agent ends the call; returns why. What a model, the ear or the engine raised comes out in an
        exception group."""
        end: ConversationEnd | None = None
        async with asyncio.TaskGroup() as group:
            self._open(group)
            try:
                while end is None:
                    self._silence.set_idle(self._nobody_speaks)
                    await self._take(await self._inbox.get(), group)
                    end = None if self._floor.caller else self._floor.leaving
            finally:
                self._silence.reset()
                self._ahead.close()
                self._drop_guess()
                self._answering.close()
        return end

    def close(self) -> None:
        """Nothing more will be heard: what is queued is thrown away and the transcript ends where the sound did. Digits
        that nobody came to answer were dialled all the same."""
        for happening in self._inbox.drain():
            if isinstance(happening, DtmfEntry):
                self.transcript.add_user_turn(happening.digits)
                self.timeline.add_caller_turn(self.transcript.turn_count, None)
        answer = self._response
        if answer is not None:
            answer.cancel()
            self._playout.flush()
            self._end_answer(answer)

    async def _take(self, happening: ConversationEvent, group: asyncio.TaskGroup) -> None:
        """Deal with what happened."""
        match happening:
            case TurnEnded():
                await self._turn(happening, group)
            case Speculate():
                self._speculate(group)
            case DtmfEntry(digits):
                self._user_said(digits, group)
            case ResponseFinished(answer):
                self._answered(answer, group)
            case UserIdle():
                self._break_silence(group)
            case AudioFailure(error=error):
                raise error
            case DtmfKeyPressed() | DtmfDetected() | HoldChanged() | UtterancePlayed():
                self._pass_on(happening)
            case _:
                self._follow_caller(happening)

    def _pass_on(self, happening: DtmfKeyPressed | DtmfDetected | HoldChanged | UtterancePlayed) -> None:
        """What concerns one part alone."""
        match happening:
            case DtmfKeyPressed():
                self._silence.reset()
            case DtmfDetected():
                self._on_tone(happening)
            case HoldChanged(held):
                self._silence.set_on_hold(held)
            case UtterancePlayed(utterance=utterance):
                if self._response is not None:
                    self._response.on_utterance_sent(utterance)

    def _follow_caller(self, event: TurnEvent) -> None:
        """Events that say what the caller does."""
        match event:
            case SpeechStarted():
                self._floor.caller = True
                if self._response is not None and not (self._response.begun and self._floor.agent):
                    self._response.hold()
            case SpeechResumed():
                self._drop_guess()
            case TurnDropped():
                self._floor.caller = False
                self._drop_guess()
                self._release()
            case BargeIn():
                self._interrupted(event)
            case _:
                self._follow_agent(event)

    def _follow_agent(self, event: TurnEvent) -> None:
        """Events that say what is heard of the agent."""
        match event:
            case AgentStarted(at_ms):
                self._floor.agent = True
                self.timeline.agent_audible(at_ms)
                self._on_progress()
            case PlayoutPaused(at_ms):
                self._floor.paused_ms = at_ms
            case PlayoutResumed():
                self._floor.paused_ms = None
            case AgentStopped():
                self._floor.agent = False
                self.timeline.agent_silent()
                if self._floor.caller and self._response is not None:  # it waits for a tool: what follows waits, too
                    self._response.hold()

    @property
    def _nobody_speaks(self) -> bool:
        floor = self._floor
        return self._response is None and self._speculative is None and not (floor.caller or floor.agent)

    async def _turn(self, ended: TurnEnded, group: asyncio.TaskGroup) -> None:
        """The caller's turn is over."""
        self._floor.caller = False
        text = (await self._ear.finish()).strip()
        if text:
            self._user_said(text, group, ended)
            return
        self._drop_guess()
        self._release()
        if self._floor.cut and self._response is None:
            self._floor.cut = False
            self._say(self._answering.scripted(self._answering.phrases.say_again, ResponseOptions()), group)

    def _user_said(self, text: str, group: asyncio.TaskGroup, ended: TurnEnded | None = None) -> None:
        """Words, or digits when no turn was `ended`."""
        answer = self._response
        goes_on = ended is not None and self._turn_is_open
        self._answering.user_said(text, goes_on=goes_on, dialled=ended is None)
        self._floor.heard_words(dialled=ended is None)
        self.timeline.add_caller_turn(self.transcript.turn_count, ended)
        ended_by = self.timeline.turn.ended_by
        self._log.info("turn.user", turn=self.transcript.turn_count, ended_by=ended_by, characters=len(text))
        self._log.debug("turn.user.text", text=text)
        self._on_progress()
        if answer is not None and self._stands(answer, text):
            self._drop_guess()
            if not self._floor.caller:  # digits may come while the caller speaks
                answer.go_on()
            return
        manner = self._manner
        if answer is not None:
            self._drop_answer(answer)
        self._reply(manner, group)

    def _stands(self, answer: AgentResponse, text: str) -> bool:
        """Whether the present answer goes on after these words: nothing interrupts a protected one, a greeting is said
        in any case, and an "okay" to an agent who waits for a tool asks for nothing."""
        if answer.begun and answer.options.uninterruptible:
            self._floor.owed = True
            return True
        if answer.options.scripted and not answer.begun:
            return True
        return self._answering.waits_for_tool(answer) and is_backchannel(text, self._script.language)

    @property
    def _turn_is_open(self) -> bool:
        """The caller has not heard anything yet of what answers the last turn. (Digits stay a turn of their own.)"""
        answer = self._response
        waits = answer is not None and not answer.begun and not answer.options.scripted
        return (waits or self._floor.unanswered) and not self._floor.dialled

    @property
    def _manner(self) -> ResponseOptions:
        """Of the answer to what is being said: that of one which it replaces before it was heard."""
        return self._response.options if self._response is not None and not self._response.begun else ResponseOptions()

    def _interrupted(self, event: BargeIn) -> None:
        """The engine has flushed the playout already; what was written since then goes too."""
        answer = self._response
        if answer is None or not answer.begun:
            return
        stopped_ms = event.at_ms if self._floor.paused_ms is None else self._floor.paused_ms
        self._floor.paused_ms = None
        metrics.INTERRUPTIONS.inc()
        metrics.BARGE_IN.observe(max(stopped_ms - event.speech_start_ms, 0.0) / 1000)
        self._drop_answer(answer, stopped_ms)
        self._floor.unanswered, self._floor.cut = not answer.heard_text, True
        self._log.info("call.interrupted", heard_characters=len(answer.heard_text))

    def _release(self) -> None:
        """It was no turn: what waits may be said."""
        if self._response is not None:
            self._response.go_on()

    def _open(self, group: asyncio.TaskGroup) -> None:
        """The first message, when it is the agent's."""
        script = self._script
        if not script.speaks_first:
            return
        self.timeline.add_opening()
        manner = ResponseOptions(
            not_before=asyncio.get_running_loop().time() + script.first_message_delay_ms / 1000,
            uninterruptible=script.first_message_uninterruptible,
            scripted=script.greeting is not None,
        )
        if script.greeting is None:
            self._reply(manner, group)
        else:
            self._say(self._answering.scripted(script.greeting, manner), group)

    def _break_silence(self, group: asyncio.TaskGroup) -> None:
        """Nobody has spoken for long; perhaps somebody does since the timer ran out."""
        if not self._nobody_speaks:
            return
        self.timeline.add_idle_prompt()
        self._floor.silences += 1
        last = self._floor.silences > MAX_IDLE_PROMPTS
        phrases = self._answering.phrases
        text = phrases.silent_goodbye if last else phrases.still_there
        self._log.info("call.silent", asked=self._floor.silences - 1, hangs_up=last)
        self._say(self._answering.scripted(text, ResponseOptions(), then_hang_up=last), group)

    def _speculate(self, group: asyncio.TaskGroup) -> None:
        """The caller may have finished."""
        self._drop_guess()
        answer = self._response
        if answer is None or not (answer.begun or answer.options.scripted):
            guess = self._speculative = SpeculativeResponse()
            guess.task = group.create_task(self._prepare(guess, group))

    async def _prepare(self, guess: SpeculativeResponse, group: asyncio.TaskGroup) -> None:
        """Make the answer to what was said so far, and keep it. A recognizer that fails says so again at the end."""
        try:
            text = (await self._ear.settle()).strip()
        except ModelError as error:
            self._log.info("guess.failed", error=str(error))
            return
        if text:
            prompt = self._answering.prompt_if_said(text, goes_on=self._turn_is_open)
            self._ahead.stop()
            guess.response = self._answering.generate(prompt, self._manner, group, speculative=True)
            await self._run(guess.response)

    def _read_ahead(self) -> None:
        """The documents say something about what the caller is saying."""
        if (
            self._response is None
            and self._speculative is None
            and (prompt := self._answering.prefill_prompt(self._ear.partial()))
        ):
            self._ahead.start(prompt)

    def _drop_guess(self) -> None:
        """It was wrong, or came to nothing."""
        guess, self._speculative = self._speculative, None
        if guess is None:
            return
        if guess.response is not None:
            metrics.SPECULATIONS.labels(outcome="wasted").inc()
            self._answering.cancel_tools(guess.response)
        if guess.task is not None:
            guess.task.cancel()

    def _reply(self, manner: ResponseOptions, group: asyncio.TaskGroup) -> None:
        """Answer the talk as it stands: with what was guessed, if it answers just that."""
        prompt = self._answering.prompt(self.transcript.messages())
        self._ahead.stop()
        guess = self._speculative
        if (
            guess is not None
            and guess.response is not None
            and guess.response.prompt == prompt
            and not guess.response.failed
        ):
            metrics.SPECULATIONS.labels(outcome="used").inc()
            self._speculative, self._response = None, guess.response
            guess.response.task = guess.task
            self._answering.confirm(guess.response)
        else:
            self._drop_guess()
            self._say(self._answering.generate(prompt, manner, group), group)

    def _say(self, answer: AgentResponse, group: asyncio.TaskGroup) -> None:
        self._response = answer
        self._answering.confirm(answer)
        if self._floor.caller:
            answer.hold()
        answer.task = group.create_task(self._run(answer))

    async def _run(self, answer: AgentResponse) -> None:
        """What goes wrong with an answer that nobody will hear does no harm to the call."""
        try:
            await answer.run()
        except Exception as error:
            if answer.wanted:
                raise
            answer.failed = True
            self._log.warning("answer.failed_unheard", error=repr(error))
        else:
            self._inbox.put(ResponseFinished(answer))

    def _begin(self, answer: AgentResponse, line: TranscriptLine) -> None:
        """A line of an answer is about to be heard."""
        self.transcript.add_agent_line(line)
        if not answer.begun:
            self.timeline.response_queued()
            if answer.options.uninterruptible:
                self._protect(True)

    def _answered(self, answer: AgentResponse, group: asyncio.TaskGroup) -> None:
        """An answer was heard to its end. When the agent wants to hang up after it, a caller who speaks at this moment
        may have more to say."""
        if answer is not self._response:
            return
        self._end_answer(answer)
        if answer.ends_call:
            self._floor.leave(failed=answer.gave_up)
        elif self._floor.owed:
            self._floor.owed = False
            self._reply(ResponseOptions(), group)

    def _drop_answer(self, answer: AgentResponse, at_ms: float | None = None) -> None:
        """Nothing more of it is said."""
        self.timeline.interrupted(self.timeline.now_ms() if at_ms is None else at_ms)
        answer.cancel()
        if answer.begun:
            self._playout.flush()
        self._end_answer(answer)

    def _end_answer(self, answer: AgentResponse) -> None:
        self._response = None
        if not answer.begun:
            return
        answer.update_transcript()
        self.timeline.response_ended(answer.heard_ms)
        if answer.options.uninterruptible:
            self._protect(False)
        self._log.info("turn.agent", heard_characters=len(answer.heard_text))
        self._log.debug("turn.agent.text", text=answer.heard_text)
        self._on_progress()
        self._ahead.start(self._answering.prompt(self.transcript.messages()))
