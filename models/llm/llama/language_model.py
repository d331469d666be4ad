"""A GGUF file as a `LanguageModel` that many calls share."""

from __future__ import annotations

import asyncio
import codecs
import itertools
import json
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog

from config.errors import ModelError, StartupError
from models.llm.llama.batching.benchmark import LlmSpeed, measure
from models.llm.llama.batching.engine import BatchEngine, BatchRequest, EndReason
from models.llm.llama.batching.scheduler import Priority, StepTimePredictor
from models.llm.llama.bindings import Context, Model, weights_in_memory
from models.llm.llama.memory_plan import CAPACITY, plan_memory
from models.llm.llama.output.grammar import bare_call, json_grammar, tagged_calls
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling
from models.llm.llama.output.tool_call_parser import ToolCallParser
from models.llm.llama.prompt.chat_template import ChatTemplate
from models.llm.llama.prompt.prompt_tokenizer import PromptTokenizer
from models.protocols import ChatPrompt, LlmOutput, Measured
from models.runtime.machine import available_cores, free_bytes
from models.token_usage import TokenUsage

MAX_TOKENS: Final = 400
"""Of an answer: more than two minutes of speech."""
BATCH_TOKENS: Final = 512
"""A step reads at most so many."""
MAX_THINKING_TOKENS: Final = 48
"""Tokens that a model may think where nothing keeps it from thinking: a caller waits."""
MAX_JSON_TOKENS: Final = 1024
"""Tokens of what is written after a call."""
FIRST_TOKEN_TIMEOUT_S: Final = 6.0
"""Who has waited so long on the telephone for a first word believes that nobody is there."""
_TURN_TOKENS: Final = 30
"""What a caller's turn adds to a prompt, with the marks around it."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class _PreparedRequest:
    """See `BatchRequest`. `prompt` grows by what is written; `count` hears of both from the first token on."""

    owner: str
    prompt: list[int]
    most: int
    sampling: Sampling
    grammar: Grammar | None
    priority: Priority
    first_token_timeout_s: float | None = None
    count: TokenUsage | None = None


_one_by_one = threading.Lock()
"""Held while a model takes its memory."""


class LlamaLanguageModel:
    """See `LanguageModel`. Answers are drawn by seeds of their calls: the same call gets the same answers."""

    measured: Measured = "at start"

    def __init__(
        self,
        path: Path,
        *,
        name: str | None = None,
        sequences: int = 16,
        capacity: int = CAPACITY,
        free: int | None = None,
        threads: int | None = None,
        sampling: Sampling | None = None,
        most_tokens: int = MAX_TOKENS,
        forces_tool: Callable[[ChatPrompt], bool] = lambda _: False,
    ) -> None:
        """Memory for `sequences` talks of up to `capacity` tokens, at most what the model was trained for, or less as
        `plan` has it for `free` bytes, by default what this machine can give. An answer for whose prompt `forces_tool`
        holds is nothing but calls of its tools. Takes seconds. Raises `StartupError`, also when there is not enough
        memory."""
        self.name = name or path.stem
        with _one_by_one:
            context = self._loaded(path, sequences, capacity, free, threads)
        self._template = ChatTemplate(self._model.template, bos=self._model.bos, eos=self._model.eos)
        self._reader = PromptTokenizer(self._model, self._template)
        pace, speeds = StepTimePredictor(), list[LlmSpeed]()
        try:
            self.engine = BatchEngine(
                self._model, context, pace=pace, first=lambda: speeds.append(measure(context, pace))
            )
        except ModelError as error:
            raise StartupError(f"The language model {path} cannot be used: {error.message}") from error
        [self.speed] = speeds
        self.context_length = self.memory.capacity
        self._sampling = sampling or Sampling()
        self._most = min(most_tokens, self.context_length // 2)
        self._forces_tool = forces_tool
        self._ids = itertools.count(1)

    def _loaded(self, path: Path, sequences: int, capacity: int, free: int | None, threads: int | None) -> Context:
        """Weights, and memory as there is room for it now: while one is loaded, no other takes what it was promised."""
        others = weights_in_memory()
        self._model = Model(path)
        self._model.require_generative()
        self.memory = plan_memory(
            self.name,
            self._model.shape,
            sequences=sequences,
            capacity=min(capacity, self._model.trained_for),
            batch_tokens=BATCH_TOKENS,
            free_bytes=free_bytes() - others if free is None else free,
        )
        return Context(
            self._model,
            sequences=self.memory.sequences,
            capacity=self.memory.capacity,
            batch_tokens=BATCH_TOKENS,
            threads=threads or max(1, int(available_cores())),
        )

    def close(self) -> None:
        """End the answers in the making and the thread. Idempotent."""
        self.engine.close()

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: until the first word of a turn's answer."""
        return self.engine.expected_wait_s(_TURN_TOKENS)

    async def respond(
        self,
        prompt: ChatPrompt,
        *,
        priority: Priority = Priority.LIVE,
        first_token_timeout_s: float | None = FIRST_TOKEN_TIMEOUT_S,
    ) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. `first_token_timeout_s`: seconds after which the first word comes too late.
        Raises `ModelError` also when the model ends without a word or a call, but for what it said before it used a
        tool: nobody is to hear silence."""
        tokens, grammar = await asyncio.to_thread(lambda: (self.read(prompt), self._grammar(prompt)))
        parser = ToolCallParser({tool.name: tool.parameters for tool in prompt.tools}, self._new_id)
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        sampling = replace(self._sampling, seed=_seed(prompt) ^ self._sampling.seed)
        request: _PreparedRequest | None = _PreparedRequest(
            prompt.call_id, tokens, self._most, sampling, grammar, priority, first_token_timeout_s, prompt.tokens
        )
        gave = False
        while request is not None:
            written, thought, cut = 0, 0, None
            async with aclosing(self._written(request)) as tokens_written:
                async for token in tokens_written:
                    request.prompt.append(token)
                    written += 1
                    for part in parser.feed(characters.decode(self._model.piece(token))):
                        gave = True
                        yield part
                    thought = thought + 1 if parser.thinking_end else 0
                    if thought > MAX_THINKING_TOKENS:
                        cut = parser.thinking_end
                        break
            request = self._past_thought(request, cut, written)
            if cut:
                for part in parser.feed(cut):
                    gave = True
                    yield part
        for part in parser.finish():
            gave = True
            yield part
        if not (gave or _was_said(prompt)):
            raise ModelError("The language model wrote nothing that can be said or done")

    async def complete_json(
        self, prompt: ChatPrompt, schema: Mapping[str, Any], *, priority: Priority = Priority.AFTER_CALL
    ) -> str:
        """See `SupportsJsonSchema.complete_json`."""
        most = min(MAX_JSON_TOKENS, self.context_length // 2)
        asked = replace(prompt, tools=())
        room = self.context_length - most
        tokens = await asyncio.to_thread(self._reader.tokens, asked, room, remembers=False)
        sampling = replace(self._sampling, temperature=0.0)
        for brevity in (1, 8):  # what does not come to its end is asked for in short
            grammar = json_grammar(schema, brevity)
            wanted = _PreparedRequest(prompt.call_id, [*tokens], most, sampling, grammar, priority)
            written = [token async for token in self._written(wanted)]
            text = b"".join(map(self._model.piece, written)).decode(errors="replace")
            if _is_json(text):
                if prompt.tokens is not None:
                    prompt.tokens.count_prompt(self.name, tokens)
                    prompt.tokens.count_written(*written)
                return text
        raise ModelError(f"The language model did not come to the end of its JSON within {most} tokens")

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`."""
        tokens = await asyncio.to_thread(self._reader.shared_prefix, prompt, self.context_length - self._most)
        if tokens:
            wanted = _PreparedRequest(prompt.call_id, tokens, 0, self._sampling, None, Priority.PREFILL)
            async for _ in self._written(wanted):
                pass

    def read(self, prompt: ChatPrompt) -> list[int]:
        """The prompt's tokens, so many as fit: a talk that has grown too long loses its oldest turns. Some
        milliseconds."""
        return self._reader.tokens(prompt, self.context_length - self._most)

    async def _written(self, wanted: _PreparedRequest) -> AsyncGenerator[int, None]:
        """The tokens that the engine writes. Raises `ModelError`."""
        told: asyncio.Queue[int | EndReason | ModelError] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        count, begun = wanted.count, False

        def tell(what: int | EndReason | ModelError) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody listens
                loop.call_soon_threadsafe(told.put_nowait, what)

        ticket = self.engine.submit(
            BatchRequest(
                wanted.owner,
                [*wanted.prompt],
                wanted.most,
                wanted.sampling,
                tell,
                tell,
                wanted.grammar,
                wanted.priority,
                wanted.first_token_timeout_s,
            )
        )
        try:
            while isinstance(what := await told.get(), int):
                if count is not None:
                    if not begun:
                        count.count_prompt(self.name, wanted.prompt)
                        begun = True
                    count.count_written(what)
                yield what
            if isinstance(what, ModelError):
                raise what
        finally:
            ticket.cancel()

    def _past_thought(self, request: _PreparedRequest, end: str | None, written: int) -> _PreparedRequest | None:
        """The rest of an answer whose thought was cut short; None when there is none."""
        if end is None:
            return None
        prompt = [*request.prompt, *self._model.tokens(end)]
        most = min(request.most - written, self.context_length - len(prompt))
        return replace(request, prompt=prompt, most=most, first_token_timeout_s=None) if most > 0 else None

    def _grammar(self, prompt: ChatPrompt) -> Grammar | None:
        """What holds an answer to the tools that there are; None for what no grammar can be made of."""
        if not prompt.tools or not (self._template.tags_calls or self._forces_tool(prompt)):
            return None
        try:
            if self._template.tags_calls:
                grammar = tagged_calls(prompt.tools, forced=self._forces_tool(prompt))
            else:
                grammar = bare_call(prompt.tools)
            Sampler(self._model, self._sampling, grammar).close()
        except (ModelError, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
            _log.warning("language_model.no_grammar", call_id=prompt.call_id, error=repr(error))
            return None
        return grammar

    def _new_id(self) -> str:
        """Nine letters and digits, as the strictest templates want."""
        return f"call{next(self._ids) % 100_000:05d}"


def _seed(prompt: ChatPrompt) -> int:
    """Of the call and the length of its talk: other words when it is asked again later."""
    return zlib.crc32(f"{prompt.call_id} {len(prompt.messages)}".encode())


def _was_said(prompt: ChatPrompt) -> bool:
    """True if the caller's last words were answered in words already, before a tool was used."""
    since = itertools.takewhile(lambda message: message.role != "user", reversed(prompt.messages))
    return any(message.tool_calls and message.content.strip() for message in since)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
