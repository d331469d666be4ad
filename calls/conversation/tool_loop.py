"""One answer's way from the language model through its tools to the words that are to be said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from calls.conversation.stock_phrases import StockPhrases
from calls.tools.toolset import ToolResult
from config.errors import ModelError
from models.protocols import END_CALL, AnswerPart, ChatMessage, ChatPrompt, LanguageModel, TextDelta, ToolCall

MAX_TOOL_ROUNDS: Final = 5
"""So often a model may call tools before it has to answer; then it is asked without any."""
MAX_TOOL_CALLS: Final = 8
"""In one round; what it calls beyond that is refused."""
FILLER_AFTER_S: Final = 0.8
"""A tool that takes longer is bridged by a few words."""


@dataclass(frozen=True)
class SpeakText:
    """The next piece of the text."""

    text: str


@dataclass(frozen=True)
class SegmentEnd:
    """What was said so far is said by itself: what comes next may take a while."""


@dataclass(frozen=True)
class EndCall:
    """The last part: hang up once all of it has been heard. `failed`: because there is nobody to answer."""

    failed: bool = False


ResponsePart = SpeakText | SegmentEnd | EndCall
RunTool = Callable[[ToolCall], "asyncio.Task[ToolResult]"]
"""Begins to use a tool. What has begun goes on when the answer is dropped; its result is kept by whoever runs it."""


@dataclass
class _ModelTurn:
    """What the model gave at one time of asking."""

    said: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    ends_call: bool = False

    @property
    def text(self) -> str:
        return "".join(self.said)


@dataclass(frozen=True)
class ToolCallingLoop:
    """`ready(call)` is waited for before a tool is used: a tool with effects is not, before the answer is certain to be
    given. `confirmed()` waits until it is: nobody waits for anything before. `failed(error)` is told that the model
    failed: it says whether that is the end of the talk, or raises the error. `answered()`: the model did not."""

    llm: LanguageModel
    prompt: ChatPrompt
    run_tool: RunTool
    before_tool: Callable[[ToolCall], Awaitable[object]]
    wait_confirmed: Callable[[], Awaitable[object]]
    on_failure: Callable[[ModelError], bool]
    on_success: Callable[[], None]
    phrases: StockPhrases

    async def parts(self) -> AsyncGenerator[ResponsePart, None]:
        """The answer; an excuse where the model fails. Raises what `failed` raises."""
        try:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    yield part
        except ModelError as error:
            last = self.on_failure(error)
            yield SegmentEnd()
            yield SpeakText(self.phrases.cannot_answer if last else self.phrases.failed)
            if last:
                yield EndCall(failed=True)

    async def _parts(self) -> AsyncGenerator[ResponsePart, None]:
        messages = tuple(self.prompt.messages)
        spoken = filled = False
        for tools in (*([self.prompt.tools] * MAX_TOOL_ROUNDS), ()):
            this = _ModelTurn()
            async with aclosing(self._ask(replace(self.prompt, messages=messages, tools=tools), this)) as words:
                async for say in words:
                    yield say
            self.on_success()
            spoken = spoken or bool(this.text.strip())
            if not tools:
                this.calls.clear()
            if this.calls:
                yield SegmentEnd()
                used = asyncio.ensure_future(self._use(this.calls))
                try:
                    if not (filled or this.ends_call or this.text.strip()) and await self._is_slow(used):
                        filled = True
                        yield SpeakText(self.phrases.one_moment)
                        yield SegmentEnd()
                    results = await used
                finally:
                    used.cancel()
                messages = (*messages, ChatMessage("assistant", this.text, tool_calls=tuple(this.calls)), *results)
            if this.ends_call:
                yield EndCall()
            if this.ends_call or not this.calls:
                break
        if not (spoken or this.ends_call) and messages != self.prompt.messages:
            yield SpeakText(self.phrases.not_done)

    async def _ask(self, prompt: ChatPrompt, this: _ModelTurn) -> AsyncGenerator[SpeakText, None]:
        """What the model says; the rest goes into `this`. After the call's end nothing is said."""
        async with _closing(self.llm.answer(prompt)) as answer:
            async for part in answer:
                if isinstance(part, TextDelta):
                    if not this.ends_call:
                        this.said.append(part.text)
                        yield SpeakText(part.text)
                elif part.name == END_CALL and self.prompt.may_end_call:
                    this.ends_call = True
                else:
                    this.calls.append(part)

    async def _is_slow(self, used: asyncio.Future[list[ChatMessage]]) -> bool:
        """Whether tools keep a caller waiting."""
        confirmed = asyncio.ensure_future(self.wait_confirmed())
        try:
            await asyncio.wait((used, confirmed), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((used,), timeout=FILLER_AFTER_S)
        finally:
            confirmed.cancel()
        return not used.done()

    async def _use(self, calls: Sequence[ToolCall]) -> list[ChatMessage]:
        """All of them at once; their results in order."""
        return list(await asyncio.gather(*(self._use_one(call, place) for place, call in enumerate(calls))))

    async def _use_one(self, call: ToolCall, place: int) -> ChatMessage:
        if place >= MAX_TOOL_CALLS:
            return ChatMessage("tool", f"Not called: {MAX_TOOL_CALLS} at a time.", tool_call_id=call.id, ok=False)
        await self.before_tool(call)
        answer = await asyncio.shield(self.run_tool(call))
        return ChatMessage("tool", answer.content, tool_call_id=call.id, ok=answer.ok)


@asynccontextmanager
async def _closing(parts: AsyncIterator[AnswerPart]) -> AsyncIterator[AsyncIterator[AnswerPart]]:
    """The same; closed at the end, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()


async def scripted_parts(text: str, *, then_hang_up: bool = False) -> AsyncGenerator[ResponsePart, None]:
    """A fixed answer."""
    yield SpeakText(text)
    if then_hang_up:
        yield EndCall()
