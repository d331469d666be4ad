"""One answer's way from the language model through its tools to the words that are to be said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from calls.tools import ToolResult
from models.protocols import END_CALL, AnswerPart, ChatMessage, ChatPrompt, LanguageModel, TextDelta, ToolCall

MOST_ROUNDS: Final = 5
"""So often a model may call tools before it has to answer; then it is asked without any."""
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
    """The last part: hang up once all of it has been heard."""


ReplyPart = Say | Pause | HangUp


ToolRun = Callable[[ToolCall], "asyncio.Task[ToolResult]"]
"""Begins to use a tool. What has begun goes on when the answer is dropped; its result is kept by whoever runs it."""


@dataclass(frozen=True)
class Reply:
    """`ready(call)` is waited for before a tool is used: a tool with effects is not, before the answer is certain to be
    given. `filler` is said while a tool takes its time."""

    language: LanguageModel
    prompt: ChatPrompt
    use: ToolRun
    ready: Callable[[ToolCall], Awaitable[object]]
    filler: str

    async def parts(self) -> AsyncGenerator[ReplyPart, None]:
        """The answer. Raises what the model raises."""
        messages = tuple(self.prompt.messages)
        filled = False
        for round_number in range(MOST_ROUNDS + 1):
            tools = self.prompt.tools if round_number < MOST_ROUNDS else ()
            said, calls = [], list[ToolCall]()
            asked = replace(self.prompt, messages=messages, tools=tools)
            async with _closing(self.language.answer(asked)) as answer:
                async for part in answer:
                    if isinstance(part, TextDelta):
                        said.append(part.text)
                        yield Say(part.text)
                    elif part.name == END_CALL and asked.may_end_call:
                        yield HangUp()
                        return
                    else:
                        calls.append(part)
            if not calls or not tools:
                return
            text = "".join(said)
            yield Pause()
            used = asyncio.ensure_future(self._use(calls))
            try:
                if not (filled or text.strip()) and not await _done_within(used, FILLER_AFTER_S):
                    filled = True
                    yield Say(self.filler)
                    yield Pause()
                results = await used
            finally:
                used.cancel()
            messages = (*messages, ChatMessage("assistant", text, tool_calls=tuple(calls)), *results)

    async def _use(self, calls: Sequence[ToolCall]) -> list[ChatMessage]:
        """All of them at once; their results in order."""
        return list(await asyncio.gather(*(self._use_one(call) for call in calls)))

    async def _use_one(self, call: ToolCall) -> ChatMessage:
        await self.ready(call)
        answer = await asyncio.shield(self.use(call))
        return ChatMessage("tool", answer.content, tool_call_id=call.id, ok=answer.ok)


async def _done_within(work: asyncio.Future[list[ChatMessage]], seconds: float) -> bool:
    done, _ = await asyncio.wait((work,), timeout=seconds)
    return bool(done)


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
