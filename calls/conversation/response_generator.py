"""Makes the answers of one call: asks the language model, lets it use its tools, and remembers what they said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from calls import metrics
from calls.call_record.metering import UsageMeter
from calls.call_record.timeline import CitedPassage, ResponseTiming, Timeline, TimelineTurn, ToolTiming
from calls.call_record.transcript import ToolUse, Transcript, TranscriptLine
from calls.conversation.agent_response import AgentResponse, ResponseOptions
from calls.conversation.config import ConversationConfig
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.stock_phrases import StockPhrases, stock_phrases
from calls.conversation.tool_loop import ToolCallingLoop, scripted_parts
from calls.knowledge.context_injection import KnowledgeInjector
from calls.tools.arguments import MAX_REPORTED_NAME
from calls.tools.builtin_tools import SEND_DTMF
from calls.tools.toolset import ToolResult, ToolSet
from config.errors import ModelError
from models.llm.fallback import AnswersAlone
from models.protocols import ChatMessage, ChatPrompt, LanguageModel, ToolCall

log = structlog.get_logger()


@dataclass(frozen=True)
class LlmWithTools:
    """What answers in a call, and what counts its tokens."""

    llm: LanguageModel
    tools: ToolSet
    meter: UsageMeter = field(default_factory=UsageMeter)


def knowledge_injector(mind: LlmWithTools) -> KnowledgeInjector:
    """A model that takes nothing up that it has not asked for gets nothing."""
    return KnowledgeInjector(None if isinstance(mind.llm, AnswersAlone) else mind.tools.knowledge_prefetch)


def first_prompt(call_id: str, script: ConversationConfig, belt: ToolSet) -> ChatPrompt:
    """What a language model is told before anything is said."""
    return ChatPrompt(call_id, script.system_prompt, (), script.language, belt.definitions)


Begin = Callable[[AgentResponse, TranscriptLine], None]
"""Called before the first sound of each line of an answer."""
MAX_LLM_FAILURES: Final = 2
"""So often in a row a language model may fail before the agent says goodbye."""
STILL_RUNNING: Final = "This was called and still works: its result will follow. Do not call it again."
"""What the model is told of a tool that has not answered yet."""


@dataclass(eq=False)
class SpeculativeResponse:
    """The caller has been silent for a moment: the answer to what was said, should the turn end with that."""

    task: asyncio.Task[None] | None = None
    response: AgentResponse | None = None


@dataclass(eq=False)
class _ToolInUse:
    """A tool that works."""

    call: ToolCall
    answer: AgentResponse
    task: asyncio.Task[ToolResult]

    @property
    def counts(self) -> bool:
        """It belongs to an answer that is given, and has no result yet."""
        return self.answer.confirmed and not self.task.done()


class ResponseGenerator:
    """Makes answers, and remembers the tools that they use. What a tool of a confirmed answer does goes on when that is
    dropped, and ends with the call."""

    def __init__(
        self,
        call_id: str,
        script: ConversationConfig,
        mind: LlmWithTools,
        mouth: SpeechOutput,
        transcript: Transcript,
        timeline: Timeline,
        begin: Begin,
    ) -> None:
        self.phrases: StockPhrases = stock_phrases(script.language)
        self._call_id = call_id
        self._script = script
        self._mind = mind
        self._mouth = mouth
        self._transcript = transcript
        self._timeline = timeline
        self._begin = begin
        self._recall = knowledge_injector(mind)
        self._in_use: list[_ToolInUse] = []
        self._failures = 0  # in a row
        self._log = log.bind(call_id=call_id)

    def prompt(self, messages: Sequence[ChatMessage]) -> ChatPrompt:
        """What the language model is asked after this talk. Tools that still work are in it, before the caller's last
        words: they need not be called again."""
        script = self._script
        last = len(messages) - 1 if messages and messages[-1].role == "user" else len(messages)
        pending = [line for use in self._in_use if use.counts for line in _pending(use.call)]
        told = (*messages[:last], *pending, *messages[last:])
        return replace(first_prompt(self._call_id, script, self._mind.tools), messages=told)

    def prompt_if_said(self, text: str, *, goes_on: bool) -> ChatPrompt:
        """What the language model is asked should the caller's turn, or more of the last one, be this text."""
        known = self._recall.about(text)
        return self.prompt(self._transcript.messages_after_turn(text, extends_turn=goes_on, tool_uses=known))

    def prefill_prompt(self, text: str) -> ChatPrompt | None:
        """What the language model can read before a turn that begins like this is over; None: nothing new."""
        known = self._recall.ahead(text)
        return self.prompt(self._transcript.messages_after_tools(known)) if known else None

    def user_said(self, text: str, *, goes_on: bool, dialled: bool) -> None:
        """A turn of the caller, or more of the last one, comes into the transcript, behind what the documents say."""
        for use in () if dialled else self._recall.heard(text):
            self._transcript.add_tool_use(use)
        if goes_on:  # what was being prepared answers only its first part
            self._transcript.extend_user_turn(text)
        else:
            self._transcript.add_user_turn(text)

    def on_documents_found(self, call: Callable[[], None]) -> None:
        """`call` is called when the documents were found to say something about what the caller is saying."""
        if self._mind.tools.knowledge_prefetch is not None:
            self._mind.tools.knowledge_prefetch.on_found = call

    def generate(
        self, prompt: ChatPrompt, manner: ResponseOptions, group: asyncio.TaskGroup, *, speculative: bool = False
    ) -> AgentResponse:
        """The language model's answer; `group` runs its tools."""

        async def ready(call: ToolCall) -> None:
            if self._mind.tools.has_effects(call.name):
                await answer.wait_confirmed()
            if call.name == SEND_DTMF:  # keys are pressed after the words before them
                await answer.wait_segment_queued()

        def use(call: ToolCall) -> asyncio.Task[ToolResult]:
            task = group.create_task(self._use(call, answer))
            in_use = _ToolInUse(call, answer, task)
            self._in_use.append(in_use)
            task.add_done_callback(lambda _: self._in_use.remove(in_use))
            return task

        async def confirmed() -> None:
            await answer.wait_confirmed()

        def failed(error: ModelError) -> bool:
            if not answer.confirmed:  # it is asked again, should the answer be wanted
                raise error
            self._failures += 1
            self._log.error("answer.failed", error=str(error), failures=self._failures)
            return self._failures >= MAX_LLM_FAILURES

        def answered() -> None:
            self._failures = 0

        prompt = replace(prompt, tokens=self._mind.meter.new_token_count())
        reply = ToolCallingLoop(self._mind.llm, prompt, use, ready, confirmed, failed, answered, self.phrases)
        answer = AgentResponse(
            reply.parts(), self._mouth, ResponseTiming(self._timeline.now_ms, speculative), manner, prompt
        )
        answer.on_line = lambda line: self._begin(answer, line)
        return answer

    def scripted(self, text: str, manner: ResponseOptions, *, then_hang_up: bool = False) -> AgentResponse:
        """A text that no model thinks of."""
        making = ResponseTiming(self._timeline.now_ms, scripted=True)
        answer = AgentResponse(scripted_parts(text, then_hang_up=then_hang_up), self._mouth, making, manner)
        answer.on_line = lambda line: self._begin(answer, line)
        return answer

    def confirm(self, answer: AgentResponse) -> None:
        """It answers the newest turn. What it has asked of tools meanwhile belongs to the talk now."""
        turn = self._timeline.set_response(answer.timing)
        turn.sources += self._recall.given()
        for use, time, sources in answer.unconfirmed_uses:
            self._used(turn, use, time, sources)
        answer.unconfirmed_uses.clear()
        if answer.prompt is not None and answer.prompt.tokens is not None:
            self._mind.meter.count_tokens(answer.prompt.tokens)
        answer.confirm(turn)

    def waits_for_tool(self, answer: AgentResponse) -> bool:
        """Whether it waits for a tool."""
        return any(use.answer is answer and use.counts for use in self._in_use)

    def cancel_tools(self, answer: AgentResponse) -> None:
        """It will not be given: nobody waits for its tools, which have no effects."""
        for use in self._in_use:
            if use.answer is answer and not answer.confirmed:
                use.task.cancel()

    def close(self) -> None:
        """End the tools that are in use, and the search in the documents."""
        if self._mind.tools.knowledge_prefetch is not None:
            self._mind.tools.knowledge_prefetch.close()
        for use in self._in_use:
            use.task.cancel()

    async def _use(self, call: ToolCall, answer: AgentResponse) -> ToolResult:
        start_ms = self._timeline.now_ms()
        result = await self._mind.tools.run(call)
        metrics.TOOL_USES.labels(outcome="ok" if result.ok else "failed").inc()
        use = ToolUse(call, result.content, result.ok)
        time = ToolTiming(call.name[:MAX_REPORTED_NAME], start_ms, self._timeline.now_ms(), result.ok)
        if answer.turn is None:  # its turn is not over, so there is no place for it yet
            answer.unconfirmed_uses.append((use, time, result.sources))
        else:
            self._used(answer.turn, use, time, result.sources)
        return result

    def _used(self, turn: TimelineTurn, use: ToolUse, time: ToolTiming, sources: Sequence[CitedPassage]) -> None:
        self._transcript.add_tool_use(use)
        turn.tools.append(time)
        turn.sources += sources
        self._recall.knows(sources)


def _pending(call: ToolCall) -> tuple[ChatMessage, ChatMessage]:
    called = ChatMessage("assistant", "", tool_calls=(call,))
    return called, ChatMessage("tool", STILL_RUNNING, tool_call_id=call.id, ok=False)
