"""Who goes first in one engine, and what a fault of one answer does to the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from config.errors import ModelError
from models.llama.contexts import Contexts
from models.llama.library import Chunk, Context, Model, NoRoom
from models.llama.sampling import Sampler, Sampling
from models.llama.schedule import Bounds, Priority
from tests.models.llama.conftest import GREEDY, Heard, MakeEngine, alone, ask

SLOW = Bounds(step_s=1e-9, idle_step_s=1e-9, least_chunk=4)


def prompt_of(model: Model, question: str) -> list[int]:
    agent = "You are the assistant of a small hotel near the harbour. " * 3
    return model.tokens(f"<|im_start|>system\n{agent}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n")


def test_an_answer_ends_what_was_read_ahead_for_its_call_and_goes_on_from_there(
    tiny: Model, make_engine: MakeEngine
) -> None:
    engine = make_engine(bounds=SLOW)
    prompt, asked = prompt_of(tiny, "hello"), threading.Event()
    heard: list[Heard] = []

    def question(_: Heard) -> None:
        heard.append(ask(engine, "a", prompt, 5))
        asked.set()

    ahead = ask(engine, "a", prompt[:-10], 0, priority=Priority.AHEAD)
    question(ahead)
    assert heard[0].wait() == alone(tiny, prompt, 5)
    ahead.wait()
    assert ahead.end == "length"
    assert engine.steps <= len(prompt) / 4 + 1 + 5 + 2


def test_a_caller_takes_the_place_of_work_for_which_nobody_waits(tiny: Model, make_engine: MakeEngine) -> None:
    """And that is taken up again where it was."""
    engine = make_engine(sequences=1)
    summary, question = prompt_of(tiny, "a summary"), prompt_of(tiny, "hello")
    live: list[Heard] = []
    order: list[str] = []

    def call(heard: Heard) -> None:
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

    def fail(heard: Heard) -> None:
        if len(heard.tokens) == 1:
            before.append(engine.steps)
        if len(heard.tokens) == 5:
            fails.set()

    said = ask(engine, "a", prompt, 10, on_token=fail).wait()
    assert engine.steps <= 2 * before[0] + 10
    monkeypatch.undo()
    assert said == alone(tiny, prompt, 10)


def test_work_that_wrote_and_was_put_back_is_read_again_in_chunks(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1, bounds=Bounds(least_chunk=60, idle_chunk=60, step_s=1e-9, idle_step_s=1e-9))
    live: list[Heard] = []

    def call(heard: Heard) -> None:
        if len(heard.tokens) == 5:
            live.append(ask(engine, "live", [*range(100, 220)], 3))

    ask(engine, "later", [*range(5, 125)] * 5, 10, on_token=call, priority=Priority.AFTER_CALL).wait()
    assert len(live[0].wait()) == 3
    assert engine.steps <= 10 + 5 + (2 + 3) + 11 + 5


def test_work_is_not_put_back_where_that_makes_no_room(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller waits for another one's memory: work after calls, which has too little to give, keeps its place."""
    engine, left, leave = make_engine(sequences=5, cells=512), [0], Contexts.leave

    def counted(contexts: Contexts, sequence: int, now_s: float) -> None:
        left[0] += 1
        leave(contexts, sequence, now_s)

    monkeypatch.setattr(Contexts, "leave", counted)
    later: list[Heard] = []

    def ask_others(heard: Heard) -> None:
        if len(heard.tokens) == 1:
            later.append(ask(engine, "after", [9] * 60, 20, priority=Priority.AFTER_CALL))
            later.append(ask(engine, "second", [11] * 100, 300))

    ask(engine, "first", [7] * 100, 300, on_token=ask_others).wait()
    assert [len(heard.wait()) > 0 for heard in later] == [True, True]
    assert left[0] == 3


def test_what_a_caller_has_to_wait_for_memory_is_told_to_admission(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("models.llama.engine.time", SimpleNamespace(monotonic=lambda: now_s))
    engine = make_engine(sequences=1)
    second: list[Heard] = []
    expected: list[float] = []

    def wait(heard: Heard) -> None:
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


def test_where_the_memory_is_in_pieces_what_is_oldest_makes_room(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    ask(engine, "old", prompt_of(tiny, "old"), 2).wait()
    evaluate, refused = Context.evaluate, 0

    def full(context: Context, chunks: Sequence[Chunk]) -> list[int]:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise NoRoom("full")
        return evaluate(context, chunks)

    monkeypatch.setattr(Context, "evaluate", full)
    new = ask(engine, "new", [5, 6, 7], 3)
    said = new.wait()
    monkeypatch.undo()
    assert said == alone(tiny, [5, 6, 7], 3)
