"""The briefing of a transfer's target: the agent says what the call is about, answers questions, and waits for a
decision by word or by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import structlog

from calls.conversation.config import ConversationConfig
from calls.conversation.event_queue import EventQueue
from calls.session.agent_config import models_for
from calls.session.conversation_runner import CallParticipants, ConversationRunner, open_speech_streams
from calls.session.dependencies import CallDependencies
from calls.session.transfer.briefing.facts import CallFacts, decision_prompt
from calls.session.transfer.briefing.model import BriefingModel, BriefingWriter
from calls.session.transfer.briefing.phrases import BriefingText, Decision, briefing_text, decision_in
from calls.session.transfer.child_call import ChildCall
from calls.session.transfer.guarded_speech import log_recognizer_error, open_guarded_streams
from calls.session.transfer.result import TransferResult, result_of_child_end
from calls.session.transfer.target_screening import TargetScreening
from calls.session.transfer.transferred_call import TransferredCall
from calls.tools.toolset import ToolResult, ToolSet
from models.end_of_turn.backchannels import is_backchannel
from models.protocols import ToolDefinition
from storage.calls.calls import BriefingSource
from storage.calls.transfers import Transfer

IDLE_MS: Final = 10_000
"""Silence after which the agent asks once more, and then ends the briefing: together 20 s without a decision."""
_KEYS: Final = ("1", "2")

log = structlog.get_logger()


class Briefing:
    """`run` briefs the target of an answered child call, from the `facts` of the call of the caller. `writer` writes
    what it is about. `cancelled` is done when the caller wants to stay with the agent. After an error of the speech
    recognizer the target decides by key."""

    def __init__(
        self,
        parent: TransferredCall,
        transfer: Transfer,
        child: ChildCall,
        deps: CallDependencies,
        cancelled: asyncio.Future[None],
        facts: CallFacts,
        writer: BriefingWriter,
    ) -> None:
        self._number = parent.call.customer_number
        self._agent = agent = parent.agent
        self._transfer = transfer
        self._child = child
        self._deps = deps
        self._cancelled = cancelled
        self._facts = facts
        self._writer = writer
        self._chosen: BriefingText | None = None
        """The text that is said, once it is chosen: what is written later is not used."""
        self._screening = TargetScreening(child, agent, deps.engine, waits=True)
        self._decided: asyncio.Future[tuple[Decision, str]] = asyncio.get_running_loop().create_future()
        self._is_told = False
        """The target has heard who calls and why: it is being asked, or was."""

    async def run(self) -> TransferResult | None:
        """Returns None if the target accepts, else what came of it."""
        conversing = asyncio.ensure_future(self._converse())
        try:
            await asyncio.wait((conversing, self._cancelled), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not conversing.done():
                conversing.cancel()
                await asyncio.wait((conversing,))
        if conversing.cancelled():
            return TransferResult("cancelled")
        conversing.result()
        if self._decided.done():
            decision, words = self._decided.result()
            return None if decision == "accepted" else TransferResult("declined", decline_reason=words or None)
        if self._screening.ended.done():
            return self._screening.ended.result()
        return result_of_child_end(self._child.lifecycle.reason, "the briefing ended")

    async def _converse(self) -> None:
        """Hold the briefing until a decision, or until the child call is to end."""
        child, language = self._child, self._agent.language_hint
        models = models_for(self._agent, self._deps.models)
        models = replace(models, llm=BriefingModel(models.llm, self._facts, language))
        participants = CallParticipants(child.call, self._agent, self._number, child.leg, child.meter)
        tools = ToolSet([_DecisionTool("accepted", self._decide), _DecisionTool("declined", self._decide)])
        events = EventQueue()

        loop = asyncio.get_running_loop()

        def on_words(text: str) -> None:
            self._screening.partial_text(text)
            loop.call_soon_threadsafe(self._on_partial_transcript, text)

        speech_streams = open_guarded_streams(
            lambda: open_speech_streams(models, participants, tools, child.media.rate, on_words),
            lambda error: log_recognizer_error(child.call.id, error),
            self._screening.recognizer_failed,
        )
        with closing(speech_streams):
            audio = child.open_audio(
                self._screening.listen(events, models.stt),
                speech_streams.stt,
                speech_streams.end_of_turn,
                models.end_of_turn.latency_ms,
            )
            audio.monitor = child.answer
            assert child.answered_at is not None
            runner = ConversationRunner(
                participants=participants,
                deps=self._deps,
                models=models,
                config=self._config(),
                speech_streams=speech_streams,
                tools=tools,
                audio=audio,
                events=events,
                answered_at=child.answered_at,
                since_answer_ms=child.lifecycle.since_answer_ms(),
                handovers=(self._decided, self._screening.ended),
                gate=self._screening.gate,
                on_user_text=self._on_words,
                on_response_finished=self._on_response_finished,
                max_dtmf_digits=1,
                hold=child.hold,
            )
            child.conversation = runner.conversation
            try:
                await runner.run(child.lifecycle)
            finally:
                self._screening.stop_listening(audio)

    def _config(self) -> ConversationConfig:
        return ConversationConfig(
            system_prompt=decision_prompt(self._facts),
            greeting=self._briefing_parts,
            speaks_first=True,
            language=self._agent.language_hint,
            user_idle_ms=IDLE_MS,
        )

    @property
    def _announces(self) -> bool:
        """The target is told about the call, and not asked."""
        return self._transfer.mode == "warm_announce"

    async def _briefing_parts(self) -> AsyncGenerator[str, None]:
        """Yields what is always said, so that it can be spoken at once, and then the rest."""
        yield f"{self._text(None).intro} "
        if self._chosen is None:
            may_speak = asyncio.ensure_future(self._screening.gate.wait_open())
            try:
                await self._writer.wait(may_speak)
            finally:
                may_speak.cancel()
        text = self._choose_text()
        yield f"{text.about} {text.question}"

    def _text(self, written: str | None) -> BriefingText:
        """Returns the text with what the language model has written, by the template for None."""
        about = ". ".join(each for each in (self._transfer.reason, self._transfer.summary) if each)
        language = self._agent.language_hint
        return briefing_text(self._number, about or None, language, written=written, asks=not self._announces)

    def _choose_text(self) -> BriefingText:
        """Returns the text with what is written now, if anything is; each time the same."""
        if self._chosen is None:
            written = self._writer.take()
            self._chosen = self._text(written)
            source: BriefingSource = "template" if written is None else "model"
            if self._child.conversation is not None:
                self._child.conversation.timeline.set_briefing(source)
            log.info("transfer.briefed", call_id=self._child.call.id, by=source, why=self._writer.why)
        return self._chosen

    def _has_been_told(self) -> bool:
        """True once all before the question has been played, in one go."""
        conversation = self._child.conversation
        if not self._is_told and conversation is not None and self._chosen is not None:
            told = len(self._chosen.told.split())
            items = conversation.transcript.items()
            self._is_told = any(each["role"] == "assistant" and len(each["content"].split()) >= told for each in items)
        return self._is_told

    def _decision_in(self, text: str) -> Decision | None:
        screening = self._screening
        if text.strip() not in _KEYS and (screening.is_machine or screening.is_waiting or not screening.is_addressed):
            return None
        decision = decision_in(text, self._agent.language_hint, asked=self._has_been_told())
        return None if self._announces and decision == "declined" else decision

    def _on_partial_transcript(self, text: str) -> None:
        """Words over the agent interrupt it if they decide. Until the question, others do not, such as the hello of a
        person who has picked up; after it, all but backchannels do."""
        if self._child.audio is None:
            return
        goes_on = is_backchannel(text, self._agent.language_hint) if self._has_been_told() else True
        self._child.audio.on_transcript(backchannel=goes_on and self._decision_in(text) is None)

    def _on_response_finished(self) -> None:
        self._is_told = True
        if self._announces:
            self._decide("accepted", "")

    def _on_words(self, text: str) -> str | None:
        """The target's words or key: returns "" if they decide, or if nobody has said them. If they have cut the
        briefing short, it is said again. Words that began before the agent was audible are a greeting."""
        screening, is_key = self._screening, text.strip() in _KEYS
        screening.final_text(text)
        decision = self._decision_in(text) if is_key or screening.turn_is_reply else None
        if decision is not None:
            self._decide(decision, "" if is_key else text)
            return ""
        if screening.is_machine:
            return ""
        if not self._has_been_told():
            return str(self._choose_text())
        return "" if screening.is_waiting else None

    def _decide(self, decision: Decision, words: str) -> None:
        if not self._decided.done() and not self._screening.ended.done():
            self._screening.close()
            self._decided.set_result((decision, words))


class _DecisionTool:
    """The language model has understood the decision."""

    has_effects: Final = True

    def __init__(self, decision: Decision, decide: Any) -> None:
        self._decision = decision
        self._decide = decide
        accepts = decision == "accepted"
        reason = {"reason": {"type": "string", "description": "Why, in their words"}}
        self.definition: Final = ToolDefinition(
            "accept_call" if accepts else "decline_call",
            "They take the call." if accepts else "They do not take the call.",
            {"type": "object", "properties": {} if accepts else reason, "additionalProperties": False},
        )

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Ends the briefing."""
        self._decide(self._decision, arguments.get("reason", ""))
        return ToolResult("Done.", ok=True)
