"""One conversation of the agent with the user. All events come through one queue and are handled in order:
`Conversation._handle` has all transitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, assert_never
from uuid import uuid4

import structlog

from calls import metrics
from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, ToolRun
from calls.call_record.transcript import ToolUse, Transcript, TranscriptLine
from calls.conversation.agent_response import AgentResponse, ResponseOptions
from calls.conversation.checkpoint import Checkpoint
from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry, DtmfKeyPressed
from calls.conversation.event_queue import (
    ConversationEvent,
    EventQueue,
    NoteReceived,
    ResponseFinished,
    TransferFailed,
    TransferRequested,
    UserIdle,
)
from calls.conversation.finished_turns import FinishedTurns
from calls.conversation.idle_timer import HoldChanged, UserIdleTimer
from calls.conversation.prompt_prefill import PromptPrefill
from calls.conversation.response_generator import LlmWithTools, ResponseGenerator, SpeculativeResponse
from calls.conversation.speech_input import final_transcript, word_starts_ms
from calls.conversation.speech_output import AgentOutput
from calls.conversation.state import ConversationEnd, ConversationState, LastTurn, UserState
from calls.conversation.tool_loop import EndCall, StartTransfer
from calls.conversation.transfer_cancellation import cancels_transfer
from calls.conversation.transfers import NoTransfers, TransferReport, Transfers
from config.errors import ModelError
from media.engine.call_audio import AudioFailure, DtmfDetected, UtterancePlayed
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeculativeTurnEnd,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
)
from models.end_of_turn.backchannels import is_backchannel
from models.protocols import SUPERVISOR_NOTE, TRANSFER_CALL, ChatMessage, SpeechToTextStream, ToolCall

NOTE_FOR_MODEL: Final = (
    "A supervisor who listens to this call writes to you. The caller does not know of it: follow it in your next "
    "words, and never read it out or mention it."
)
"""Before the text of a note."""

log = structlog.get_logger()


class Conversation:
    """`run` holds the conversation; `close` completes the transcript, however it stopped.

    `set_uninterruptible` sets whether a barge-in cuts the playout; `on_progress` is called after a lasting change of
    the transcript, and when the agent becomes audible; `on_inband_digit` gets DTMF tones that were detected in the
    audio; `on_user_text` returns the fixed response to words of the user, "" for none, or None if the language model
    responds; `on_response_finished` is called when a response was played to its end; `on_turn` gets each finished
    turn, `on_tool` each tool call as it begins and when it has ended; `on_idle` is called when neither side speaks or
    is about to, and no event is left."""

    def __init__(
        self,
        *,
        call_id: str,
        config: ConversationConfig,
        events: EventQueue,
        stt: SpeechToTextStream,
        llm: LlmWithTools,
        output: AgentOutput,
        timeline: Timeline,
        set_uninterruptible: Callable[[bool], None],
        on_progress: Callable[[], None] = lambda: None,
        on_inband_digit: Callable[[DtmfDetected], None] = lambda _: None,
        transfers: Transfers | None = None,
        on_user_text: Callable[[str], str | None] = lambda _: None,
        on_response_finished: Callable[[], None] = lambda: None,
        on_turn: Callable[[FinishedTurn], None] = lambda _: None,
        on_tool: Callable[[ToolRun], None] = lambda _: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.transcript = Transcript(timeline.zero_ms)
        self.timeline = timeline
        self.finished_turns = FinishedTurns(timeline, on_turn)
        self._config = config
        self._events = events
        self._stt = stt
        self._playout = output.playout
        self._set_uninterruptible = set_uninterruptible
        self._on_progress = on_progress
        self._on_inband_digit = on_inband_digit
        self._on_user_text = on_user_text
        self._on_response_played = on_response_finished
        self._on_idle = on_idle
        self._transfers = NoTransfers() if transfers is None else transfers
        self._tools = llm.tools
        self._generator = ResponseGenerator(
            call_id=call_id,
            config=config,
            llm=llm,
            output=output,
            transcript=self.transcript,
            timeline=timeline,
            on_line=self._on_line,
            on_tool=on_tool,
        )
        loop = asyncio.get_running_loop()
        self._idle_timer = UserIdleTimer(
            config.user_idle_ms, lambda: events.put(UserIdle()), loop.call_later, loop.time
        )
        self._prefill = PromptPrefill(llm.model)
        self._generator.call_on_documents_found(self._prefill_while_user_speaks)
        self._state = ConversationState()
        self._response: AgentResponse | None = None  # the confirmed one that is prepared or played
        self._speculative: SpeculativeResponse | None = None
        self._notes = 0
        self._log = log.bind(call_id=call_id)

    async def run(self) -> ConversationEnd:
        """Hold the conversation until the agent ends the call; returns why. Raises the errors of models and of the
        audio engine in an exception group."""
        end: ConversationEnd | None = None
        async with asyncio.TaskGroup() as group:
            self._speak_first(group)
            try:
                while end is None:
                    self._idle_timer.set_idle(self._is_idle)
                    if self._is_idle and self._events.is_empty:
                        self._on_idle()
                    await self._handle(await self._events.get(), group)
                    waits = self._state.is_user_speaking or self._state.held_by_client
                    end = None if waits else self._state.end_requested
            finally:
                self._idle_timer.reset()
                self._prefill.close()
                self._drop_speculative()
                self._generator.close()
        return end

    def checkpoint(self) -> Checkpoint:
        """Returns what `rewind` takes to come back to this moment. Only while the conversation is idle."""
        transcript, timeline = self.transcript, self.timeline
        return Checkpoint(
            transcript.line_count, transcript.turn_count, timeline.entry_count, self._generator.known_passages
        )

    def rewind(self, to: Checkpoint) -> None:
        """Drop all that came since. Only while the conversation is idle."""
        self._prefill.stop()
        self.transcript.truncate(to.line_count, to.turn_count)
        self.timeline.truncate(to.entry_count)
        self._generator.rewind(to.known_passages)
        self._state = ConversationState()
        self._on_progress()

    def close(self) -> None:
        """Cancel the response, so that the transcript ends where the audio did. DTMF entries that were not handled yet
        come into the transcript without a response."""
        for event in self._events.drain():
            if isinstance(event, DtmfEntry):
                self.transcript.add_user_turn(event.digits, event.first_key_ms, event.last_key_ms)
                self.timeline.add_caller_turn(self.transcript.turn_count, None)
                self.finished_turns.on_user_turn(event.digits, self.timeline.turn, continues=False)
        response = self._response
        if response is not None:
            response.cancel()
            self._playout.flush()
            self._end_response(response)
        self.finished_turns.finish_user_turn()

    async def _handle(  # noqa: C901 - one short case an event: all transitions can be read here
        self, event: ConversationEvent, group: asyncio.TaskGroup
    ) -> None:
        state = self._state
        match event:
            case SpeechStarted():
                state.on_speech_started()
                self._tools.on_user_speaks()
                if self._response is not None and not (self._response.has_started and state.is_agent_audible):
                    self._response.suspend()
            case SpeechStopped() | AskEndOfTurn():
                pass  # for the audio engine alone
            case SpeculativeTurnEnd():
                self._speculate(group)
            case SpeechResumed():
                self._drop_speculative()
            case TurnDropped():
                state.on_speech_ended()
                self._drop_speculative()
                if self._response is not None:
                    self._response.resume()
            case TurnEnded():
                state.on_speech_ended()
                await self._end_turn(event, group)
            case BargeIn():
                self._on_barge_in(event)
            case AgentStarted(at_ms):
                state.is_agent_audible = True
                self.timeline.on_agent_started(at_ms)
                self._on_progress()
            case PlayoutPaused(at_ms):
                state.playout_paused_ms = at_ms
            case PlayoutResumed():
                state.playout_paused_ms = None
            case AgentStopped():
                state.is_agent_audible = False
                self.timeline.on_agent_stopped()
                if state.is_user_speaking and self._response is not None:  # it waits for a tool
                    self._response.suspend()
            case UtterancePlayed(utterance=utterance):
                if self._response is not None:
                    self._response.on_utterance_sent(utterance)
            case ResponseFinished(response):
                self._on_response_finished(response, group)
            case DtmfDetected():
                self._on_inband_digit(event)
            case DtmfKeyPressed():
                self._idle_timer.reset()
                self._tools.on_user_speaks()
            case DtmfEntry(digits, first_key_ms, last_key_ms):
                self._on_user_input(digits, (first_key_ms, last_key_ms), group)
            case UserIdle():
                self._prompt_idle_user(group)
            case HoldChanged(held, by_client):
                self._idle_timer.set_on_hold(held)
                self._on_client_hold(by_client, group)
            case TransferRequested(order):
                state.pending_transfer = order
                self._start_pending_transfer(group)
            case TransferFailed(start, report):
                self._on_transfer_failed(start, report, group)
            case NoteReceived(text, author):
                self._on_note(text, author)
            case AudioFailure(error=error):
                raise error
            case _:
                assert_never(event)

    def _on_note(self, text: str, author: str) -> None:
        """The language model has the note from its next response on."""
        self._drop_speculative()
        self._notes += 1
        call = ToolCall(f"note_{self._notes}", SUPERVISOR_NOTE, "{}")
        self.transcript.add_tool_use(ToolUse(call, f"{NOTE_FOR_MODEL}\n{text}"))
        self.timeline.add_note(text, author)
        self._log.info("call.whispered", author=author, characters=len(text))
        self._on_progress()
        if self._is_idle:
            self._prefill.start(self._generator.prompt(self.transcript.messages()))

    @property
    def _is_idle(self) -> bool:
        """True while neither side speaks or is about to speak."""
        no_response = self._response is None and self._speculative is None
        silent = not (self._state.is_user_speaking or self._state.is_agent_audible)
        return no_response and silent and not self._state.transferring

    async def _end_turn(self, ended: TurnEnded, group: asyncio.TaskGroup) -> None:
        text = await final_transcript(self._stt)
        if text:
            self._on_user_input(text, (ended.speech_start_ms, ended.speech_end_ms), group, ended)
            self.transcript.time_words(word_starts_ms(self._stt, ended.speech_start_ms))
            return
        self._drop_speculative()
        if self._response is not None:
            self._response.resume()
        if self._state.user is UserState.NOT_UNDERSTOOD and self._response is None and not self._state.transferring:
            self._state.on_repeat_prompt()
            self._start_response(
                self._generator.scripted_response(self._generator.phrases.repeat_prompt, ResponseOptions()), group
            )

    def _on_user_input(
        self,
        text: str,
        span_ms: tuple[float | None, float | None],
        group: asyncio.TaskGroup,
        ended: TurnEnded | None = None,
    ) -> None:
        """Respond to the words of a turn that has `ended`; without `ended`, to the digits of a DTMF entry. `span_ms`:
        their beginning and end."""
        response, dtmf = self._response, ended is None
        continues = not dtmf and self._continues_turn
        self._generator.add_user_turn(text, span_ms, continues=continues, dtmf=dtmf)
        self._state.on_user_input(dtmf=dtmf)
        self.timeline.add_caller_turn(self.transcript.turn_count, ended)
        self.finished_turns.on_user_turn(text, self.timeline.turn, continues=continues)
        ended_by = self.timeline.turn.ended_by
        self._log.info("turn.user", turn=self.transcript.turn_count, ended_by=ended_by, characters=len(text))
        self._log.debug("turn.user.text", text=text)
        self._on_progress()
        fixed = self._on_user_text(text)
        if fixed == "":
            self.finished_turns.finish_user_turn()
            self._drop_speculative()
            return
        if self._state.transferring:  # the agent is silent until it is known what comes of it
            self.finished_turns.finish_user_turn()
            self._drop_speculative()
            if cancels_transfer(text, self._config.language):
                self._transfers.cancel()
            return
        if response is not None and self._continues_after(response, text):
            unanswered = response.options.announces and not self._config.speaks_first
            self._state.response_pending |= unanswered or (response.has_started and response.options.uninterruptible)
            self._drop_speculative()
            if not self._state.is_user_speaking:  # DTMF may come while the user speaks
                response.resume()
            return
        self._state.response_pending = False
        options = self._next_options
        if response is not None:
            self._drop_response(response)
        if fixed is None:
            self._respond(options, group)
        else:
            self._drop_speculative()
            options = replace(options, scripted=True)
            self._start_response(self._generator.scripted_response(fixed, options), group)

    def _continues_after(self, response: AgentResponse, text: str) -> bool:
        """True if the current response goes on after these words: it is uninterruptible, or a greeting that has not
        started, or it waits for a tool and the words are a backchannel ("okay")."""
        if response.options.uninterruptible and response.has_started:
            return True
        if response.options.scripted and not response.has_started:
            return True
        return self._generator.is_waiting_for_tool(response) and is_backchannel(text, self._config.language)

    @property
    def _continues_turn(self) -> bool:
        """True if the next words continue the last turn, because nothing of its response was played."""
        response = self._response
        unheard = response is not None and not response.has_started and not response.options.scripted
        last_turn = self._state.last_turn
        return last_turn is LastTurn.OPEN or (unheard and last_turn is not LastTurn.DTMF)

    @property
    def _next_options(self) -> ResponseOptions:
        """The options of the next response: those of a response that it replaces before that has started."""
        if self._response is not None and not self._response.has_started:
            return self._response.options
        return ResponseOptions()

    def _on_barge_in(self, event: BargeIn) -> None:
        """Drop the response. The engine has flushed the playout already; audio that was written since is flushed,
        too."""
        stopped_ms = self._state.on_playout_flushed(event.at_ms)
        response = self._response
        if response is None or not response.has_started:
            return
        metrics.INTERRUPTIONS.inc()
        metrics.BARGE_IN.observe(max(stopped_ms - event.speech_start_ms, 0.0) / 1000)
        self._drop_response(response, stopped_ms)
        self._state.on_barge_in(played=bool(response.played_text))
        self._log.info("call.interrupted", heard_characters=len(response.played_text))

    def _prompt_idle_user(self, group: asyncio.TaskGroup) -> None:
        """Ask whether the user is still there, or say goodbye; does nothing if a side speaks since the timer
        expired."""
        if not self._is_idle or self._state.held_by_client:
            return
        self.timeline.add_idle_prompt()
        last = self._state.on_user_idle()
        phrases = self._generator.phrases
        text = phrases.idle_goodbye if last else phrases.idle_prompt
        self._log.info("call.silent", asked=self._state.idle_prompts - 1, hangs_up=last)
        end_call = EndCall() if last else None
        self._start_response(self._generator.scripted_response(text, ResponseOptions(), end_call), group)

    # ---- transfers ----

    def _on_client_hold(self, held: bool, group: asyncio.TaskGroup) -> None:
        """A client has put the caller on hold, or has resumed the call; the audio engine has stopped or resumed."""
        self._state.held_by_client = held
        self.timeline.set_held(held)
        if held:
            self._start_pending_transfer(group)

    def _start_pending_transfer(self, group: asyncio.TaskGroup) -> None:
        """Say the hold message and start the transfer that a client has asked for, once the agent has finished. During
        a hold by a client the caller would hear neither: the transfer starts at once, but not before the end of the
        announcement."""
        order, held, response = self._state.pending_transfer, self._state.held_by_client, self._response
        if order is None or self._state.transferring:
            return
        if response is not None and (not held or response.options.announces):
            return
        self._state.pending_transfer = None
        self._drop_speculative()
        options = ResponseOptions(uninterruptible=True, scripted=True)
        start = StartTransfer(order)
        if held:
            if response is not None:
                self._drop_response(response)
            self._start_transfer(start, group)
            return
        self.timeline.add_agent_turn()
        self._start_response(self._generator.scripted_response(self._generator.hold_message, options, start), group)

    def _start_transfer(self, start: StartTransfer, group: asyncio.TaskGroup) -> None:
        self._state.transferring = True
        self._drop_speculative()
        self._prefill.stop()
        group.create_task(self._transfer(start))

    async def _transfer(self, start: StartTransfer) -> None:
        self._events.put(TransferFailed(start, await self._transfers.run(start.order)))

    def _on_transfer_failed(self, start: StartTransfer, report: TransferReport, group: asyncio.TaskGroup) -> None:
        """Tell the caller what came of the transfer."""
        self._state.transferring = False
        call = start.call or ToolCall(f"transfer-{uuid4()}", TRANSFER_CALL, json.dumps({"target": start.order.target}))
        self.transcript.add_tool_use(ToolUse(call, report.for_model, ok=False))
        self._tools.on_transfer_failed(start.order.target)
        self._log.info("transfer.returned", target=start.order.target, why=report.for_model)
        self.timeline.add_agent_turn()
        self._respond(ResponseOptions(fallback=report.for_caller), group)

    # ---- speculative responses and prefill ----

    def _speculate(self, group: asyncio.TaskGroup) -> None:
        """Prepare a response, because the user may have finished."""
        self._drop_speculative()
        response = self._response
        if self._state.transferring:
            return
        if response is None or not (response.has_started or response.options.scripted):
            speculative = self._speculative = SpeculativeResponse()
            speculative.task = group.create_task(self._prepare(speculative, group))

    async def _prepare(self, speculative: SpeculativeResponse, group: asyncio.TaskGroup) -> None:
        """Generate the response to the words so far. A failure of the speech recognizer is only logged, because it
        fails again at the turn's end."""
        try:
            text = (await self._stt.flush()).strip()
        except ModelError as error:
            self._log.info("speculative_response.failed", error=str(error), deprecated_event="guess.failed")
            return
        if text:
            prompt = self._generator.speculative_prompt(text, continues=self._continues_turn)
            self._prefill.stop()
            speculative.response = self._generator.generate(prompt, self._next_options, group, speculative=True)
            await self._run_response(speculative.response)

    def _drop_speculative(self) -> None:
        """Cancel the speculative response, because the turn goes on or gets another response."""
        speculative, self._speculative = self._speculative, None
        if speculative is not None:
            self._generator.cancel(speculative)

    def _prefill_while_user_speaks(self) -> None:
        """Prefill the passages that were found for the words of the user, who is still speaking."""
        if self._response is not None or self._speculative is not None:
            return
        if prompt := self._generator.prefill_prompt(self._stt.partial()):
            self._prefill.start(prompt)

    # ---- the agent's responses ----

    def _speak_first(self, group: asyncio.TaskGroup) -> None:
        """Start the announcement, or else the first message if the agent speaks first."""
        config = self._config
        if config.announcement is not None:
            self.timeline.add_opening()
            options = ResponseOptions(uninterruptible=True, scripted=True, announces=True)
            self._start_response(self._generator.scripted_response(config.announcement, options), group)
        elif config.speaks_first:
            self.timeline.add_opening()
            self._start_first_message(group)

    def _start_first_message(self, group: asyncio.TaskGroup) -> None:
        """Start the first message. The language model gets no words before it but the user's, because it would take the
        announcement for the first message."""
        config = self._config
        options = ResponseOptions(
            not_before=asyncio.get_running_loop().time() + config.first_message_delay_ms / 1000,
            uninterruptible=config.first_message_uninterruptible,
            scripted=config.greeting is not None,
        )
        if config.greeting is None:
            messages = self.transcript.messages() if self.transcript.turn_count else ()
            self._state.response_pending = False
            self._respond(options, group, messages)
        else:
            greeting = config.greeting if isinstance(config.greeting, str) else config.greeting()
            self._start_response(self._generator.scripted_response(greeting, options), group)

    def _respond(
        self, options: ResponseOptions, group: asyncio.TaskGroup, messages: Sequence[ChatMessage] | None = None
    ) -> None:
        """Respond to the transcript, or to other `messages`, by the speculative response if it has exactly this
        prompt."""
        prompt = self._generator.prompt(self.transcript.messages() if messages is None else messages)
        self._prefill.stop()
        speculative = self._speculative
        response = None if speculative is None else speculative.response_to(prompt)
        if speculative is None or response is None:
            self._drop_speculative()
            self._start_response(self._generator.generate(prompt, options, group), group)
            return
        metrics.SPECULATIONS.labels(outcome="used").inc()
        self._speculative, self._response = None, response
        response.task = speculative.task
        self._generator.confirm(response)

    def _start_response(self, response: AgentResponse, group: asyncio.TaskGroup) -> None:
        """Confirm a response and run it."""
        self._response = response
        self._generator.confirm(response)
        if self._state.is_user_speaking:
            response.suspend()
        response.task = group.create_task(self._run_response(response))

    async def _run_response(self, response: AgentResponse) -> None:
        """Run a response. An error in one that is not active does not end the call."""
        try:
            await response.run()
        except Exception as error:
            if response.is_active:
                raise
            response.fail()
            self._log.warning("answer.failed_unheard", error=repr(error))
        else:
            self._events.put(ResponseFinished(response))

    def _on_line(self, response: AgentResponse, line: TranscriptLine) -> None:
        """Add a line of a response to the transcript, because its first audio is about to be queued."""
        self.transcript.add_agent_line(line)
        if not response.has_started:
            self.finished_turns.finish_user_turn()
            self.timeline.on_response_queued()
            if response.options.uninterruptible:
                self._set_uninterruptible(True)

    def _on_response_finished(self, response: AgentResponse, group: asyncio.TaskGroup) -> None:
        """Take the next action after a response was sent to its end. If that ends the call, it does so once the user is
        not speaking."""
        if response is not self._response:
            return
        self._end_response(response)
        self._on_response_played()
        match response.next_action:
            case EndCall(failed=failed):
                self._state.on_goodbye(failed=failed)
            case StartTransfer():
                self._start_transfer(response.next_action, group)
                return
        if self._state.pending_transfer is not None:
            self._start_pending_transfer(group)
        elif response.options.announces and self._config.speaks_first:
            self.timeline.add_agent_turn()
            self._start_first_message(group)
        elif response.next_action is None and self._state.response_pending:
            self._state.response_pending = False
            self._respond(ResponseOptions(), group)

    def _drop_response(self, response: AgentResponse, at_ms: float | None = None) -> None:
        """Cut the current response, now or at `at_ms`."""
        self.timeline.on_interruption(self.timeline.now_ms() if at_ms is None else at_ms)
        response.cancel()
        if response.has_started:
            self._playout.flush()
        self._end_response(response)

    def _end_response(self, response: AgentResponse) -> None:
        self._response = None
        if not response.has_started:
            return
        response.update_transcript()
        self.finished_turns.on_agent_turn(response.played_text, self.timeline.on_response_ended(response.played_ms))
        if response.options.uninterruptible:
            self._set_uninterruptible(False)
        self._log.info("turn.agent", heard_characters=len(response.played_text))
        self._log.debug("turn.agent.text", text=response.played_text)
        self._on_progress()
        self._prefill.start(self._generator.prompt(self.transcript.messages()))
