"""`LanguageModel` of a GGUF file, shared by all calls."""

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
from models.llm.llama.batching.engine import BatchEngine, BatchRequest, EndReason
from models.llm.llama.batching.scheduler import Priority, StepTimePredictor
from models.llm.llama.batching.speed_measurement import LlmSpeed, measure
from models.llm.llama.bindings import LlamaContext, LlamaModel, loaded_weights_bytes
from models.llm.llama.memory_plan import DEFAULT_CONTEXT_LENGTH, plan_memory
from models.llm.llama.output.grammar import bare_call_grammar, json_grammar, tagged_call_grammar
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling
from models.llm.llama.output.tool_call_parser import ToolCallParser
from models.llm.llama.prompt.chat_template import ChatTemplate
from models.llm.llama.prompt.prompt_tokenizer import PromptTokenizer
from models.protocols import ChatPrompt, CostSource, LlmOutput
from models.runtime.cpu_memory_limits import available_cores, free_bytes
from models.token_usage import TokenUsage

MAX_TOKENS: Final = 400
"""Tokens of a response, at most: more than two minutes of speech."""
BATCH_TOKENS: Final = 512
"""Prompt tokens of a step, at most."""
MAX_THINKING_TOKENS: Final = 48
"""Thinking tokens, at most, of a model whose thinking cannot be disabled, because a caller waits."""
MAX_JSON_TOKENS: Final = 1024
"""Tokens of JSON after a call, at most."""
FIRST_TOKEN_TIMEOUT_S: Final = 6.0
"""Seconds until the first token: a caller who waits longer takes the line for dead."""
_TURN_TOKENS: Final = 30
"""New prompt tokens of a usual turn, with the template's tags."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class _PreparedRequest:
    """See `BatchRequest`. Generated tokens are appended to `prompt`; `usage` counts both from the first token on."""

    owner: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    grammar: Grammar | None
    priority: Priority
    first_token_timeout_s: float | None = None
    usage: TokenUsage | None = None


_loading_lock = threading.Lock()
"""Held while a model reserves its memory."""


class LlamaLanguageModel:
    """See `LanguageModel`. Sampling is seeded by the call: the same call gets the same responses."""

    cost_source: CostSource = "measured on load"

    def __init__(
        self,
        path: Path,
        *,
        name: str | None = None,
        sequences: int = 16,
        context_length: int = DEFAULT_CONTEXT_LENGTH,
        free_memory_bytes: int | None = None,
        threads: int | None = None,
        sampling: Sampling | None = None,
        max_tokens: int = MAX_TOKENS,
        forces_tool: Callable[[ChatPrompt], bool] = lambda _: False,
    ) -> None:
        """Reserves memory for `sequences` sequences of up to `context_length` tokens (at most the model's training
        context), or less by `plan_memory` for `free_memory_bytes`, by default what the machine has. If `forces_tool` is
        True for a prompt, the response consists of tool calls only. Takes seconds. Raises `StartupError`, also without
        memory."""
        self.name = name or path.stem
        with _loading_lock:
            context = self._load(path, sequences, context_length, free_memory_bytes, threads)
        self._template = ChatTemplate(self._model.chat_template, bos=self._model.bos, eos=self._model.eos)
        self._tokenizer = PromptTokenizer(self._model, self._template)
        step_times, speeds = StepTimePredictor(), list[LlmSpeed]()
        try:
            self.engine = BatchEngine(
                self._model,
                context,
                step_times=step_times,
                before_start=lambda: speeds.append(measure(context, step_times)),
            )
        except ModelError as error:
            raise StartupError(f"The language model {path} cannot be used: {error.message}") from error
        [self.speed] = speeds
        self.context_length = self.memory.context_length
        self._sampling = sampling or Sampling()
        self._max_answer_tokens = min(max_tokens, self.context_length // 2)
        self._forces_tool = forces_tool
        self._ids = itertools.count(1)

    def _load(
        self, path: Path, sequences: int, context_length: int, free_memory_bytes: int | None, threads: int | None
    ) -> LlamaContext:
        """Load the weights and plan the memory that is free now; called under `_loading_lock`."""
        loaded_weights = loaded_weights_bytes()
        self._model = LlamaModel(path)
        self._model.require_generative()
        self.memory = plan_memory(
            self.name,
            self._model.shape,
            sequences=sequences,
            context_length=min(context_length, self._model.train_context_length),
            batch_tokens=BATCH_TOKENS,
            free_bytes=free_bytes() - loaded_weights if free_memory_bytes is None else free_memory_bytes,
        )
        return LlamaContext(
            self._model,
            sequences=self.memory.sequences,
            context_length=self.memory.context_length,
            batch_tokens=BATCH_TOKENS,
            threads=threads or max(1, int(available_cores())),
        )

    def close(self) -> None:
        """Fail the responses in progress and end the thread. Idempotent."""
        self.engine.close()

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: until the first token of a turn's response."""
        return self.engine.expected_wait_s(_TURN_TOKENS)

    async def respond(
        self,
        prompt: ChatPrompt,
        *,
        priority: Priority = Priority.LIVE,
        first_token_timeout_s: float | None = FIRST_TOKEN_TIMEOUT_S,
    ) -> AsyncGenerator[LlmOutput, None]:
        """See `LanguageModel.respond`. `first_token_timeout_s`: seconds after which the response fails without a first
        token. Raises `ModelError` also for a response without text or tool call, unless the agent spoke before the tool
        call of this turn."""
        tokens, grammar = await asyncio.to_thread(lambda: (self.tokenize_prompt(prompt), self._grammar(prompt)))
        parser = ToolCallParser({tool.name: tool.parameters for tool in prompt.tools}, self._new_id)
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        sampling = replace(self._sampling, seed=_seed(prompt) ^ self._sampling.seed)
        request: _PreparedRequest | None = _PreparedRequest(
            prompt.call_id,
            tokens,
            self._max_answer_tokens,
            sampling,
            grammar,
            priority,
            first_token_timeout_s,
            prompt.tokens,
        )
        has_output = False
        while request is not None:
            written, thinking_tokens, thinking_end = 0, 0, None
            async with aclosing(self._generate(request)) as tokens_written:
                async for token in tokens_written:
                    request.prompt.append(token)
                    written += 1
                    for output in parser.feed(characters.decode(self._model.token_to_piece(token))):
                        has_output = True
                        yield output
                    thinking_tokens = thinking_tokens + 1 if parser.thinking_end else 0
                    if thinking_tokens > MAX_THINKING_TOKENS:
                        thinking_end = parser.thinking_end
                        break
            request = self._request_after_thinking(request, thinking_end, written)
            if thinking_end:
                for output in parser.feed(thinking_end):
                    has_output = True
                    yield output
        for output in parser.finish():
            has_output = True
            yield output
        if not (has_output or _has_spoken_before_tool(prompt)):
            raise ModelError("The language model wrote nothing that can be said or done")

    async def complete_json(
        self, prompt: ChatPrompt, schema: Mapping[str, Any], *, priority: Priority = Priority.AFTER_CALL
    ) -> str:
        """See `SupportsJsonSchema.complete_json`."""
        max_tokens = min(MAX_JSON_TOKENS, self.context_length // 2)
        without_tools = replace(prompt, tools=())
        prompt_budget = self.context_length - max_tokens
        tokens = await asyncio.to_thread(self._tokenizer.tokens, without_tools, prompt_budget, remember_dropped=False)
        sampling = replace(self._sampling, temperature=0.0)
        for brevity in (1, 8):  # retry with short values if the JSON does not end
            grammar = json_grammar(schema, brevity)
            request = _PreparedRequest(prompt.call_id, [*tokens], max_tokens, sampling, grammar, priority)
            written = [token async for token in self._generate(request)]
            text = b"".join(map(self._model.token_to_piece, written)).decode(errors="replace")
            if _is_json(text):
                if prompt.tokens is not None:
                    prompt.tokens.add_prompt(self.name, tokens)
                    prompt.tokens.add_completion(*written)
                return text
        raise ModelError(f"The language model did not come to the end of its JSON within {max_tokens} tokens")

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill.prefill`."""
        tokens = await asyncio.to_thread(
            self._tokenizer.shared_prefix, prompt, self.context_length - self._max_answer_tokens
        )
        if tokens:
            request = _PreparedRequest(prompt.call_id, tokens, 0, self._sampling, None, Priority.PREFILL)
            async for _ in self._generate(request):
                pass

    def tokenize_prompt(self, prompt: ChatPrompt) -> list[int]:
        """The prompt's tokens within the context, without the oldest turns if necessary. Takes some milliseconds."""
        return self._tokenizer.tokens(prompt, self.context_length - self._max_answer_tokens)

    async def _generate(self, request: _PreparedRequest) -> AsyncGenerator[int, None]:
        """Submit a request to the engine and yield its tokens. Raises `ModelError`."""
        events: asyncio.Queue[int | EndReason | ModelError] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        usage, has_begun = request.usage, False

        def put_event(event: int | EndReason | ModelError) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(events.put_nowait, event)

        handle = self.engine.submit(
            BatchRequest(
                request.owner,
                [*request.prompt],
                request.max_tokens,
                request.sampling,
                put_event,
                put_event,
                request.grammar,
                request.priority,
                request.first_token_timeout_s,
            )
        )
        try:
            while isinstance(event := await events.get(), int):
                if usage is not None:
                    if not has_begun:
                        usage.add_prompt(self.name, request.prompt)
                        has_begun = True
                    usage.add_completion(event)
                yield event
            if isinstance(event, ModelError):
                raise event
        finally:
            handle.cancel()

    def _request_after_thinking(
        self, request: _PreparedRequest, end_text: str | None, written: int
    ) -> _PreparedRequest | None:
        """The request for the rest of a response after thinking was cut off by `end_text`; None without one."""
        if end_text is None:
            return None
        prompt = [*request.prompt, *self._model.tokenize(end_text)]
        max_tokens = min(request.max_tokens - written, self.context_length - len(prompt))
        return (
            replace(request, prompt=prompt, max_tokens=max_tokens, first_token_timeout_s=None)
            if max_tokens > 0
            else None
        )

    def _grammar(self, prompt: ChatPrompt) -> Grammar | None:
        """The grammar that constrains tool calls to the prompt's tools; None without tools, or if none can be made."""
        if not prompt.tools or not (self._template.uses_call_tags or self._forces_tool(prompt)):
            return None
        try:
            if self._template.uses_call_tags:
                grammar = tagged_call_grammar(prompt.tools, forced=self._forces_tool(prompt))
            else:
                grammar = bare_call_grammar(prompt.tools)
            Sampler(self._model, self._sampling, grammar).close()
        except (ModelError, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
            _log.warning("language_model.no_grammar", call_id=prompt.call_id, error=repr(error))
            return None
        return grammar

    def _new_id(self) -> str:
        """A tool call id of nine letters and digits, which the strictest templates require."""
        return f"call{next(self._ids) % 100_000:05d}"


def _seed(prompt: ChatPrompt) -> int:
    """The seed of a response: by call and number of messages, so that a later response differs."""
    return zlib.crc32(f"{prompt.call_id} {len(prompt.messages)}".encode())


def _has_spoken_before_tool(prompt: ChatPrompt) -> bool:
    """True if the agent spoke in this turn before it called a tool."""
    current_turn = itertools.takewhile(lambda message: message.role != "user", reversed(prompt.messages))
    return any(message.tool_calls and message.content.strip() for message in current_turn)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
