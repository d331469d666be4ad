"""Talks with a language model, in numbers: what callers wait for, and how many turns there are in a second.

The models of this bench answer in another process each, in the same way: `LlmUnderTest`. Texts are made of words of one
token (`model_words`), so that all have the same to read and to write.
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
ASKED: Final = 20
ANSWERED: Final = 30
"""Tokens of a caller's turn and of its answer."""
EARLIER: Final = 3
"""Turns that lie behind the calls of which the speed is measured."""
LATEST: Final = 10
"""Turns after which such a call forgets all but its beginning: else the quickest model would have the longest talks."""
LONG: Final = 150
"""Tokens of an answer beside which another call begins."""
_FEW: Final = 5
"""Tokens of an answer that is not measured."""
_BEGUN: Final = 15
"""Tokens of it that are spoken by then."""

Message = dict[str, str]
Row = dict[str, Any]


@dataclass
class Answer:
    """One in the making: the words so far, and when each came (s)."""

    text: str = ""
    times: list[float] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """It is well under way."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, text: str) -> None:
        """A word has come; any thread."""
        self.text += text
        self.times.append(time.perf_counter())
        if len(self.times) == _BEGUN:
            self._loop.call_soon_threadsafe(self.begun.set)


class LlmUnderTest(Protocol):
    """A language model under test."""

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        """Write so many tokens, each into `into` as it comes; no more after a cancellation."""

    async def settle(self) -> None:
        """Wait until nothing is computed any more."""


class LlmSession:
    """A talk: everything that was said is told again with each turn, as chat interfaces want it."""

    def __init__(self, model: LlmUnderTest, name: str, agent: str, earlier: int = 0) -> None:
        """`earlier` turns were said before, somewhere else."""
        self._model, self._name = model, name
        # Marks of the template take five tokens.
        self._messages: list[Message] = [{"role": "system", "content": sentence(agent, SYSTEM_TOKENS - 5)}]
        self._add(earlier)

    def _add(self, turns: int) -> None:
        for turn in range(turns):
            self._say("user", sentence(f"{self._name} asks {turn}", ASKED))
            self._say("assistant", sentence(f"{self._name} hears {turn}", ANSWERED))

    async def skip(self, turns: int) -> None:
        """Have so many turns behind it, of which the model knows."""
        if turns:
            self._add(turns)
            await self.read()

    async def turn(self, tokens: int = ANSWERED, into: Answer | None = None) -> tuple[float, Answer]:
        """Ask and be answered: when it was asked (s), and the answer."""
        answer = Answer() if into is None else into
        self._say("user", sentence(f"{self._name} asks {len(self._messages)}", ASKED))
        began = time.perf_counter()
        await self._model.answer(self._name, self._messages, tokens, answer)
        if len(answer.times) != tokens:
            raise RuntimeError(f"{len(answer.times)} of {tokens} tokens came")
        self._say("assistant", answer.text)
        return began, answer

    def rewind(self) -> None:
        """Forget what was said after the earlier turns, when there is too much of it."""
        if len(self._messages) > 2 * LATEST:
            del self._messages[1 + 2 * EARLIER :]

    async def read(self) -> None:
        """Let the model know what was said so far."""
        await self._model.answer(self._name, self._messages, 1, Answer())

    def _say(self, role: str, text: str) -> None:
        self._messages.append({"role": role, "content": text})


class LlmSessions:
    """The measurements, with one model."""

    def __init__(self, model: LlmUnderTest) -> None:
        self._model = model
        self._calls: dict[bool, list[LlmSession]] = {True: [], False: []}
        self._made = 0

    async def first_tokens(self, turns: Sequence[int]) -> Row:
        """Seconds to the first token of these turns of a single call, of an agent that is new to the model."""
        call, took, done = self._new_call(self._new_name("agent")), list[float](), 0
        for turn in turns:
            await call.skip(turn - 1 - done)
            began, answer = await call.turn(_FEW)
            took.append(answer.times[0] - began)
            done = turn
        return {"first_s": took}

    async def second_turns(self, calls: int, alike: bool) -> Row:
        """Seconds to the first token of each of so many calls that ask for their second turn in one moment, `alike` of
        one agent, else each of its own."""
        agents = [self._new_name("agent")] * calls if alike else [self._new_name("agent") for _ in range(calls)]
        sessions = [self._new_call(agent) for agent in agents]
        for call in sessions:
            await call.turn(_FEW)
        turns = await asyncio.gather(*(call.turn() for call in sessions))
        return {"first_s": sorted(answer.times[0] - began for began, answer in turns)}

    async def beside(self) -> Row:
        """A call hears a long answer when another one begins, whose agent is new to the model: seconds between the
        words of the first, alone and until the second one's first word, and how long that takes."""
        speaking, heard = self._new_call(self._new_name("agent")), Answer()
        first = asyncio.ensure_future(speaking.turn(LONG, heard))
        await heard.begun.wait()
        began, other = await self._new_call(self._new_name("agent")).turn(1)
        await first
        gaps = [(after - before, after) for before, after in zip(heard.times, heard.times[1:], strict=False)]
        until = other.times[0]
        return {
            "alone_s": [gap for gap, at in gaps if at < began],
            "gaps_s": [gap for gap, at in gaps if began <= at and at - gap < until],
            "first_s": until - began,
        }

    async def prepare(self, calls: int, alike: bool, read: bool) -> Row:
        """Let so many calls have `EARLIER` turns behind them, `alike` of one agent, else each of its own; unless they
        are `read`, the model does not know of those."""
        there = self._calls[alike]
        while len(there) < calls:
            agent = "the agent" if alike else self._new_name("agent")
            there.append(LlmSession(self._model, self._new_name("call"), agent, EARLIER))
            if read:
                await there[-1].read()
        return {}

    async def turns(self, calls: int, alike: bool, seconds: float) -> Row:
        """Turns a second of so many calls (`prepare`), each of which asks again as soon as it was answered, and seconds
        to the first token."""
        answers: list[tuple[float, Answer]] = []

        async def talk(call: LlmSession) -> None:
            while True:
                call.rewind()
                answer = Answer()
                answers.append((time.perf_counter(), answer))
                await call.turn(into=answer)

        began = time.perf_counter()
        tasks = [asyncio.ensure_future(talk(call)) for call in self._calls[alike][:calls]]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        ended = time.perf_counter()
        for task in tasks:
            task.cancel()
        for failed in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(failed, asyncio.CancelledError):
                raise RuntimeError("a call has ended") from failed
        await self._model.settle()
        tokens = sum(at <= ended for _, answer in answers for at in answer.times)
        first = [answer.times[0] - asked for asked, answer in answers if answer.times]
        return {"turns_per_s": tokens / ANSWERED / (ended - began), "first_s": median(first) if first else None}

    def _new_call(self, agent: str) -> LlmSession:
        return LlmSession(self._model, self._new_name("call"), agent)

    def _new_name(self, what: str) -> str:
        self._made += 1
        return f"{what} {self._made}"
