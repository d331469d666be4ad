"""Many calls in one engine, on a real model of random weights."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.models.llama_cpp_python import llama_class
from config.errors import ModelError, StartupError
from models.llm.llama.batching.engine import BatchEngine
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, Context, Model
from models.llm.llama.output.sampling import Sampling
from tests.models.llm.llama.conftest import GREEDY, AnswerCollector, MakeEngine, alone, ask

AGENT = "<|im_start|>system\n" + "You are the assistant of a small hotel near the harbour. " * 6 + "<|im_end|>\n"
QUESTIONS = [
    "when does the kitchen open",
    "what is the price of a room for the weekend and is breakfast in it",
    "hello",
    "I want a table for four people at seven in the evening, in the name of Miller please",
    "good morning, can you help me with the address",
    "thank you, that is all",
]
SEEDED = [Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=seed) for seed in range(6)]


def prompt_of(model: Model, question: str) -> list[int]:
    return model.tokens(f"{AGENT}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("samplings", [[GREEDY] * 6, SEEDED], ids=["greedy", "seeded"])
def test_calls_side_by_side_get_what_each_would_get_alone(
    tiny: Model, make_engine: MakeEngine, samplings: list[Sampling]
) -> None:
    """They come one after the other while those before them speak: prompts are copied, and read in small chunks."""
    prompts = [prompt_of(tiny, question) for question in QUESTIONS]
    engine = make_engine(bounds=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=7, idle_chunk=7))
    calls: list[AnswerCollector] = []
    first_asked, all_asked = threading.Event(), threading.Event()

    def begin() -> None:
        number = len(calls)
        calls.append(ask(engine, f"call {number}", prompts[number], 40, samplings[number], next_call))
        if len(calls) == len(prompts):
            all_asked.set()

    def next_call(heard: AnswerCollector) -> None:
        assert first_asked.wait(20)
        if heard is calls[-1] and len(heard.tokens) == 2 and len(calls) < len(prompts):
            begin()

    begin()
    first_asked.set()
    assert all_asked.wait(20)
    together = [call.wait() for call in calls]
    for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        assert together[number] == alone(tiny, prompt, 40, sampling), QUESTIONS[number]
    assert len({tuple(tokens) for tokens in together}) == len(prompts)
    read = sum(map(len, prompts)) + sum(map(len, together))
    assert engine.steps < read / 2


def test_who_else_is_in_a_batch_changes_no_answer(tiny: Model) -> None:
    """Up to the order in which 32-bit numbers are added."""
    prompts = [prompt_of(tiny, question)[:150] for question in QUESTIONS[:4]]
    context = Context(tiny, sequences=4, capacity=1024, exact=True)
    apart = []
    for number, prompt in enumerate(prompts):
        [row] = context.evaluate([Chunk(number, 0, prompt, True)])
        apart.append(context.logits(row).copy())
        context.truncate(number, 100)
    rows = context.evaluate([Chunk(number, 100, prompt[100:], True) for number, prompt in enumerate(prompts)])
    for row, logits in zip(rows, apart, strict=True):
        assert abs(context.logits(row) - logits).max() < 1e-3
    context.close()


def test_one_sequence_gives_what_llama_cpp_python_gives(tiny: Model, tiny_path: Path) -> None:
    peer = llama_class()(str(tiny_path), n_ctx=1024, n_threads=1, verbose=False, type_k=0, type_v=0, flash_attn=False)
    prompt = prompt_of(tiny, QUESTIONS[0])
    tokens = []
    for token in peer.generate(prompt, temp=0, repeat_penalty=1.0):
        tokens.append(token)
        if len(tokens) == 30:
            break
    peer.close()
    assert alone(tiny, prompt) == tokens


def test_a_turn_after_turns_is_what_it_would_be_alone(tiny: Model, make_engine: MakeEngine) -> None:
    """Only what is new is read, after what was held, copied and taken back."""
    engine = make_engine()
    talks = [prompt_of(tiny, question) for question in QUESTIONS[:3]]
    for turn in range(4):
        calls = [ask(engine, f"call {number}", talk, 12) for number, talk in enumerate(talks)]
        for number, call in enumerate(calls):
            said = call.wait()
            assert said == alone(tiny, talks[number], 12), (turn, number)
            heard = said[: 4 * number]  # the second and third are interrupted
            talks[number] = talks[number] + heard + tiny.tokens(f"<|im_end|>\n<|im_start|>user\nand {turn}<|im_end|>\n")


def test_a_turn_evaluates_only_what_is_new(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(bounds=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=1, idle_chunk=1))
    prompt = prompt_of(tiny, QUESTIONS[0])
    said = ask(engine, "a", prompt, 5).wait()
    before = engine.steps
    ask(engine, "a", [*prompt, *said, 5, 6, 7], 1).wait()
    assert engine.steps - before == 4  # the last word said, which nothing followed, and three more
    before = engine.steps
    ask(engine, "b", [*prompt, 9], 1).wait()
    assert engine.steps - before == 1


def test_an_answer_that_nobody_wants_ends_within_a_step(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine()
    cancelled = threading.Event()

    def enough(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 3:
            heard.cancel()
            cancelled.set()

    prompt = prompt_of(tiny, QUESTIONS[0])
    given_up = ask(engine, "a", prompt, 200, on_token=enough)
    assert cancelled.wait(20)
    at_cancel = engine.steps
    after = ask(engine, "a", [*prompt, 1, 2], 2)
    assert after.wait() == alone(tiny, [*prompt, 1, 2], 2)
    assert (len(given_up.tokens), given_up.end) == (3, None)
    assert engine.steps - at_cancel <= 3


def test_one_may_be_cancelled_before_it_began_and_after_it_ended(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1)
    waiting: list[AnswerCollector] = []

    def ask_another(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 1:
            waiting.append(ask(engine, "b", prompt_of(tiny, "hello"), 5))
            waiting[0].cancel()

    first = ask(engine, "a", prompt_of(tiny, "hello"), 5, on_token=ask_another)
    first.wait()
    first.cancel()
    assert len(ask(engine, "c", prompt_of(tiny, "hello"), 5).wait()) == 5
    assert (waiting[0].tokens, waiting[0].end) == ([], None)


def test_what_was_given_up_while_it_read_is_not_read_again(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(bounds=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=4, idle_chunk=4))
    prompt = prompt_of(tiny, QUESTIONS[1])
    ask(engine, "a", prompt[:100], 0).wait()
    before = engine.steps
    said = ask(engine, "a", prompt, 3).wait()
    assert said == alone(tiny, prompt, 3)
    assert engine.steps - before <= (len(prompt) - 99) / 4 + 1 + 2


def test_more_calls_than_sequences_take_turns(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=2)
    prompts = [prompt_of(tiny, question) for question in QUESTIONS]
    calls = [ask(engine, f"call {number}", prompt, 8) for number, prompt in enumerate(prompts)]
    assert [call.wait() for call in calls] == [alone(tiny, prompt, 8) for prompt in prompts]


def test_an_answer_ends_when_it_has_as_many_tokens_as_it_may(tiny: Model, make_engine: MakeEngine) -> None:
    heard = ask(make_engine(), "a", prompt_of(tiny, "hello"), 5)
    assert len(heard.wait()) == 5
    assert heard.end == "length"


def test_a_prompt_that_does_not_fit_is_refused_at_once(make_engine: MakeEngine) -> None:
    engine = make_engine(capacity=256)
    with pytest.raises(ModelError, match="256 fit"):
        ask(engine, "a", [1] * 250, 7)
    with pytest.raises(ModelError):
        ask(engine, "a", [], 7)


def test_the_memory_is_used_to_its_last_token(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=2, capacity=256)
    calls = [ask(engine, name, prompt_of(tiny, "hello")[:100], 156) for name in "ab"]
    assert [call.wait() is not None and call.end for call in calls] == ["length", "length"]


def test_an_answer_that_cannot_come_in_time_is_refused(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1)
    late: list[AnswerCollector] = []

    def ask_another(heard: AnswerCollector) -> None:
        if len(heard.tokens) == 1:
            late.append(ask(engine, "b", prompt_of(tiny, "hello"), 5, within_s=0.0))

    ask(engine, "a", prompt_of(tiny, "hello"), 20, on_token=ask_another).wait()
    late[0].wait()
    assert isinstance(late[0].end, ModelError)
    assert not late[0].tokens


def test_work_after_a_call_waits_for_callers(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine()
    order: list[str] = []
    after: list[AnswerCollector] = []

    def summarize(heard: AnswerCollector) -> None:
        if not after:
            prompt = prompt_of(tiny, "and now a summary")
            after.append(
                ask(engine, "s", prompt, 5, priority=Priority.AFTER_CALL, on_token=lambda _: order.append("s"))
            )
        order.append("a")

    ask(engine, "a", prompt_of(tiny, "hello"), 30, on_token=summarize).wait()
    assert after[0].wait() == alone(tiny, prompt_of(tiny, "and now a summary"), 5)
    assert order == ["a"] * 30 + ["s"] * 5


def test_work_after_calls_is_done_even_where_all_places_are_kept_for_callers(
    tiny: Model, make_engine: MakeEngine
) -> None:
    engine = make_engine(sequences=1)
    later = [ask(engine, name, prompt_of(tiny, name), 5, priority=Priority.AFTER_CALL) for name in ("one", "two")]
    assert [work.wait() for work in later] == [alone(tiny, prompt_of(tiny, name), 5) for name in ("one", "two")]


def test_a_model_that_cannot_take_back_a_part_reads_anew(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those with a running state cannot."""
    whole = Context.truncate
    monkeypatch.setattr(Context, "truncate", lambda self, sequence, tokens: whole(self, sequence, 0) and tokens == 0)
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    said = ask(engine, "a", prompt, 8).wait()
    again = [*prompt, *said[:3], 1, 2]
    assert ask(engine, "a", again, 8).wait() == alone(tiny, again, 8)
    assert ask(engine, "b", prompt, 8).wait() == said


def test_a_small_batch_holds_all_nevertheless(tiny: Model) -> None:
    engine = BatchEngine(tiny, Context(tiny, sequences=4, capacity=2048, batch_tokens=32, exact=True))
    prompts = [prompt_of(tiny, question) for question in QUESTIONS[:4]]
    calls = [ask(engine, f"call {number}", prompt, 8) for number, prompt in enumerate(prompts)]
    assert [call.wait() for call in calls] == [alone(tiny, prompt, 8) for prompt in prompts]
    engine.close()


def test_a_failed_step_ends_its_own_answers_alone(
    tiny: Model, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    ask(engine, "a", prompt, 3).wait()
    with monkeypatch.context() as patch:
        patch.setattr(Context, "evaluate", lambda *_: (_ for _ in ()).throw(ModelError("broken")))
        broken = ask(engine, "a", [*prompt, 1], 3)
        broken.wait()
    assert isinstance(broken.end, ModelError)
    again = ask(engine, "a", [*prompt, 1], 3)
    assert again.wait() == alone(tiny, [*prompt, 1], 3)


def test_a_callback_that_fails_leaves_the_engine_running(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine()

    def fail(_: AnswerCollector) -> None:
        raise RuntimeError("on purpose")

    broken = ask(engine, "a", prompt_of(tiny, "hello"), 3, on_token=fail)
    broken.wait()
    assert isinstance(broken.end, ModelError)
    assert ask(engine, "b", prompt_of(tiny, "hello"), 3).wait() == alone(tiny, prompt_of(tiny, "hello"), 3)


def test_closing_ends_what_is_in_the_making(tiny: Model, make_engine: MakeEngine) -> None:
    engine = make_engine()
    begun = threading.Event()
    heard = ask(engine, "a", prompt_of(tiny, "hello"), 300, on_token=lambda _: begun.set())
    assert begun.wait(10)
    engine.close()
    assert isinstance(heard.end, ModelError)
    with pytest.raises(ModelError, match="closed"):
        ask(engine, "a", [1], 1)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"nothing" * 100)
    with pytest.raises(StartupError, match=r"no\.gguf"):
        Model(tmp_path / "no.gguf")


def test_tokens_and_pieces_give_the_text_back(tiny: Model) -> None:
    text = "What does a room cost? 95 \u20ac, and \u00fcber 3 n\u00e4chte \U0001f600"
    assert b"".join(map(tiny.piece, tiny.tokens(text))).decode() == text


def test_control_tokens_are_read_as_such_and_add_no_text(tiny: Model) -> None:
    tokens = tiny.tokens("<|im_start|>user\nhi<|im_end|>")
    assert tiny.is_end(tokens[-1])
    assert b"".join(map(tiny.piece, tokens)) == b"user\nhi"
    assert tiny.control_texts.sub("", "a<|im_end|>b<|im_start|>c") == "abc"


def test_what_a_failed_step_holds_is_unknown(tiny: Model) -> None:
    context = Context(tiny, sequences=1, capacity=256)
    with pytest.raises(ModelError):
        context.evaluate([Chunk(0, 5, [1, 2], True), Chunk(0, 3, [1], True)])
    context.close()


def test_the_wait_is_told_before_asking(make_engine: MakeEngine) -> None:
    engine: BatchEngine = make_engine()
    assert 0 < engine.expected_wait_s(10) < engine.expected_wait_s(500)


def test_what_goes_wrong_before_all_else_is_raised_where_the_engine_is_made(tiny: Model) -> None:
    context = Context(tiny, sequences=1, capacity=256)

    def fail() -> None:
        assert threading.current_thread().name == "language-model"
        raise ModelError("too slow")

    with pytest.raises(ModelError, match="too slow"):
        BatchEngine(tiny, context, first=fail)
    assert context.handle is None
