"""Priorities in the batching engine, and isolation of a failed request from the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest

from config.errors import ModelError
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from models.llm.llama.output.sampling import Sampler, Sampling
from tests.models.llm.llama.conftest import GREEDY, AnswerCollector, MakeEngine, run_alone, run_request

SLOW = StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=4)


def prompt_of(model: LlamaModel, question: str) -> list[int]:
    agent = "You are the assistant of a small hotel near the harbour. " * 3
    return model.tokenize(f"<|im_start|>system\n{agent}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n")


def test_a_request_ends_the_prefill_of_its_call_and_reuses_it(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(limits=SLOW)
    prompt, asked = prompt_of(tiny, "hello"), threading.Event()
    generated: list[AnswerCollector] = []

    def question(_: AnswerCollector) -> None:
        generated.append(run_request(engine, "a", prompt, 5))
        asked.set()

    ahead = run_request(engine, "a", prompt[:-10], 0, priority=Priority.PREFILL)
    question(ahead)
    assert generated[0].wait() == run_alone(tiny, prompt, 5)
    ahead.wait()
    assert ahead.end == "length"
    assert engine.steps <= len(prompt) / 4 + 1 + 5 + 2


def test_a_live_request_preempts_post_call_work(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    """The preempted work continues where it was."""
    engine = make_engine(sequences=1)
    summary, question = prompt_of(tiny, "a summary"), prompt_of(tiny, "hello")
    live: list[AnswerCollector] = []
    order: list[str] = []

    def call(generated: AnswerCollector) -> None:
        order.append("later")
        if len(generated.tokens) == 5:
            live.append(run_request(engine, "b", question, 5, on_token=lambda _: order.append("live")))

    seeded = Sampling(temperature=0.9, seed=3)
    later = run_request(engine, "a", summary, 12, seeded, on_token=call, priority=Priority.AFTER_CALL)
    assert later.wait() == run_alone(tiny, summary, 12, seeded)
    assert live[0].wait() == run_alone(tiny, question, 5)
    assert order == ["later"] * 5 + ["live"] * 5 + ["later"] * 7


def test_a_failed_step_fails_only_the_request_at_fault(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are retried alone, with the same result."""
    engine = make_engine(limits=SLOW)
    bad = 7
    prompts = {"good": prompt_of(tiny, "hello"), "bad": [*prompt_of(tiny, "well"), bad], "too": prompt_of(tiny, "two")}
    evaluate = LlamaContext.evaluate

    def fails(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        rows = evaluate(context, chunks)
        if any(chunk.tokens[-1] == bad and chunk.wants_logits for chunk in chunks):
            raise ModelError("a fault of one")
        return rows

    monkeypatch.setattr(LlamaContext, "evaluate", fails)
    calls = {name: run_request(engine, name, prompt, 6) for name, prompt in prompts.items()}
    for call in calls.values():
        call.wait()
    monkeypatch.undo()
    assert isinstance(calls["bad"].end, ModelError)
    assert calls["good"].tokens == run_alone(tiny, prompts["good"], 6)
    assert calls["too"].tokens == run_alone(tiny, prompts["too"], 6)


def test_a_generating_request_after_a_failed_step_is_prefilled_in_slices(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, evaluate, fails = make_engine(), LlamaContext.evaluate, threading.Event()
    prompt = [*range(5, 125)] * 4

    def broken_once(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        if fails.is_set():
            fails.clear()
            raise ModelError("broken once")
        return evaluate(context, chunks)

    monkeypatch.setattr(LlamaContext, "evaluate", broken_once)
    before: list[int] = []

    def fail(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 1:
            before.append(engine.steps)
        if len(generated.tokens) == 5:
            fails.set()

    said = run_request(engine, "a", prompt, 10, on_token=fail).wait()
    assert engine.steps <= 2 * before[0] + 10
    monkeypatch.undo()
    assert said == run_alone(tiny, prompt, 10)


def test_preempted_work_is_prefilled_in_slices(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1, limits=StepLimits(least_chunk=60, idle_chunk=60, step_s=1e-9, idle_step_s=1e-9))
    live: list[AnswerCollector] = []

    def call(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 5:
            live.append(run_request(engine, "live", [*range(100, 220)], 3))

    run_request(engine, "later", [*range(5, 125)] * 5, 10, on_token=call, priority=Priority.AFTER_CALL).wait()
    assert len(live[0].wait()) == 3
    assert engine.steps <= 10 + 5 + (2 + 3) + 11 + 5


def test_the_wait_for_a_sequence_is_part_of_the_expected_wait(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("models.llm.llama.batching.engine.time", SimpleNamespace(monotonic=lambda: now_s))
    engine = make_engine(sequences=1)
    second: list[AnswerCollector] = []
    expected: list[float] = []

    def wait(generated: AnswerCollector) -> None:
        nonlocal now_s
        if len(generated.tokens) == 2:
            second.append(run_request(engine, "b", [5, 6, 7], 2))
        if len(generated.tokens) == 5:
            expected.append(engine.expected_wait_s(20))
            now_s += 30.0
            expected.append(engine.expected_wait_s(20))

    run_request(engine, "a", [5, 6, 7], 8, on_token=wait).wait()
    second[0].wait()
    expected.append(engine.expected_wait_s(20))
    assert expected[1] == pytest.approx(30.0)
    assert max(expected[0], expected[2]) < 5


def test_a_failed_sampler_fails_only_its_request(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    sample = Sampler.sample

    def fails(sampler: Sampler, context: LlamaContext, row: int) -> int:
        if sampler._sampling_fails:  # type: ignore[attr-defined]
            raise RuntimeError("on purpose")
        return sample(sampler, context, row)

    made = Sampler.__init__

    def marked(sampler: Sampler, model: LlamaModel, sampling: Sampling, *more: object) -> None:
        made(sampler, model, sampling, *more)  # type: ignore[arg-type]
        sampler._sampling_fails = sampling.seed == 99  # type: ignore[attr-defined]

    monkeypatch.setattr(Sampler, "__init__", marked)
    monkeypatch.setattr(Sampler, "sample", fails)
    good = run_request(engine, "good", prompt_of(tiny, "hello"), 10)
    bad = run_request(engine, "bad", prompt_of(tiny, "hello"), 10, Sampling(temperature=0, seed=99))
    bad.wait()
    assert isinstance(bad.end, ModelError)
    said = good.wait()
    monkeypatch.undo()
    assert said == run_alone(tiny, prompt_of(tiny, "hello"), 10, GREEDY)


def test_at_most_one_copy_is_made_in_a_step(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of one agent that arrive together: a generating request waits for at most one of their copies."""
    engine = make_engine(limits=SLOW)
    prompt, others, events = prompt_of(tiny, "hello"), list[AnswerCollector](), list[str]()
    copy, evaluate = LlamaContext.copy, LlamaContext.evaluate

    def copied(context: LlamaContext, source: int, target: int) -> None:
        events.append("copy")
        copy(context, source, target)

    def evaluated(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        events.append("evaluate")
        return evaluate(context, chunks)

    def call(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 2:
            others.extend(run_request(engine, f"call {number}", [*prompt, number + 5], 4) for number in range(5))

    monkeypatch.setattr(LlamaContext, "copy", copied)
    monkeypatch.setattr(LlamaContext, "evaluate", evaluated)
    run_request(engine, "first", prompt, 30, on_token=call).wait()
    said = [other.wait() for other in others]
    monkeypatch.undo()
    assert said == [run_alone(tiny, [*prompt, number + 5], 4) for number in range(5)]
    assert events.count("copy") == 5
    assert ("copy", "copy") not in set(pairwise(events))


def test_a_copy_of_a_cancelled_request_does_not_block_another_one(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    run_request(engine, "first", prompt, 2).wait()
    for number in range(20):
        run_request(engine, f"gone {number}", [*prompt, 7], 4).cancel()
    assert len(run_request(engine, "new", [*prompt, 9], 4).wait()) == 4


def test_an_unexpected_exception_in_a_step_fails_only_its_requests(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens and prompts are separate batches: a prompt that fails does not retry generating requests."""
    engine, evaluate = make_engine(), LlamaContext.evaluate

    def fails(context: LlamaContext, chunks: Sequence[Chunk]) -> list[int]:
        if 299 in chunks[0].tokens:
            raise ModelError("broken")
        return evaluate(context, chunks)

    monkeypatch.setattr(LlamaContext, "evaluate", fails)
    broken: list[AnswerCollector] = []

    def call(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 3:
            broken.append(run_request(engine, "broken", [5, 6, 299, 8], 4))

    prompt = prompt_of(tiny, "hello")
    said = run_request(engine, "first", prompt, 20, on_token=call).wait()
    broken[0].wait()
    monkeypatch.undo()
    assert isinstance(broken[0].end, ModelError)
    assert said == run_alone(tiny, prompt, 20)
