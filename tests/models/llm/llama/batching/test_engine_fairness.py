"""Who goes first in one engine, and what a fault of one answer does to the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest

from config.errors import ModelError
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, Context, Model
from models.llm.llama.output.sampling import Sampler, Sampling
from tests.models.llm.llama.conftest import GREEDY, AnswerCollector, MakeEngine, alone, ask

SLOW = StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=4)


def prompt_of(model: Model, question: str) -> list[int]:
    agent = "You are the assistant of a small hotel near the harbour. " * 3
    return model.tokens(f"<|im_start|>system\n{agent}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n")


def test_an_answer_ends_what_was_read_ahead_for_its_call_and_goes_on_from_there(
    tiny: Model, make_engine: MakeEngine
) -> None:
    engine = make_engine(bounds=SLOW)
    prompt, asked = prompt_of(tiny, "hello"), threading.Event()
    heard: list[AnswerCollector] = []

    def question(_: AnswerCollector) -> None:
        heard.append(ask(engine, "a", prompt, 5))
        asked.set()

    ahead = ask(engine, "a", prompt[:-10], 0, priority=Priority.PREFILL)
    question(ahead)
    assert heard[0].wait() == alone(tiny, prompt, 5)
    ahead.wait()
    assert ahead.end == "length"
    assert engine.steps <= len(prompt) / 4 + 1 + 5 + 2


def test_a_caller_takes_the_place_of_work_for_which_nobody_waits(tiny: Model, make_engine: MakeEngine) -> None:
    """And that is taken up again where it was."""
    engine = make_engine(sequences=1)
    summary, question = prompt_of(tiny, "a summary"), prompt_of(tiny, "hello")
    live: list[AnswerCollector] = []
    order: list[str] = []

    def call(heard: AnswerCollector) -> None:
        order.append("later")
        if len(heard.tokens) == 5:
            live.append(ask(engine, "b", question, 5, on_token=lambda _: order.append("live")))

    seeded = Sampling(temperature=0.9, seed=3)
    later = ask(engine, "a", summary, 12, seeded, on_token=call, priority=Priority.AFTER_CALL)
    assert later.wait() == alone(tiny, summary, 12, seeded)
    assert live[0].wait() == alone(tiny, question, 5)
    assert order == ["later"] * 5 + ["live"] * 5 + ["later"] * 7


def test_a_step_that_fails_ends_only_the_answer_that_is_to_blame(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are made anew, each by itself, as if nothing had been."""
    engine = make_engine(bounds=SLOW)
    bad = 7
    prompts = {"good": prompt_of(tiny, "hello"), "bad": [*prompt_of(tiny, "well"), bad], "too": prompt_of(tiny, "two")}
    evaluate = Context.evaluate

    def fails(context: Context, chunks: Sequence[Chunk]) -> list[int]:
        rows = evaluate(context, chunks)
        if any(chunk.tokens[-1] == bad and chunk.answers for chunk in chunks):
            raise ModelError("a fault of one")
        return rows

    monkeypatch.setattr(Context, "evaluate", fails)
    calls = {name: ask(engine, name, prompt, 6) for name, prompt in prompts.items()}
    for call in calls.values():
        call.wait()
    monkeypatch.undo()
    assert isinstance(calls["bad"].end, ModelError)
    assert calls["good"].tokens == alone(tiny, prompts["good"], 6)
    assert calls["too"].tokens == alone(tiny, prompts["too"], 6)


def test_an_answer_whose_step_failed_while_it_spoke_is_read_again_in_chunks(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, evaluate, fails = make_engine(), Context.evaluate, threading.Event()
    prompt = [*range(5, 125)] * 4

    def broken_once(context: Context, chunks: Sequence[Chunk]) -> list[int]:
        if fails.is_set():
            fails.clear()
            raise ModelError("broken once")
        return evaluate(context, chunks)

    monkeypatch.setattr(Context, "evaluate", broken_once)
    before: list[int] = []

    def fail(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 1:
            before.append(engine.steps)
        if len(heard.tokens) == 5:
            fails.set()

    said = ask(engine, "a", prompt, 10, on_token=fail).wait()
    assert engine.steps <= 2 * before[0] + 10
    monkeypatch.undo()
    assert said == alone(tiny, prompt, 10)


def test_work_that_wrote_and_was_put_back_is_read_again_in_chunks(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1, bounds=StepLimits(least_chunk=60, idle_chunk=60, step_s=1e-9, idle_step_s=1e-9))
    live: list[AnswerCollector] = []

    def call(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 5:
            live.append(ask(engine, "live", [*range(100, 220)], 3))

    ask(engine, "later", [*range(5, 125)] * 5, 10, on_token=call, priority=Priority.AFTER_CALL).wait()
    assert len(live[0].wait()) == 3
    assert engine.steps <= 10 + 5 + (2 + 3) + 11 + 5


def test_what_a_caller_has_to_wait_for_memory_is_told_to_admission(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("models.llm.llama.batching.engine.time", SimpleNamespace(monotonic=lambda: now_s))
    engine = make_engine(sequences=1)
    second: list[AnswerCollector] = []
    expected: list[float] = []

    def wait(heard: AnswerCollector) -> None:
        nonlocal now_s
        if len(heard.tokens) == 2:
            second.append(ask(engine, "b", [5, 6, 7], 2))
        if len(heard.tokens) == 5:
            expected.append(engine.expected_wait_s(20))
            now_s += 30.0
            expected.append(engine.expected_wait_s(20))

    ask(engine, "a", [5, 6, 7], 8, on_token=wait).wait()
    second[0].wait()
    expected.append(engine.expected_wait_s(20))
    assert expected[1] == pytest.approx(30.0)
    assert max(expected[0], expected[2]) < 5


def test_a_sampler_that_fails_ends_its_own_answer_alone(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    draw = Sampler.draw

    def fails(sampler: Sampler, context: Context, row: int) -> int:
        if sampler._sampling_fails:  # type: ignore[attr-defined]
            raise RuntimeError("on purpose")
        return draw(sampler, context, row)

    made = Sampler.__init__

    def marked(sampler: Sampler, model: Model, sampling: Sampling, *more: object) -> None:
        made(sampler, model, sampling, *more)  # type: ignore[arg-type]
        sampler._sampling_fails = sampling.seed == 99  # type: ignore[attr-defined]

    monkeypatch.setattr(Sampler, "__init__", marked)
    monkeypatch.setattr(Sampler, "draw", fails)
    good = ask(engine, "good", prompt_of(tiny, "hello"), 10)
    bad = ask(engine, "bad", prompt_of(tiny, "hello"), 10, Sampling(temperature=0, seed=99))
    bad.wait()
    assert isinstance(bad.end, ModelError)
    said = good.wait()
    monkeypatch.undo()
    assert said == alone(tiny, prompt_of(tiny, "hello"), 10, GREEDY)


def test_at_most_one_copy_is_made_in_a_step(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of an agent that come in one moment: who speaks waits for no more than one of their copies."""
    engine = make_engine(bounds=SLOW)
    prompt, others, events = prompt_of(tiny, "hello"), list[AnswerCollector](), list[str]()
    copy, evaluate = Context.copy, Context.evaluate

    def copied(context: Context, source: int, target: int) -> None:
        events.append("copy")
        copy(context, source, target)

    def evaluated(context: Context, chunks: Sequence[Chunk]) -> list[int]:
        events.append("evaluate")
        return evaluate(context, chunks)

    def call(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 2:
            others.extend(ask(engine, f"call {number}", [*prompt, number + 5], 4) for number in range(5))

    monkeypatch.setattr(Context, "copy", copied)
    monkeypatch.setattr(Context, "evaluate", evaluated)
    ask(engine, "first", prompt, 30, on_token=call).wait()
    said = [other.wait() for other in others]
    monkeypatch.undo()
    assert said == [alone(tiny, [*prompt, number + 5], 4) for number in range(5)]
    assert events.count("copy") == 5
    assert ("copy", "copy") not in set(pairwise(events))


def test_a_copy_that_nobody_wants_any_more_keeps_no_other_one_back(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    ask(engine, "first", prompt, 2).wait()
    for number in range(20):
        ask(engine, f"gone {number}", [*prompt, 7], 4).cancel()
    assert len(ask(engine, "new", [*prompt, 9], 4).wait()) == 4


def test_what_fails_in_a_step_fails_alone(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words and prompts are computed apart: a prompt that cannot be read does not even make who speaks try again."""
    engine, evaluate = make_engine(), Context.evaluate

    def fails(context: Context, chunks: Sequence[Chunk]) -> list[int]:
        if 299 in chunks[0].tokens:
            raise ModelError("broken")
        return evaluate(context, chunks)

    monkeypatch.setattr(Context, "evaluate", fails)
    broken: list[AnswerCollector] = []

    def call(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 3:
            broken.append(ask(engine, "broken", [5, 6, 299, 8], 4))

    prompt = prompt_of(tiny, "hello")
    said = ask(engine, "first", prompt, 20, on_token=call).wait()
    broken[0].wait()
    monkeypatch.undo()
    assert isinstance(broken[0].end, ModelError)
    assert said == alone(tiny, prompt, 20)
