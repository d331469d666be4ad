"""Generates the responses of one call: prompts the language model, runs its tools, and records their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from calls import metrics
from calls.call_record.metering import UsageMeter
from calls.call_record.timeline import CitedPassage, ResponseTiming, Timeline, TimelineTurn, ToolRun, ToolTiming
from calls.call_record.transcript import ToolUse, Transcript, TranscriptLine
from calls.conversation.agent_response import AgentResponse, ResponseOptions, ResponseState
from calls.conversation.config import ConversationConfig
from calls.conversation.speech_output import AgentOutput
from calls.conversation.stock_phrases import StockPhrases, stock_phrases
from calls.conversation.tool_loop import LastPart, ToolCallingLoop, scripted_parts
from calls.knowledge.context_injection import KnowledgeInjector, PassageKey
from calls.tools.arguments import MAX_REPORTED_NAME_LENGTH
from calls.tools.builtin_tools import SEND_DTMF
from calls.tools.recorded_tool_call import recorded_arguments, recorded_result
from calls.tools.toolset import ToolResult, ToolSet
from config.errors import ModelError
from models.llm.fallback import RestartsResponse
from models.protocols import ChatMessage, ChatPrompt, LanguageModel, ToolCall

log = structlog.get_logger()


@dataclass(frozen=True)
class LlmWithTools:
    """The language model of a call with its tools, and the meter that counts its tokens."""

    model: LanguageModel
    tools: ToolSet
    meter: UsageMeter = field(default_factory=UsageMeter)


def knowledge_injector(llm: LlmWithTools) -> KnowledgeInjector:
    """Returns the call's injector, which injects nothing for a model that uses only passages that it has asked for."""
    return KnowledgeInjector(None if isinstance(llm.model, RestartsResponse) else llm.tools.knowledge_prefetch)


def first_prompt(call_id: str, config: ConversationConfig, tools: ToolSet) -> ChatPrompt:
    """Returns the prompt of a call without messages."""
    return ChatPrompt(call_id, config.system_prompt, (), config.language, tools.definitions)


MAX_LLM_FAILURES: Final = 2
"""Consecutive failures of the language model after which the agent says goodbye."""
STILL_RUNNING: Final = "This was called and still works: its result will follow. Do not call it again."
"""The result of a running tool in the prompt."""


@dataclass(eq=False)
class SpeculativeResponse:
    """The response to the words so far, in case the user's turn ends with them. `response` is None until the speech
    recognizer has returned these words, and if there are none."""

    task: asyncio.Task[None] | None = None
    response: AgentResponse | None = None

    def response_to(self, prompt: ChatPrompt) -> AgentResponse | None:
        """Returns the response if it has exactly this prompt and has not failed."""
        response = self.response
        if response is None or response.prompt != prompt or response.state is ResponseState.FAILED:
            return None
        return response


@dataclass(eq=False)
class _RunningTool:
    call: ToolCall
    response: AgentResponse
    task: asyncio.Task[ToolResult]

    @property
    def is_pending(self) -> bool:
        """True if it belongs to a confirmed response and has no result yet."""
        return self.response.is_confirmed and not self.task.done()


class ResponseGenerator:
    """Generates responses and runs their tools. A tool of a confirmed response goes on when that is cut, and ends with
    the call. `on_line` is called before the first audio of each line of a response, `on_tool` when a tool begins, and
    when it has ended."""

    def __init__(
        self,
        *,
        call_id: str,
        config: ConversationConfig,
        llm: LlmWithTools,
        output: AgentOutput,
        transcript: Transcript,
        timeline: Timeline,
        on_line: Callable[[AgentResponse, TranscriptLine], None],
        on_tool: Callable[[ToolRun], None] = lambda _: None,
    ) -> None:
        self.phrases: StockPhrases = stock_phrases(config.language)
        self._call_id = call_id
        self._config = config
        self._llm = llm
        self._output = output
        self._transcript = transcript
        self._timeline = timeline
        self._on_line = on_line
        self._on_tool = on_tool
        self._tool_runs = 0
        self._knowledge = knowledge_injector(llm)
        self._running_tools: list[_RunningTool] = []
        self._failures = 0  # in a row
        self._log = log.bind(call_id=call_id)

    def prompt(self, messages: Sequence[ChatMessage]) -> ChatPrompt:
        """Returns the prompt with these messages. Tools that are running are in it, before the user's last words, so
        that the model does not call them again."""
        last = len(messages) - 1 if messages and messages[-1].role == "user" else len(messages)
        pending = [
            message for tool in self._running_tools if tool.is_pending for message in _pending_messages(tool.call)
        ]
        prompt = first_prompt(self._call_id, self._config, self._llm.tools)
        return replace(prompt, messages=(*messages[:last], *pending, *messages[last:]))

    def speculative_prompt(self, text: str, *, continues: bool) -> ChatPrompt:
        """Returns the prompt in case the user's turn is this text; `continues`: as more of the last turn."""
        passages = self._knowledge.context_for(text)
        return self.prompt(self._transcript.messages_after_turn(text, extends_turn=continues, tool_uses=passages))

    def prefill_prompt(self, text: str) -> ChatPrompt | None:
        """Returns the prompt up to a turn that begins with this text, with the passages about it; None without new
        passages."""
        passages = self._knowledge.refreshed_context_for(text)
        return self.prompt(self._transcript.messages_after_tools(passages)) if passages else None

    def add_user_turn(
        self, text: str, span_ms: tuple[float | None, float | None], *, continues: bool, dtmf: bool
    ) -> None:
        """Add a turn of the user to the transcript, or extend the last turn, after the passages about it. `span_ms`:
        its beginning and end, on the arrival clock."""
        for use in () if dtmf else self._knowledge.commit(text):
            self._transcript.add_tool_use(use)
        if continues:  # the response that was prepared answers only its first part
            self._transcript.extend_user_turn(text, *span_ms)
        else:
            self._transcript.add_user_turn(text, *span_ms)

    @property
    def known_passages(self) -> frozenset[PassageKey]:
        """The passages that are in the conversation."""
        return self._knowledge.known

    def rewind(self, known_passages: frozenset[PassageKey]) -> None:
        """Only these passages are in the conversation from now on, and the language model has not failed."""
        self._knowledge.reset(known_passages)
        self._failures = 0

    def call_on_documents_found(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever passages were found for the words of the user, who is still speaking."""
        if self._llm.tools.knowledge_prefetch is not None:
            self._llm.tools.knowledge_prefetch.on_results = callback

    def generate(
        self, prompt: ChatPrompt, options: ResponseOptions, group: asyncio.TaskGroup, *, speculative: bool = False
    ) -> AgentResponse:
        """Returns a response by the language model; `group` runs its tools."""

        async def before_tool(call: ToolCall) -> None:
            if self._llm.tools.has_effects(call.name):
                await response.wait_confirmed()
            if call.name == SEND_DTMF:  # DTMF is sent after the words before it
                await response.wait_segments_queued()

        def run_tool(call: ToolCall) -> asyncio.Task[ToolResult]:
            task = group.create_task(self._run_tool(call, response))
            running = _RunningTool(call, response, task)
            self._running_tools.append(running)
            task.add_done_callback(lambda _: self._running_tools.remove(running))
            return task

        async def wait_confirmed() -> None:
            await response.wait_confirmed()

        def on_failure(error: ModelError) -> bool:
            if not response.is_confirmed:  # the model is asked again if a response is needed
                raise error
            self._failures += 1
            self._log.error("answer.failed", error=str(error), failures=self._failures)
            return self._failures >= MAX_LLM_FAILURES

        def on_success() -> None:
            self._failures = 0

        prompt = replace(prompt, tokens=self._llm.meter.new_token_count())
        loop = ToolCallingLoop(
            llm=self._llm.model,
            prompt=prompt,
            run_tool=run_tool,
            before_tool=before_tool,
            wait_confirmed=wait_confirmed,
            on_failure=on_failure,
            on_success=on_success,
            phrases=self.phrases,
            transfer_order=self._llm.tools.transfer_order,
            hold_message=self._llm.tools.hold_message,
            fallback=options.fallback,
        )
        timing = ResponseTiming(self._timeline.now_ms, speculative)
        response = AgentResponse(loop.parts(), self._output, timing, options, prompt)
        response.on_line = lambda line: self._on_line(response, line)
        return response

    def scripted_response(
        self, text: str | AsyncGenerator[str, None], options: ResponseOptions, last: LastPart | None = None
    ) -> AgentResponse:
        """Returns a response with a fixed text, or its parts, and what is done after it."""
        timing = ResponseTiming(self._timeline.now_ms, scripted=True)
        response = AgentResponse(scripted_parts(text, last), self._output, timing, options)
        response.on_line = lambda line: self._on_line(response, line)
        return response

    @property
    def hold_message(self) -> str:
        """Spoken to the caller before a transfer."""
        return self._llm.tools.hold_message or self.phrases.filler

    def confirm(self, response: AgentResponse) -> None:
        """Make it the response to the newest turn: the tool calls that it has made so far come into the transcript."""
        turn = self._timeline.set_response(response.timing)
        turn.sources += self._knowledge.pop_cited()
        for use, timing, sources in response.unconfirmed_uses:
            self._record_use(turn, use, timing, sources)
        response.unconfirmed_uses.clear()
        if response.prompt is not None and response.prompt.tokens is not None:
            self._llm.meter.count_tokens(response.prompt.tokens)
        response.confirm(turn)

    def is_waiting_for_tool(self, response: AgentResponse) -> bool:
        """True while a tool of this confirmed response is running."""
        return any(tool.response is response and tool.is_pending for tool in self._running_tools)

    def cancel(self, speculative: SpeculativeResponse) -> None:
        """Cancel the speculative response with its tools, which have no effects."""
        response = speculative.response
        if response is not None:
            metrics.SPECULATIONS.labels(outcome="wasted").inc()
            response.cancel()
            for tool in self._running_tools:
                if tool.response is response:
                    tool.task.cancel()
        if speculative.task is not None:
            speculative.task.cancel()

    def close(self) -> None:
        """Cancel the tools that are running, and the search in the documents."""
        if self._llm.tools.knowledge_prefetch is not None:
            self._llm.tools.knowledge_prefetch.close()
        for tool in self._running_tools:
            tool.task.cancel()

    async def _run_tool(self, call: ToolCall, response: AgentResponse) -> ToolResult:
        start_ms = self._timeline.now_ms()
        self._tool_runs += 1
        begun = ToolRun(
            self._tool_runs,
            None if response.turn is None else response.turn.number,
            call.name[:MAX_REPORTED_NAME_LENGTH],
            round(start_ms - self._timeline.zero_ms),
        )
        self._on_tool(begun)
        timing: ToolTiming | None = None
        try:
            result = await self._llm.tools.run(call)
            timing = self._timing(call, start_ms, result)
        finally:
            cancelled = ToolTiming(begun.name, start_ms, self._timeline.now_ms(), ok=False)
            self._on_tool(begun.ended(timing or cancelled, self._timeline.zero_ms))
        metrics.TOOL_USES.labels(outcome="ok" if result.ok else "failed").inc()
        use = ToolUse(call, result.content, result.ok)
        if response.turn is None:  # its turn is not over, and so not in the transcript yet
            response.unconfirmed_uses.append((use, timing, result.sources))
        else:
            self._record_use(response.turn, use, timing, result.sources)
        return result

    def _timing(self, call: ToolCall, start_ms: float, result: ToolResult) -> ToolTiming:
        return ToolTiming(
            call.name[:MAX_REPORTED_NAME_LENGTH],
            start_ms,
            self._timeline.now_ms(),
            result.ok,
            recorded_arguments(call.arguments, result.secrets),
            recorded_result(result.content),
        )

    def _record_use(
        self, turn: TimelineTurn, use: ToolUse, timing: ToolTiming, sources: Sequence[CitedPassage]
    ) -> None:
        self._transcript.add_tool_use(use)
        turn.tools.append(timing)
        turn.sources += sources
        self._knowledge.mark_known(sources)


def _pending_messages(call: ToolCall) -> tuple[ChatMessage, ChatMessage]:
    called = ChatMessage("assistant", "", tool_calls=(call,))
    return called, ChatMessage("tool", STILL_RUNNING, tool_call_id=call.id, ok=False)
