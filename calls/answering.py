"""Makes the answers of one call: asks the language model, lets it use its tools, and remembers what they said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calls import metrics
from calls.answer import Answer, Manner
from calls.mouth import Mouth
from calls.phrases import Phrases, phrases_in
from calls.reply import Reply, just
from calls.script import Script
from calls.timeline import Making, Timeline, ToolTime
from calls.tools import ToolBelt, ToolResult
from calls.transcript import Line, ToolUse, Transcript
from models.protocols import ChatMessage, ChatPrompt, LanguageModel, ToolCall


@dataclass(frozen=True)
class Mind:
    """What answers in a call."""

    language: LanguageModel
    tools: ToolBelt


Begin = Callable[[Answer, Line], None]
"""Called before the first sound of each line of an answer."""


class Answering:
    """`group` runs the tools: what one does goes on when its answer is dropped, and ends with the call."""

    def __init__(
        self,
        call_id: str,
        script: Script,
        mind: Mind,
        mouth: Mouth,
        transcript: Transcript,
        timeline: Timeline,
        begin: Begin,
    ) -> None:
        self.phrases: Phrases = phrases_in(script.language)
        self._call_id = call_id
        self._script = script
        self._mind = mind
        self._mouth = mouth
        self._transcript = transcript
        self._timeline = timeline
        self._begin = begin
        self._uses: set[asyncio.Task[ToolResult]] = set()

    def prompt(self, messages: Sequence[ChatMessage]) -> ChatPrompt:
        """What the language model is asked after this talk."""
        script = self._script
        return ChatPrompt(self._call_id, script.system, tuple(messages), script.language, self._mind.tools.definitions)

    def to(self, prompt: ChatPrompt, manner: Manner, group: asyncio.TaskGroup, *, speculative: bool = False) -> Answer:
        """The language model's answer."""

        async def ready(call: ToolCall) -> None:
            if self._mind.tools.has_effects(call.name):
                await answer.until_confirmed()

        def use(call: ToolCall) -> asyncio.Task[ToolResult]:
            task = group.create_task(self._use(call, answer))
            self._uses.add(task)
            task.add_done_callback(self._uses.discard)
            return task

        reply = Reply(self._mind.language, prompt, use, ready, self.phrases.one_moment)
        answer = Answer(reply.parts(), self._mouth, Making(self._timeline.now_ms, speculative), manner, prompt)
        answer.on_line = lambda line: self._begin(answer, line)
        return answer

    def fixed(self, text: str, manner: Manner, *, then_hang_up: bool = False) -> Answer:
        """A text that no model thinks of."""
        making = Making(self._timeline.now_ms, scripted=True)
        answer = Answer(just(text, then_hang_up=then_hang_up), self._mouth, making, manner)
        answer.on_line = lambda line: self._begin(answer, line)
        return answer

    def confirm(self, answer: Answer) -> None:
        """It answers the newest turn. What it has asked of tools meanwhile belongs to the talk now."""
        self._timeline.answers(answer.making)
        for used in answer.unconfirmed_uses:
            self._keep(*used)
        answer.unconfirmed_uses.clear()
        answer.confirm()

    def close(self) -> None:
        """End the tools that are in use."""
        for task in self._uses:
            task.cancel()

    async def _use(self, call: ToolCall, answer: Answer) -> ToolResult:
        start_ms = self._timeline.now_ms()
        result = await self._mind.tools.run(call)
        metrics.TOOL_USES.labels(outcome="ok" if result.ok else "failed").inc()
        use = ToolUse(call, result.content, result.ok)
        times = ToolTime(call.name, start_ms, self._timeline.now_ms(), result.ok)
        if answer.confirmed:
            self._keep(use, times)
        else:  # its turn is not over, so there is no place for it yet
            answer.unconfirmed_uses.append((use, times))
        return result

    def _keep(self, use: ToolUse, times: ToolTime) -> None:
        self._transcript.tool(use)
        self._timeline.tool_used(times)
