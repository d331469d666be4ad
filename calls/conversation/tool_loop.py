"""The tool-calling loop of one response: asks the language model, runs the tools that it calls, and asks it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from calls.conversation.stock_phrases import StockPhrases
from calls.tools.toolset import ToolResult
from config.errors import ModelError
from models.protocols import END_CALL, ChatMessage, ChatPrompt, LanguageModel, LlmOutput, TextDelta, ToolCall
from storage.calls.transfers import TransferOrder

MAX_TOOL_ROUNDS: Final = 5
"""Requests in which a model may call tools; then it is asked without any."""
MAX_TOOL_CALLS: Final = 8
"""Tool calls in the answer to one request; further ones are refused."""
FILLER_AFTER_S: Final = 0.8
"""Duration of a tool call after which the agent speaks a filler."""
FALLBACK_AFTER_S: Final = 8.0
"""Time without any part of a response after which its fallback is spoken."""


@dataclass(frozen=True)
class SpeakText:
    """The next piece of the text."""

    text: str


@dataclass(frozen=True)
class SegmentEnd:
    """The end of a segment: its text is spoken without waiting for more, because the next part may take a while."""


@dataclass(frozen=True)
class EndCall:
    """The last part: hang up once all of the response has been played. `failed`: because the language model fails."""

    failed: bool = False


@dataclass(frozen=True)
class StartTransfer:
    """The last part: transfer the call once all of the response has been played. `call`: the model's tool call; None if
    a client asked for the transfer."""

    order: TransferOrder
    call: ToolCall | None = None


LastPart = EndCall | StartTransfer
ResponsePart = SpeakText | SegmentEnd | LastPart
RunTool = Callable[[ToolCall], "asyncio.Task[ToolResult]"]
"""Starts a tool. It goes on when the response is cut; the owner of the task gets its result."""


@dataclass
class _ModelTurn:
    """The model's answer to one request."""

    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    ends_call: bool = False
    transfer: StartTransfer | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def ends_last(self) -> bool:
        """It ends or transfers the call."""
        return self.ends_call or self.transfer is not None


@dataclass(frozen=True, kw_only=True)
class ToolCallingLoop:
    """`before_tool(call)` is awaited before a tool runs: a tool with effects does not run before the response is
    confirmed. `wait_confirmed()` waits for that. `on_failure(error)` is called when the model fails: it returns True if
    the call is to end, or raises the error. `on_success()` is called when the model has answered.
    `transfer_order(call)` returns the order of a valid call of the transfer tool, else None. `hold_message`: spoken
    before a transfer; None: the filler, if nothing else is said. `fallback`: spoken if the model fails, has returned
    nothing after `FALLBACK_AFTER_S`, or returns no text at all; None: an apology, and silence without tools."""

    llm: LanguageModel
    prompt: ChatPrompt
    run_tool: RunTool
    before_tool: Callable[[ToolCall], Awaitable[object]]
    wait_confirmed: Callable[[], Awaitable[object]]
    on_failure: Callable[[ModelError], bool]
    on_success: Callable[[], None]
    phrases: StockPhrases
    transfer_order: Callable[[ToolCall], TransferOrder | None] = lambda _: None
    hold_message: str | None = None
    fallback: str | None = None

    async def parts(self) -> AsyncGenerator[ResponsePart, None]:
        """Yields the response; the fallback or an apology where the model fails. Raises what `on_failure` raises."""
        try:
            async with aclosing(self._parts()) as parts:
                if self.fallback is not None and (first := await self._first(parts)) is not None:
                    yield first
                async for part in parts:
                    yield part
        except ModelError as error:
            last = self.on_failure(error)
            yield SegmentEnd()
            if self.fallback is not None:
                yield SpeakText(self.fallback)
                yield SegmentEnd()
            if last:
                yield SpeakText(self.phrases.final_apology)
                yield EndCall(failed=True)
            elif self.fallback is None:
                yield SpeakText(self.phrases.apology)

    async def _first(self, parts: AsyncGenerator[ResponsePart, None]) -> ResponsePart | None:
        """Returns the first part; None without any. Raises `ModelError` if there is none in time."""
        try:
            async with asyncio.timeout(FALLBACK_AFTER_S):
                return await anext(parts, None)
        except TimeoutError as error:
            raise ModelError(f"the model has returned nothing after {FALLBACK_AFTER_S} s") from error

    async def _parts(self) -> AsyncGenerator[ResponsePart, None]:
        messages = tuple(self.prompt.messages)
        has_spoken = filler_spoken = False
        for tools in (*([self.prompt.tools] * MAX_TOOL_ROUNDS), ()):
            turn = _ModelTurn()
            async with aclosing(self._ask(replace(self.prompt, messages=messages, tools=tools), turn)) as texts:
                async for text in texts:
                    yield text
            self.on_success()
            has_spoken = has_spoken or bool(turn.text.strip())
            if not tools:
                turn.calls.clear()
            if turn.calls:
                yield SegmentEnd()
                running = asyncio.ensure_future(self._run_tools(turn.calls))
                try:
                    if not (filler_spoken or turn.ends_last or turn.text.strip()) and await self._is_slow(running):
                        filler_spoken = True
                        yield SpeakText(self.phrases.filler)
                        yield SegmentEnd()
                    results = await running
                finally:
                    running.cancel()
                messages = (*messages, ChatMessage("assistant", turn.text, tool_calls=tuple(turn.calls)), *results)
            for part in self._last_parts(turn, has_spoken=has_spoken):
                yield part
            if turn.ends_last or not turn.calls:
                break
        if not (has_spoken or turn.ends_last) and (self.fallback or messages != self.prompt.messages):
            yield SpeakText(self.fallback or self.phrases.no_result)

    def _last_parts(self, turn: _ModelTurn, *, has_spoken: bool) -> Iterator[ResponsePart]:
        """Yields what ends or transfers the call, after the fallback if nothing was said."""
        if turn.ends_last and not has_spoken and self.fallback is not None:
            yield SpeakText(self.fallback)
            yield SegmentEnd()
            has_spoken = True
        if turn.ends_call:
            yield EndCall()
        elif turn.transfer is not None:
            message = self.hold_message or ("" if has_spoken else self.phrases.filler)
            if message:
                yield SegmentEnd()
                yield SpeakText(message)
            yield turn.transfer

    async def _ask(self, prompt: ChatPrompt, turn: _ModelTurn) -> AsyncGenerator[SpeakText, None]:
        """Yields the model's text; all that it returns goes into `turn`. Text after the end of the call is dropped."""
        async with _closing(self.llm.respond(prompt)) as answer:
            async for part in answer:
                if isinstance(part, TextDelta):
                    if not turn.ends_last:
                        turn.texts.append(part.text)
                        yield SpeakText(part.text)
                elif part.name == END_CALL and self.prompt.may_end_call:
                    turn.ends_call = True
                elif (order := self.transfer_order(part)) is not None:
                    turn.transfer = turn.transfer or StartTransfer(order, part)
                else:
                    turn.calls.append(part)

    async def _is_slow(self, running: asyncio.Future[list[ChatMessage]]) -> bool:
        """Wait for the tools, until `FILLER_AFTER_S` after the confirmation. Returns True if they still run."""
        confirmed = asyncio.ensure_future(self.wait_confirmed())
        try:
            await asyncio.wait((running, confirmed), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((running,), timeout=FILLER_AFTER_S)
        finally:
            confirmed.cancel()
        return not running.done()

    async def _run_tools(self, calls: Sequence[ToolCall]) -> list[ChatMessage]:
        """Run the tools at the same time. Returns their results in the order of the calls."""
        return list(await asyncio.gather(*(self._run_one(call, index) for index, call in enumerate(calls))))

    async def _run_one(self, call: ToolCall, index: int) -> ChatMessage:
        if index >= MAX_TOOL_CALLS:
            return ChatMessage("tool", f"Not called: {MAX_TOOL_CALLS} at a time.", tool_call_id=call.id, ok=False)
        await self.before_tool(call)
        result = await asyncio.shield(self.run_tool(call))
        return ChatMessage("tool", result.content, tool_call_id=call.id, ok=result.ok)


@asynccontextmanager
async def _closing(parts: AsyncIterator[LlmOutput]) -> AsyncIterator[AsyncIterator[LlmOutput]]:
    """Closes the parts at the end of the block, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()


async def scripted_parts(
    text: str | AsyncGenerator[str, None], last: LastPart | None = None
) -> AsyncGenerator[ResponsePart, None]:
    """Yields a fixed text, or its parts, and what is done after it."""
    if isinstance(text, str):
        yield SpeakText(text)
    else:
        async with aclosing(text):
            async for part in text:
                yield SpeakText(part)
    if last is not None:
        yield last
