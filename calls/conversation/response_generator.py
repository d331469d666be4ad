"""Makes the responses of one call: prompts the language model, runs its tools, and records what they returned."""

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
from calls.conversation.agent_response import AgentResponse, ResponseOptions, ResponseState
from calls.conversation.config import ConversationConfig
from calls.conversation.speech_output import SpeechOutput
from calls.conversation.stock_phrases import StockPhrases, stock_phrases
from calls.conversation.tool_loop import ToolCallingLoop, scripted_parts
from calls.knowledge.context_injection import KnowledgeInjector
from calls.tools.arguments import MAX_REPORTED_NAME
from calls.tools.builtin_tools import SEND_DTMF
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
    """Injects nothing for a model that takes up no passages that it has not asked for."""
    return KnowledgeInjector(None if isinstance(llm.model, RestartsResponse) else llm.tools.knowledge_prefetch)


def first_prompt(call_id: str, config: ConversationConfig, tools: ToolSet) -> ChatPrompt:
    """The prompt of a call before anything is said."""
    return ChatPrompt(call_id, config.system_prompt, (), config.language, tools.definitions)


MAX_LLM_FAILURES: Final = 2
"""Failures of the language model in a row after which the agent says goodbye."""
STILL_RUNNING: Final = "This was called and still works: its result will follow. Do not call it again."
"""The result in the prompt of a tool that has not returned yet."""


@dataclass(eq=False)
class SpeculativeResponse:
    """The response to the words so far, should the user's turn end with them. `response` is None until the speech
    recognizer has told these words, and when there are none."""

    task: asyncio.Task[None] | None = None
    response: AgentResponse | None = None

    def response_to(self, prompt: ChatPrompt) -> AgentResponse | None:
        """The response, if it answers just this prompt and has not failed."""
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
    """Makes responses, and keeps the tools that they run. A tool of a confirmed response goes on when that is cut, and
    ends with the call. `on_line` is called before the first sound of each line of a response."""

    def __init__(
        self,
        *,
        call_id: str,
        config: ConversationConfig,
        llm: LlmWithTools,
        output: SpeechOutput,
        transcript: Transcript,
        timeline: Timeline,
        on_line: Callable[[AgentResponse, TranscriptLine], None],
    ) -> None:
        self.phrases: StockPhrases = stock_phrases(config.language)
        self._call_id = call_id
        self._config = config
        self._llm = llm
        self._output = output
        self._transcript = transcript
        self._timeline = timeline
        self._on_line = on_line
        self._knowledge = knowledge_injector(llm)
        self._running_tools: list[_RunningTool] = []
        self._failures = 0  # in a row
        self._log = log.bind(call_id=call_id)

    def prompt(self, messages: Sequence[ChatMessage]) -> ChatPrompt:
        """The prompt after these messages. Tools that are still running are in it, before the user's last words: the
        model need not call them again."""
        last = len(messages) - 1 if messages and messages[-1].role == "user" else len(messages)
        pending = [message for tool in self._running_tools if tool.is_pending for message in _pending(tool.call)]
        prompt = first_prompt(self._call_id, self._config, self._llm.tools)
        return replace(prompt, messages=(*messages[:last], *pending, *messages[last:]))

    def prompt_if_said(self, text: str, *, continues: bool) -> ChatPrompt:
        """The prompt should the user's turn be this text; `continues`: as more of the last turn."""
        known = self._knowledge.context_for(text)
        return self.prompt(self._transcript.messages_after_turn(text, extends_turn=continues, tool_uses=known))

    def prefill_prompt(self, text: str) -> ChatPrompt | None:
        """The part of the prompt that is known before a turn that begins like this is over; None: nothing new."""
        known = self._knowledge.refreshed_context_for(text)
        return self.prompt(self._transcript.messages_after_tools(known)) if known else None

    def user_said(self, text: str, *, continues: bool, dtmf: bool) -> None:
        """Add a turn of the user to the transcript, or more of the last turn, after the passages about it."""
        for use in () if dtmf else self._knowledge.commit(text):
            self._transcript.add_tool_use(use)
        if continues:  # what was being prepared answers only its first part
            self._transcript.extend_user_turn(text)
        else:
            self._transcript.add_user_turn(text)

    def on_documents_found(self, call: Callable[[], None]) -> None:
        """Have `call` called when passages were found for what the user is saying."""
        if self._llm.tools.knowledge_prefetch is not None:
            self._llm.tools.knowledge_prefetch.on_found = call

    def generate(
        self, prompt: ChatPrompt, options: ResponseOptions, group: asyncio.TaskGroup, *, speculative: bool = False
    ) -> AgentResponse:
        """A response by the language model; `group` runs its tools."""

        async def before_tool(call: ToolCall) -> None:
            if self._llm.tools.has_effects(call.name):
                await response.wait_confirmed()
            if call.name == SEND_DTMF:  # keys are pressed after the words before them
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
            if not response.is_confirmed:  # the model is asked again, should a response be needed
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
        )
        timing = ResponseTiming(self._timeline.now_ms, speculative)
        response = AgentResponse(loop.parts(), self._output, timing, options, prompt)
        response.on_line = lambda line: self._on_line(response, line)
        return response

    def scripted(self, text: str, options: ResponseOptions, *, end_call: bool = False) -> AgentResponse:
        """A response with a fixed text, after which the call may end."""
        timing = ResponseTiming(self._timeline.now_ms, scripted=True)
        response = AgentResponse(scripted_parts(text, end_call=end_call), self._output, timing, options)
        response.on_line = lambda line: self._on_line(response, line)
        return response

    def confirm(self, response: AgentResponse) -> None:
        """The response is given to the newest turn: what it has asked of tools meanwhile comes into the transcript."""
        turn = self._timeline.set_response(response.timing)
        turn.sources += self._knowledge.take_cited()
        for use, timing, sources in response.unconfirmed_uses:
            self._record_use(turn, use, timing, sources)
        response.unconfirmed_uses.clear()
        if response.prompt is not None and response.prompt.tokens is not None:
            self._llm.meter.count_tokens(response.prompt.tokens)
        response.confirm(turn)

    def waits_for_tool(self, response: AgentResponse) -> bool:
        """True if a tool of this confirmed response is running."""
        return any(tool.response is response and tool.is_pending for tool in self._running_tools)

    def cancel(self, speculative: SpeculativeResponse) -> None:
        """The user's turn goes on, or is answered otherwise: end the speculative response with its tools, which have no
        effects."""
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
        """End the tools that are running, and the search in the documents."""
        if self._llm.tools.knowledge_prefetch is not None:
            self._llm.tools.knowledge_prefetch.close()
        for tool in self._running_tools:
            tool.task.cancel()

    async def _run_tool(self, call: ToolCall, response: AgentResponse) -> ToolResult:
        start_ms = self._timeline.now_ms()
        result = await self._llm.tools.run(call)
        metrics.TOOL_USES.labels(outcome="ok" if result.ok else "failed").inc()
        use = ToolUse(call, result.content, result.ok)
        timing = ToolTiming(call.name[:MAX_REPORTED_NAME], start_ms, self._timeline.now_ms(), result.ok)
        if response.turn is None:  # its turn is not over, so there is no place for it in the transcript yet
            response.unconfirmed_uses.append((use, timing, result.sources))
        else:
            self._record_use(response.turn, use, timing, result.sources)
        return result

    def _record_use(
        self, turn: TimelineTurn, use: ToolUse, timing: ToolTiming, sources: Sequence[CitedPassage]
    ) -> None:
        self._transcript.add_tool_use(use)
        turn.tools.append(timing)
        turn.sources += sources
        self._knowledge.mark_known(sources)


def _pending(call: ToolCall) -> tuple[ChatMessage, ChatMessage]:
    called = ChatMessage("assistant", "", tool_calls=(call,))
    return called, ChatMessage("tool", STILL_RUNNING, tool_call_id=call.id, ok=False)
