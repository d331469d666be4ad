"""A tiny model, and batching engines that run it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.errors import ModelError
from models.llm.llama.batching.engine import BatchEngine, BatchRequest, EndReason, RequestHandle
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> LlamaModel:
    return LlamaModel(tiny_path)


MakeEngine = Callable[..., BatchEngine]


@pytest.fixture
def make_engine(tiny: LlamaModel) -> Iterator[MakeEngine]:
    """Engines with a 32-bit KV cache, closed after the test."""
    engines: list[BatchEngine] = []

    def make(sequences: int = 8, context_length: int = 1024, limits: StepLimits | None = None) -> BatchEngine:
        context = LlamaContext(tiny, sequences=sequences, context_length=context_length, kv_cache_f32=True)
        engines.append(BatchEngine(tiny, context, limits))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@dataclass
class AnswerCollector:
    """Collects the tokens and the end of one request. `on_token` of the test is called after each token, in the
    engine's thread."""

    tokens: list[int] = field(default_factory=list)
    end: EndReason | ModelError | None = None
    on_token: Callable[[AnswerCollector], None] = lambda _: None
    ended: threading.Event = field(default_factory=threading.Event)
    ticket: RequestHandle | None = None
    has_ticket: threading.Event = field(default_factory=threading.Event)

    def add(self, token: int) -> None:
        assert self.has_ticket.wait(20)
        assert self.end is None
        self.tokens.append(token)
        self.on_token(self)

    def finish(self, end: EndReason | ModelError) -> None:
        assert self.end is None
        self.end = end
        self.ended.set()

    def cancel(self) -> None:
        assert self.ticket is not None
        self.ticket.cancel()

    def wait(self) -> list[int]:
        assert self.ended.wait(20)
        return self.tokens


def run_request(
    engine: BatchEngine,
    owner: str,
    prompt: list[int],
    most: int = 30,
    sampling: Sampling = GREEDY,
    on_token: Callable[[AnswerCollector], None] = lambda _: None,
    grammar: Grammar | None = None,
    priority: Priority = Priority.LIVE,
    within_s: float | None = None,
) -> AnswerCollector:
    generated = AnswerCollector(on_token=on_token)
    generated.ticket = engine.submit(
        BatchRequest(owner, prompt, most, sampling, generated.add, generated.finish, grammar, priority, within_s)
    )
    generated.has_ticket.set()
    return generated


def run_alone(model: LlamaModel, prompt: list[int], most: int = 30, sampling: Sampling = GREEDY) -> list[int]:
    """The tokens of a request in an empty context, prefilled in one batch and generated one by one."""
    context, sampler = (
        LlamaContext(model, sequences=1, context_length=1024, kv_cache_f32=True),
        Sampler(model, sampling),
    )
    tokens: list[int] = []
    pending, at = prompt, 0
    while len(tokens) < most:
        [row] = context.evaluate([Chunk(0, at, pending, True)])
        at += len(pending)
        token = sampler.sample(context, row)
        if model.is_end_of_generation(token):
            break
        tokens.append(token)
        pending = [token]
    sampler.close()
    context.close()
    return tokens
