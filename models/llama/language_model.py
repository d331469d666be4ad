"""A GGUF file as a `LanguageModel` that many calls share."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import os
import re
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from config.errors import ModelError
from models.llama.engine import End, Engine, Request
from models.llama.grammar import bare_call, tagged_calls
from models.llama.library import Context, Model
from models.llama.memory import plan
from models.llama.overflow import first_kept, without_middle
from models.llama.sampling import Grammar, Sampling
from models.llama.schedule import Pace, Priority
from models.llama.speed import measure
from models.llama.template import ChatTemplate
from models.llama.tool_calls import ToolCallParser
from models.machine import free_bytes
from models.protocols import AnswerPart, ChatMessage, ChatPrompt

CAPACITY: Final = 4096
"""Tokens of a talk: what an agent is told, and what was said of late."""
MOST_TOKENS: Final = 400
"""Of an answer: more than two minutes of speech."""
BATCH_TOKENS: Final = 512
"""A step reads at most so many."""
_LINE_COST: Final = 12
"""Tokens around a message, at most."""
_KEPT_CALLS: Final = 512

_log = structlog.get_logger()


class LlamaLanguageModel:
    """See `LanguageModel`. Answers are drawn by seeds of their calls: the same call gets the same answers."""

    def __init__(
        self,
        path: Path,
        *,
        name: str | None = None,
        sequences: int = 16,
        capacity: int = CAPACITY,
        cells: int | None = None,
        free: int | None = None,
        threads: int | None = None,
        sampling: Sampling | None = None,
        most_tokens: int = MOST_TOKENS,
        forces_tool: Callable[[ChatPrompt], bool] = lambda _: False,
    ) -> None:
        """Memory for `sequences` talks of up to `capacity` tokens, at most what the model was trained for, and for
        `cells` tokens of all of them, by default as `plan` has it for `free` bytes, which are what this machine can
        give. An answer for whose prompt `forces_tool` holds is nothing but calls of its tools. Takes seconds. Raises
        `StartupError`, also when there is not enough memory."""
        self.name = name or path.stem
        self._model = Model(path)
        self._template = ChatTemplate(self._model.template, bos=self._model.bos, eos=self._model.eos)
        self._controls: re.Pattern[str] = self._model.control_texts
        capacity = min(capacity, self._model.trained_for)
        self.memory = plan(
            self.name,
            self._model.shape,
            sequences=sequences,
            capacity=capacity,
            batch_tokens=BATCH_TOKENS,
            free_bytes=free_bytes() if free is None else free,
        )
        context = Context(
            self._model,
            sequences=sequences,
            cells=cells or self.memory.cells,
            batch_tokens=BATCH_TOKENS,
            threads=threads or os.cpu_count() or 1,
        )
        pace = Pace()
        self.speed = measure(context, pace)
        self.engine = Engine(self._model, context, pace=pace)
        self.context_length = min(capacity, context.cells)
        self._sampling = sampling or Sampling()
        self._most = min(most_tokens, self.context_length // 2)
        self._forces_tool = forces_tool
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._ids = itertools.count(1)

    def close(self) -> None:
        """End the answers in the making and the thread. Idempotent."""
        self.engine.close()

    async def answer(
        self, prompt: ChatPrompt, *, priority: Priority = Priority.LIVE, within_s: float | None = None
    ) -> AsyncGenerator[AnswerPart, None]:
        """See `LanguageModel.answer`. `within_s`: seconds after which the first word comes too late."""
        tokens = await asyncio.to_thread(self.read, prompt)
        told: asyncio.Queue[int | End | ModelError] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(what: int | End | ModelError) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody listens
                loop.call_soon_threadsafe(told.put_nowait, what)

        sampling = replace(self._sampling, seed=_seed(prompt) ^ self._sampling.seed)
        request = Request(
            prompt.call_id, tokens, self._most, sampling, tell, tell, self._grammar(prompt), priority, within_s
        )
        ticket = self.engine.submit(request)
        parser = ToolCallParser({tool.name: tool.parameters for tool in prompt.tools}, self._new_id)
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while isinstance(what := await told.get(), int):
                for part in parser.feed(characters.decode(self._model.piece(what))):
                    yield part
            if isinstance(what, ModelError):
                raise what
            for part in parser.finish():
                yield part
        finally:
            ticket.cancel()

    async def prepare(self, prompt: ChatPrompt) -> None:
        """Read a prompt before there is something to answer, for example an agent's while its phone still rings.
        Raises `ModelError`."""
        tokens = await asyncio.to_thread(self.read, prompt)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[End | ModelError] = loop.create_future()

        def settle(how: End | ModelError) -> None:
            if not done.cancelled():
                done.set_result(how)

        def end(how: End | ModelError) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, how)

        ticket = self.engine.submit(Request(prompt.call_id, tokens, 0, self._sampling, lambda _: None, end))
        try:
            if isinstance(how := await done, ModelError):
                raise how
        finally:
            ticket.cancel()

    def read(self, prompt: ChatPrompt) -> list[int]:
        """The prompt's tokens, so many as fit: a talk that has grown too long loses its oldest turns. Some
        milliseconds."""
        room = self.context_length - self._most
        prompt = self._cleaned(prompt)
        dropped = min(self._dropped.get(prompt.call_id, 0), len(prompt.messages))
        tokens = self._tokens(prompt, dropped)
        if len(tokens) > room:
            costs = [self._cost(message) for message in prompt.messages]
            begins = [message.role == "user" for message in prompt.messages]
            fixed = len(tokens) - sum(costs[dropped:])
            dropped = first_kept(costs, begins, room - fixed, dropped)
            self._remember(prompt.call_id, dropped)
            tokens = self._tokens(prompt, dropped)
            _log.info("language_model.turns_left_out", call_id=prompt.call_id, messages=dropped)
        return without_middle(tokens, room)

    def _tokens(self, prompt: ChatPrompt, dropped: int) -> list[int]:
        return self._model.tokens(self._template.render(replace(prompt, messages=prompt.messages[dropped:])))

    def _cost(self, message: ChatMessage) -> int:
        text = message.content + "".join(call.name + call.arguments for call in message.tool_calls)
        return len(self._model.tokens(text)) + _LINE_COST * (1 + len(message.tool_calls))

    def _remember(self, call_id: str, dropped: int) -> None:
        self._dropped[call_id] = dropped
        self._dropped.move_to_end(call_id)
        while len(self._dropped) > _KEPT_CALLS:
            self._dropped.popitem(last=False)

    def _cleaned(self, prompt: ChatPrompt) -> ChatPrompt:
        """Without what would be read as control: nobody changes who speaks by what they say."""
        messages = [replace(message, content=self._clean(message.content)) for message in prompt.messages]
        return replace(prompt, system=self._clean(prompt.system), messages=messages)

    def _clean(self, text: str) -> str:
        while (clean := self._controls.sub("", text)) != text:
            text = clean
        return text

    def _grammar(self, prompt: ChatPrompt) -> Grammar | None:
        if not prompt.tools:
            return None
        if self._template.tags_calls:
            return tagged_calls(prompt.tools, forced=self._forces_tool(prompt))
        return bare_call(prompt.tools) if self._forces_tool(prompt) else None

    def _new_id(self) -> str:
        """Nine letters and digits, as the strictest templates want."""
        return f"call{next(self._ids) % 100_000:05d}"


def _seed(prompt: ChatPrompt) -> int:
    """Of the call and the length of its talk: other words when it is asked again later."""
    return zlib.crc32(f"{prompt.call_id} {len(prompt.messages)}".encode())
