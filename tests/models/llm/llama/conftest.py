"""A tiny model, and engines that run it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.errors import ModelError
from models.llm.llama.batching.engine import BatchEngine, BatchRequest, EndReason, RequestHandle
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, Context, Model
from models.llm.llama.output.sampling import Grammar, Sampler, Sampling
from tests.models.llm.llama.tiny_gguf import write_tiny_gguf

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Model:
    return Model(tiny_path)


MakeEngine = Callable[..., BatchEngine]


@pytest.fixture
def make_engine(tiny: Model) -> Iterator[MakeEngine]:
    """Engines with exact memory, closed after the test."""
    engines: list[BatchEngine] = []

    def make(sequences: int = 8, capacity: int = 1024, bounds: StepLimits | None = None) -> BatchEngine:
        context = Context(tiny, sequences=sequences, capacity=capacity, exact=True)
        engines.append(BatchEngine(tiny, context, bounds))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@dataclass
class AnswerCollector:
    """What an engine told of one answer. `on_token` of the test is called after each token, in the engine's thread."""

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


def ask(
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
    heard = AnswerCollector(on_token=on_token)
    heard.ticket = engine.submit(
        BatchRequest(owner, prompt, most, sampling, heard.add, heard.finish, grammar, priority, within_s)
    )
    heard.has_ticket.set()
    return heard


def alone(model: Model, prompt: list[int], most: int = 30, sampling: Sampling = GREEDY) -> list[int]:
    """The answer when nothing else is in the model's memory, read at once and written token by token."""
    context, sampler = Context(model, sequences=1, capacity=1024, exact=True), Sampler(model, sampling)
    tokens: list[int] = []
    pending, at = prompt, 0
    while len(tokens) < most:
        [row] = context.evaluate([Chunk(0, at, pending, True)])
        at += len(pending)
        token = sampler.draw(context, row)
        if model.is_end(token):
            break
        tokens.append(token)
        pending = [token]
    sampler.close()
    context.close()
    return tokens
