"""One answer's way from the language model through its tools to the words that are to be said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from calls.conversation.stock_phrases import Phrases
from calls.tools.toolset import ToolResult
from config.errors import ModelError
from models.protocols import END_CALL, AnswerPart, ChatMessage, ChatPrompt, LanguageModel, TextDelta, ToolCall

MOST_ROUNDS: Final = 5
"""So often a model may call tools before it has to answer; then it is asked without any."""
MOST_CALLS: Final = 8
"""In one round; what it calls beyond that is refused."""
FILLER_AFTER_S: Final = 0.8
"""A tool that takes longer is bridged by a few words."""


@dataclass(frozen=True)
class Say:
    """The next piece of the text."""

    text: str


@dataclass(frozen=True)
class Pause:
    """What was said so far is said by itself: what comes next may take a while."""


@dataclass(frozen=True)
class HangUp:
    """The last part: hang up once all of it has been heard. `failed`: because there is nobody to answer."""

    failed: bool = False


ReplyPart = Say | Pause | HangUp
ToolRun = Callable[[ToolCall], "asyncio.Task[ToolResult]"]
"""Begins to use a tool. What has begun goes on when the answer is dropped; its result is kept by whoever runs it."""


@dataclass
class _Round:
    """What the model gave at one time of asking."""

    said: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    ends_call: bool = False

    @property
    def text(self) -> str:
        return "".join(self.said)


@dataclass(frozen=True)
class Reply:
    """`ready(call)` is waited for before a tool is used: a tool with effects is not, before the answer is certain to be
    given. `confirmed()` waits until it is: nobody waits for anything before. `failed(error)` is told that the model
    failed: it says whether that is the end of the talk, or raises the error. `answered()`: the model did not."""

    language: LanguageModel
    prompt: ChatPrompt
    use: ToolRun
    ready: Callable[[ToolCall], Awaitable[object]]
    confirmed: Callable[[], Awaitable[object]]
    failed: Callable[[ModelError], bool]
    answered: Callable[[], None]
    phrases: Phrases

    async def parts(self) -> AsyncGenerator[ReplyPart, None]:
        """The answer; an excuse where the model fails. Raises what `failed` raises."""
        try:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    yield part
        except ModelError as error:
            last = self.failed(error)
            yield Pause()
            yield Say(self.phrases.cannot_answer if last else self.phrases.failed)
            if last:
                yield HangUp(failed=True)

    async def _parts(self) -> AsyncGenerator[ReplyPart, None]:
        messages = tuple(self.prompt.messages)
        spoken = filled = False
        for tools in (*([self.prompt.tools] * MOST_ROUNDS), ()):
            this = _Round()
            async with aclosing(self._ask(replace(self.prompt, messages=messages, tools=tools), this)) as words:
                async for say in words:
                    yield say
            self.answered()
            spoken = spoken or bool(this.text.strip())
            if not tools:
                this.calls.clear()
            if this.calls:
                yield Pause()
                used = asyncio.ensure_future(self._use(this.calls))
                try:
                    if not (filled or this.ends_call or this.text.strip()) and await self._is_slow(used):
                        filled = True
                        yield Say(self.phrases.one_moment)
                        yield Pause()
                    results = await used
                finally:
                    used.cancel()
                messages = (*messages, ChatMessage("assistant", this.text, tool_calls=tuple(this.calls)), *results)
            if this.ends_call:
                yield HangUp()
            if this.ends_call or not this.calls:
                break
        if not (spoken or this.ends_call) and messages != self.prompt.messages:
            yield Say(self.phrases.not_done)

    async def _ask(self, prompt: ChatPrompt, this: _Round) -> AsyncGenerator[Say, None]:
        """What the model says; the rest goes into `this`. After the call's end nothing is said."""
        async with _closing(self.language.answer(prompt)) as answer:
            async for part in answer:
                if isinstance(part, TextDelta):
                    if not this.ends_call:
                        this.said.append(part.text)
                        yield Say(part.text)
                elif part.name == END_CALL and self.prompt.may_end_call:
                    this.ends_call = True
                else:
                    this.calls.append(part)

    async def _is_slow(self, used: asyncio.Future[list[ChatMessage]]) -> bool:
        """Whether tools keep a caller waiting."""
        confirmed = asyncio.ensure_future(self.confirmed())
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
        if place >= MOST_CALLS:
            return ChatMessage("tool", f"Not called: {MOST_CALLS} at a time.", tool_call_id=call.id, ok=False)
        await self.ready(call)
        answer = await asyncio.shield(self.use(call))
        return ChatMessage("tool", answer.content, tool_call_id=call.id, ok=answer.ok)


@asynccontextmanager
async def _closing(parts: AsyncIterator[AnswerPart]) -> AsyncIterator[AsyncIterator[AnswerPart]]:
    """The same; closed at the end, so that the model stops."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()


async def just(text: str, *, then_hang_up: bool = False) -> AsyncGenerator[ReplyPart, None]:
    """A fixed answer."""
    yield Say(text)
    if then_hang_up:
        yield HangUp()
