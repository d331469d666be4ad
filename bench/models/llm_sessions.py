"""Measurements of a language model in conversations: time to first token, turns per second, and the delay of tokens
during another call's prefill.

Each compared model runs in a process of its own behind the same interface, `LlmUnderTest`. Texts consist of words of
one token each (`bench.models.random_vocabulary`), so that all models read and write the same number of tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Protocol

from bench.models.random_vocabulary import sentence

SYSTEM_TOKENS: Final = 600
USER_TOKENS: Final = 20
"""Tokens of a caller's turn."""
ANSWER_TOKENS: Final = 30
EARLIER_TURNS: Final = 3
"""Turns before the measured ones in the calls whose turns per second are measured."""
MAX_TURNS: Final = 10
"""Turns after which such a call is rewound to `EARLIER_TURNS`: else the fastest model would have the longest
prompts."""
LONG_ANSWER_TOKENS: Final = 150
"""Tokens of an answer during which another call begins."""
_SHORT_ANSWER_TOKENS: Final = 5
"""Tokens of an answer of which only the first is measured."""
_UNDER_WAY_TOKENS: Final = 15
"""Tokens of a long answer after which the other call begins."""

Message = dict[str, str]
Row = dict[str, Any]


@dataclass
class Answer:
    """An answer that is being generated: its text so far, and the time of each token (s)."""

    text: str = ""
    times: list[float] = field(default_factory=list)
    under_way: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after `_UNDER_WAY_TOKENS`."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, text: str) -> None:
        """Adds a token. May be called on any thread."""
        self.text += text
        self.times.append(time.perf_counter())
        if len(self.times) == _UNDER_WAY_TOKENS:
            self._loop.call_soon_threadsafe(self.under_way.set)


class LlmUnderTest(Protocol):
    """A language model under test."""

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """Generates `tokens` tokens and adds each to `into` as it comes; adds none after a cancellation."""

    async def settle(self) -> None:
        """Waits until the model computes nothing any more."""


class LlmSession:
    """A conversation with a language model: each turn sends the whole message history, as chat APIs require."""

    def __init__(self, model: LlmUnderTest, name: str, agent: str, earlier: int = 0) -> None:
        """The history begins with `earlier` turns, which the model has not seen."""
        self._model, self._name = model, name
        # The template's special tokens are five.
        self._messages: list[Message] = [{"role": "system", "content": sentence(agent, SYSTEM_TOKENS - 5)}]
        self._add(earlier)

    def _add(self, turns: int) -> None:
        for turn in range(turns):
            self._say("user", sentence(f"{self._name} asks {turn}", USER_TOKENS))
            self._say("assistant", sentence(f"{self._name} hears {turn}", ANSWER_TOKENS))

    async def skip(self, turns: int) -> None:
        """Adds `turns` turns to the history and lets the model process them."""
        if turns:
            self._add(turns)
            await self.prefill()

    async def turn(self, tokens: int = ANSWER_TOKENS, into: Answer | None = None) -> tuple[float, Answer]:
        """Sends the caller's next turn. Returns the time at which it was sent (s), and the answer."""
        answer = Answer() if into is None else into
        self._say("user", sentence(f"{self._name} asks {len(self._messages)}", USER_TOKENS))
        began = time.perf_counter()
        await self._model.answer(self._name, self._messages, tokens, answer)
        if len(answer.times) != tokens:
            raise RuntimeError(f"{len(answer.times)} of {tokens} tokens came")
        self._say("assistant", answer.text)
        return began, answer

    def rewind(self) -> None:
        """Removes all but the first `EARLIER_TURNS` turns from the history if there are `MAX_TURNS`."""
        if len(self._messages) > 2 * MAX_TURNS:
            del self._messages[1 + 2 * EARLIER_TURNS :]

    async def prefill(self) -> None:
        """Lets the model process the history so far."""
        await self._model.answer(self._name, self._messages, 1, Answer())

    def _say(self, role: str, text: str) -> None:
        self._messages.append({"role": role, "content": text})


class LlmSessions:
    """The measurements of one model."""

    def __init__(self, model: LlmUnderTest) -> None:
        self._model = model
        self._calls: dict[bool, list[LlmSession]] = {True: [], False: []}
        """The calls of `turns`, by whether they have one agent in common."""
        self._names = 0

    async def first_tokens(self, turns: Sequence[int]) -> Row:
        """Times to the first token of these turns of a single call, s. Its agent is new to the model."""
        call, first_s, done = self._new_call(self._new_name("agent")), list[float](), 0
        for turn in turns:
            await call.skip(turn - 1 - done)
            began, answer = await call.turn(_SHORT_ANSWER_TOKENS)
            first_s.append(answer.times[0] - began)
            done = turn
        return {"first_s": first_s}

    async def second_turns(self, calls: int, one_agent: bool) -> Row:
        """Times to the first token of the second turn of `calls` calls that begin it at the same moment, s. The calls
        are of `one_agent`, or each of its own."""
        agents = [self._new_name("agent")] * calls if one_agent else [self._new_name("agent") for _ in range(calls)]
        sessions = [self._new_call(agent) for agent in agents]
        for call in sessions:
            await call.turn(_SHORT_ANSWER_TOKENS)
        turns = await asyncio.gather(*(call.turn() for call in sessions))
        return {"first_s": sorted(answer.times[0] - began for began, answer in turns)}

    async def prefill_interference(self) -> Row:
        """During the long answer of a call another call begins, whose agent is new to the model. Returns the gaps
        between the tokens of the first call, before the second one begins and until its first token, and the time to
        that token, s."""
        call, answer = self._new_call(self._new_name("agent")), Answer()
        answering = asyncio.ensure_future(call.turn(LONG_ANSWER_TOKENS, answer))
        await answer.under_way.wait()
        began, other = await self._new_call(self._new_name("agent")).turn(1)
        await answering
        gaps = [(after - before, after) for before, after in zip(answer.times, answer.times[1:], strict=False)]
        until = other.times[0]
        return {
            "alone_s": [gap for gap, at in gaps if at < began],
            "gaps_s": [gap for gap, at in gaps if began <= at and at - gap < until],
            "first_s": until - began,
        }

    async def prepare(self, calls: int, one_agent: bool, prefill: bool) -> Row:
        """Creates calls with `EARLIER_TURNS` turns until there are `calls`, of `one_agent` or each of its own; with
        `prefill` the model processes their history."""
        sessions = self._calls[one_agent]
        while len(sessions) < calls:
            agent = "the agent" if one_agent else self._new_name("agent")
            sessions.append(LlmSession(self._model, self._new_name("call"), agent, EARLIER_TURNS))
            if prefill:
                await sessions[-1].prefill()
        return {}

    async def turns(self, calls: int, one_agent: bool, seconds: float) -> Row:
        """Turns per second of `calls` prepared calls, each of which begins its next turn as soon as it was answered,
        and the median time to the first token, s."""
        answers: list[tuple[float, Answer]] = []

        async def converse(call: LlmSession) -> None:
            while True:
                call.rewind()
                answer = Answer()
                answers.append((time.perf_counter(), answer))
                await call.turn(into=answer)

        began = time.perf_counter()
        tasks = [asyncio.ensure_future(converse(call)) for call in self._calls[one_agent][:calls]]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        ended = time.perf_counter()
        for task in tasks:
            task.cancel()
        for failed in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(failed, asyncio.CancelledError):
                raise RuntimeError("a call has ended") from failed
        await self._model.settle()
        tokens = sum(at <= ended for _, answer in answers for at in answer.times)
        first = [answer.times[0] - sent for sent, answer in answers if answer.times]
        return {"turns_per_s": tokens / ANSWER_TOKENS / (ended - began), "first_s": median(first) if first else None}

    def _new_call(self, agent: str) -> LlmSession:
        return LlmSession(self._model, self._new_name("call"), agent)

    def _new_name(self, what: str) -> str:
        self._names += 1
        return f"{what} {self._names}"
