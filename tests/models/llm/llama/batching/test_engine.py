"""Many calls in one batching engine, on a real model of random weights."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.models.llama_cpp_python import llama_class
from config.errors import ModelError, StartupError
from models.llm.llama.batching.engine import BatchEngine
from models.llm.llama.batching.scheduler import Priority, StepLimits
from models.llm.llama.bindings import Chunk, LlamaContext, LlamaModel
from models.llm.llama.output.sampling import Sampling
from tests.models.llm.llama.conftest import GREEDY, AnswerCollector, MakeEngine, run_alone, run_request

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


def prompt_of(model: LlamaModel, question: str) -> list[int]:
    return model.tokenize(f"{AGENT}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("samplings", [[GREEDY] * 6, SEEDED], ids=["greedy", "seeded"])
def test_parallel_calls_get_the_same_tokens_as_alone(
    tiny: LlamaModel, make_engine: MakeEngine, samplings: list[Sampling]
) -> None:
    """Calls arrive while earlier ones generate: prefixes are copied, and prompts are prefilled in small slices."""
    prompts = [prompt_of(tiny, question) for question in QUESTIONS]
    engine = make_engine(limits=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=7, idle_chunk=7))
    calls: list[AnswerCollector] = []
    first_asked, all_asked = threading.Event(), threading.Event()

    def begin() -> None:
        number = len(calls)
        calls.append(run_request(engine, f"call {number}", prompts[number], 40, samplings[number], next_call))
        if len(calls) == len(prompts):
            all_asked.set()

    def next_call(generated: AnswerCollector) -> None:
        assert first_asked.wait(20)
        if generated is calls[-1] and len(generated.tokens) == 2 and len(calls) < len(prompts):
            begin()

    begin()
    first_asked.set()
    assert all_asked.wait(20)
    together = [call.wait() for call in calls]
    for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        assert together[number] == run_alone(tiny, prompt, 40, sampling), QUESTIONS[number]
    assert len({tuple(tokens) for tokens in together}) == len(prompts)
    read = sum(map(len, prompts)) + sum(map(len, together))
    assert engine.steps < read / 2


def test_the_rest_of_a_batch_changes_no_response(tiny: LlamaModel) -> None:
    """Up to the order in which 32-bit numbers are added."""
    prompts = [prompt_of(tiny, question)[:150] for question in QUESTIONS[:4]]
    context = LlamaContext(tiny, sequences=4, context_length=1024, kv_cache_f32=True)
    apart = []
    for number, prompt in enumerate(prompts):
        [row] = context.evaluate([Chunk(number, 0, prompt, True)])
        apart.append(context.logits(row).copy())
        context.truncate(number, 100)
    rows = context.evaluate([Chunk(number, 100, prompt[100:], True) for number, prompt in enumerate(prompts)])
    for row, logits in zip(rows, apart, strict=True):
        assert abs(context.logits(row) - logits).max() < 1e-3
    context.close()


def test_one_sequence_generates_the_same_as_llama_cpp_python(tiny: LlamaModel, tiny_path: Path) -> None:
    peer = llama_class()(str(tiny_path), n_ctx=1024, n_threads=1, verbose=False, type_k=0, type_v=0, flash_attn=False)
    prompt = prompt_of(tiny, QUESTIONS[0])
    tokens = []
    for token in peer.generate(prompt, temp=0, repeat_penalty=1.0):
        tokens.append(token)
        if len(tokens) == 30:
            break
    peer.close()
    assert run_alone(tiny, prompt) == tokens


def test_a_turn_with_a_cached_prefix_is_the_same_as_without(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    """Only new tokens are evaluated, after a cached, copied and truncated prefix."""
    engine = make_engine()
    conversations = [prompt_of(tiny, question) for question in QUESTIONS[:3]]
    for turn in range(4):
        calls = [
            run_request(engine, f"call {number}", conversation, 12) for number, conversation in enumerate(conversations)
        ]
        for number, call in enumerate(calls):
            said = call.wait()
            assert said == run_alone(tiny, conversations[number], 12), (turn, number)
            generated = said[: 4 * number]  # the second and third are interrupted
            conversations[number] = (
                conversations[number]
                + generated
                + tiny.tokenize(f"<|im_end|>\n<|im_start|>user\nand {turn}<|im_end|>\n")
            )


def test_a_turn_evaluates_only_new_tokens(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(limits=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=1, idle_chunk=1))
    prompt = prompt_of(tiny, QUESTIONS[0])
    said = run_request(engine, "a", prompt, 5).wait()
    before = engine.steps
    run_request(engine, "a", [*prompt, *said, 5, 6, 7], 1).wait()
    assert engine.steps - before == 4  # the last word said, which nothing followed, and three more
    before = engine.steps
    run_request(engine, "b", [*prompt, 9], 1).wait()
    assert engine.steps - before == 1


def test_a_cancelled_request_ends_within_a_step(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine()
    cancelled = threading.Event()

    def enough(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 3:
            generated.cancel()
            cancelled.set()

    prompt = prompt_of(tiny, QUESTIONS[0])
    given_up = run_request(engine, "a", prompt, 200, on_token=enough)
    assert cancelled.wait(20)
    at_cancel = engine.steps
    after = run_request(engine, "a", [*prompt, 1, 2], 2)
    assert after.wait() == run_alone(tiny, [*prompt, 1, 2], 2)
    assert (len(given_up.tokens), given_up.end) == (3, None)
    assert engine.steps - at_cancel <= 3


def test_a_request_may_be_cancelled_before_its_start_and_after_its_end(
    tiny: LlamaModel, make_engine: MakeEngine
) -> None:
    engine = make_engine(sequences=1)
    waiting: list[AnswerCollector] = []

    def ask_another(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 1:
            waiting.append(run_request(engine, "b", prompt_of(tiny, "hello"), 5))
            waiting[0].cancel()

    first = run_request(engine, "a", prompt_of(tiny, "hello"), 5, on_token=ask_another)
    first.wait()
    first.cancel()
    assert len(run_request(engine, "c", prompt_of(tiny, "hello"), 5).wait()) == 5
    assert (waiting[0].tokens, waiting[0].end) == ([], None)


def test_tokens_of_a_cancelled_prefill_are_not_evaluated_again(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(limits=StepLimits(step_s=1e-9, idle_step_s=1e-9, least_chunk=4, idle_chunk=4))
    prompt = prompt_of(tiny, QUESTIONS[1])
    run_request(engine, "a", prompt[:100], 0).wait()
    before = engine.steps
    said = run_request(engine, "a", prompt, 3).wait()
    assert said == run_alone(tiny, prompt, 3)
    assert engine.steps - before <= (len(prompt) - 99) / 4 + 1 + 2


def test_more_calls_than_sequences_share_the_sequences(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=2)
    prompts = [prompt_of(tiny, question) for question in QUESTIONS]
    calls = [run_request(engine, f"call {number}", prompt, 8) for number, prompt in enumerate(prompts)]
    assert [call.wait() for call in calls] == [run_alone(tiny, prompt, 8) for prompt in prompts]


def test_a_response_ends_at_max_tokens(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    generated = run_request(make_engine(), "a", prompt_of(tiny, "hello"), 5)
    assert len(generated.wait()) == 5
    assert generated.end == "length"


def test_a_prompt_that_does_not_fit_raises_at_once(make_engine: MakeEngine) -> None:
    engine = make_engine(context_length=256)
    with pytest.raises(ModelError, match="256 fit"):
        run_request(engine, "a", [1] * 250, 7)
    with pytest.raises(ModelError):
        run_request(engine, "a", [], 7)


def test_the_context_is_used_to_its_last_token(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=2, context_length=256)
    calls = [run_request(engine, name, prompt_of(tiny, "hello")[:100], 156) for name in "ab"]
    assert [call.wait() is not None and call.end for call in calls] == ["length", "length"]


def test_a_request_that_misses_its_first_token_timeout_fails(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1)
    late: list[AnswerCollector] = []

    def ask_another(generated: AnswerCollector) -> None:
        if len(generated.tokens) == 1:
            late.append(run_request(engine, "b", prompt_of(tiny, "hello"), 5, within_s=0.0))

    run_request(engine, "a", prompt_of(tiny, "hello"), 20, on_token=ask_another).wait()
    late[0].wait()
    assert isinstance(late[0].end, ModelError)
    assert not late[0].tokens


def test_post_call_work_waits_for_live_requests(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine()
    order: list[str] = []
    after: list[AnswerCollector] = []

    def summarize(generated: AnswerCollector) -> None:
        if not after:
            prompt = prompt_of(tiny, "and now a summary")
            after.append(
                run_request(engine, "s", prompt, 5, priority=Priority.AFTER_CALL, on_token=lambda _: order.append("s"))
            )
        order.append("a")

    run_request(engine, "a", prompt_of(tiny, "hello"), 30, on_token=summarize).wait()
    assert after[0].wait() == run_alone(tiny, prompt_of(tiny, "and now a summary"), 5)
    assert order == ["a"] * 30 + ["s"] * 5


def test_post_call_work_is_done_even_if_all_sequences_are_reserved(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine(sequences=1)
    later = [
        run_request(engine, name, prompt_of(tiny, name), 5, priority=Priority.AFTER_CALL) for name in ("one", "two")
    ]
    assert [work.wait() for work in later] == [run_alone(tiny, prompt_of(tiny, name), 5) for name in ("one", "two")]


def test_a_model_without_partial_truncation_evaluates_again(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like recurrent models."""
    whole = LlamaContext.truncate
    monkeypatch.setattr(
        LlamaContext, "truncate", lambda self, sequence, tokens: whole(self, sequence, 0) and tokens == 0
    )
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    said = run_request(engine, "a", prompt, 8).wait()
    again = [*prompt, *said[:3], 1, 2]
    assert run_request(engine, "a", again, 8).wait() == run_alone(tiny, again, 8)
    assert run_request(engine, "b", prompt, 8).wait() == said


def test_more_requests_than_a_small_batch_holds_are_all_served(tiny: LlamaModel) -> None:
    engine = BatchEngine(tiny, LlamaContext(tiny, sequences=4, context_length=2048, batch_tokens=32, kv_cache_f32=True))
    prompts = [prompt_of(tiny, question) for question in QUESTIONS[:4]]
    calls = [run_request(engine, f"call {number}", prompt, 8) for number, prompt in enumerate(prompts)]
    assert [call.wait() for call in calls] == [run_alone(tiny, prompt, 8) for prompt in prompts]
    engine.close()


def test_a_failed_step_fails_only_its_own_requests(
    tiny: LlamaModel, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    prompt = prompt_of(tiny, "hello")
    run_request(engine, "a", prompt, 3).wait()
    with monkeypatch.context() as patch:
        patch.setattr(LlamaContext, "evaluate", lambda *_: (_ for _ in ()).throw(ModelError("broken")))
        broken = run_request(engine, "a", [*prompt, 1], 3)
        broken.wait()
    assert isinstance(broken.end, ModelError)
    again = run_request(engine, "a", [*prompt, 1], 3)
    assert again.wait() == run_alone(tiny, [*prompt, 1], 3)


def test_a_callback_that_fails_leaves_the_engine_running(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine()

    def fail(_: AnswerCollector) -> None:
        raise RuntimeError("on purpose")

    broken = run_request(engine, "a", prompt_of(tiny, "hello"), 3, on_token=fail)
    broken.wait()
    assert isinstance(broken.end, ModelError)
    assert run_request(engine, "b", prompt_of(tiny, "hello"), 3).wait() == run_alone(tiny, prompt_of(tiny, "hello"), 3)


def test_closing_fails_requests_in_progress(tiny: LlamaModel, make_engine: MakeEngine) -> None:
    engine = make_engine()
    begun = threading.Event()
    generated = run_request(engine, "a", prompt_of(tiny, "hello"), 300, on_token=lambda _: begun.set())
    assert begun.wait(10)
    engine.close()
    assert isinstance(generated.end, ModelError)
    with pytest.raises(ModelError, match="closed"):
        run_request(engine, "a", [1], 1)


def test_a_file_that_is_no_model_raises(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"nothing" * 100)
    with pytest.raises(StartupError, match=r"no\.gguf"):
        LlamaModel(tmp_path / "no.gguf")


def test_tokenizing_and_detokenizing_gives_the_same_text(tiny: LlamaModel) -> None:
    text = "What does a room cost? 95 \u20ac, and \u00fcber 3 n\u00e4chte \U0001f600"
    assert b"".join(map(tiny.token_to_piece, tiny.tokenize(text))).decode() == text


def test_control_tokens_are_tokenized_as_such_and_have_no_text(tiny: LlamaModel) -> None:
    tokens = tiny.tokenize("<|im_start|>user\nhi<|im_end|>")
    assert tiny.is_end_of_generation(tokens[-1])
    assert b"".join(map(tiny.token_to_piece, tokens)) == b"user\nhi"
    assert tiny.control_texts.sub("", "a<|im_end|>b<|im_start|>c") == "abc"


def test_sequences_of_a_failed_step_are_cleared(tiny: LlamaModel) -> None:
    context = LlamaContext(tiny, sequences=1, context_length=256)
    with pytest.raises(ModelError):
        context.evaluate([Chunk(0, 5, [1, 2], True), Chunk(0, 3, [1], True)])
    context.close()


def test_the_expected_wait_is_known_before_a_request(make_engine: MakeEngine) -> None:
    engine: BatchEngine = make_engine()
    assert 0 < engine.expected_wait_s(10) < engine.expected_wait_s(500)


def test_an_error_before_the_start_is_raised_by_the_constructor(tiny: LlamaModel) -> None:
    context = LlamaContext(tiny, sequences=1, context_length=256)

    def fail() -> None:
        assert threading.current_thread().name == "language-model"
        raise ModelError("too slow")

    with pytest.raises(ModelError, match="too slow"):
        BatchEngine(tiny, context, before_start=fail)
    assert context.handle is None
