"""The slices of the next step, on a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.llama.batching.scheduler import (
    MAX_TURN_TOKENS,
    BatchSlice,
    Priority,
    ResponseWork,
    StepLimits,
    StepTimePredictor,
    expected_wait_s,
    expired,
    next_step,
    urgency,
)

STEP_TIMES = StepTimePredictor(step_s=0.02, token_s=0.005)
LIMITS = StepLimits(step_s=0.1, idle_step_s=0.2, batch_tokens=512, least_chunk=8, idle_chunk=8, patience_s=2.0)


def prefilling(key: int, pending: int, arrived_s: float = 0.0, **more: object) -> ResponseWork:
    return replace(ResponseWork(key, pending, False, arrived_s, arrived_s), **more)  # type: ignore[arg-type]


def generating(key: int, last_step_s: float = 0.0, **more: object) -> ResponseWork:
    return replace(ResponseWork(key, 1, True, 0.0, last_step_s), **more)  # type: ignore[arg-type]


def slices(*works: ResponseWork, now_s: float = 0.0, limits: StepLimits = LIMITS) -> dict[int, int]:
    return {share.key: share.tokens for share in next_step(works, now_s, STEP_TIMES, limits)}


def test_no_work_is_no_step() -> None:
    assert next_step([], 0.0, STEP_TIMES, LIMITS) == []


def test_each_generating_request_gets_a_token_in_every_step() -> None:
    works = [generating(key) for key in range(20)]
    assert next_step([prefilling(99, 600), *works], 0.0, STEP_TIMES, LIMITS)[:20] == [
        BatchSlice(key, 1) for key in range(20)
    ]


def test_a_long_prompt_is_prefilled_in_inaudible_slices() -> None:
    # 0.02 + 16 * 0.005 s = 0.1 s, however many speak.
    assert slices(generating(1), prefilling(2, 600)) == {1: 1, 2: 16}
    assert slices(generating(1), generating(3), prefilling(2, 600)) == {1: 1, 3: 1, 2: 16}


def test_a_short_rest_of_a_prompt_is_part_of_its_last_slice() -> None:
    assert slices(generating(1), prefilling(2, 20)) == {1: 1, 2: 20}
    assert slices(generating(1), prefilling(2, 21)) == {1: 1, 2: 16}


def test_no_second_prompt_is_started_for_a_few_tokens() -> None:
    """Each prompt costs a pass over the weights."""
    assert slices(prefilling(1, 20), prefilling(2, 600, arrived_s=-0.1)) == {1: 20}
    assert slices(prefilling(1, 20), prefilling(2, 15, arrived_s=-0.1)) == {1: 20, 2: 15}
    assert slices(prefilling(1, 16), prefilling(2, 21)) == {1: 16}
    wide = replace(LIMITS, idle_step_s=0.321)
    assert slices(prefilling(1, 20), prefilling(2, 600, arrived_s=-0.1), limits=wide) == {1: 20, 2: 36}


def test_each_further_prompt_costs_a_pass_over_the_weights() -> None:
    ahead = [prefilling(key, 5, priority=Priority.PREFILL) for key in range(12)]
    assert len(slices(generating(99), *ahead)) == 1 + 2  # 2 x (0.02 + 5 x 0.005) s


def test_slices_are_longer_while_no_request_generates() -> None:
    assert slices(prefilling(2, 600)) == {2: 36}


def test_prompts_are_prefilled_on_a_machine_too_slow_for_the_limit() -> None:
    slow = StepTimePredictor(step_s=0.5, token_s=0.1)
    assert [share.tokens for share in next_step([generating(1), prefilling(2, 600)], 0.0, slow, LIMITS)] == [1, 8]


def test_a_short_turn_overtakes_a_long_prompt() -> None:
    assert slices(prefilling(1, 600, arrived_s=0.0), prefilling(2, 20, arrived_s=0.5), now_s=0.5) == {2: 20}


def test_a_long_prompt_is_not_overtaken_for_ever() -> None:
    # To read 600 takes 3 s: after that a turn of a moment ago is less urgent.
    now_s = 3.1
    assert next(iter(slices(prefilling(1, 600), prefilling(2, 20, arrived_s=now_s), now_s=now_s))) == 1


def test_a_near_deadline_goes_first() -> None:
    long = prefilling(1, 400, deadline_s=2.1)
    assert next(iter(slices(long, prefilling(2, 20)))) == 2
    assert next(iter(slices(long, prefilling(2, 20, arrived_s=0.09), now_s=0.09))) == 1


def test_post_call_work_pauses_while_live_requests_need_the_model() -> None:
    after = prefilling(2, 600, priority=Priority.AFTER_CALL)
    assert slices(generating(1), after, now_s=1.8) == {1: 1}


def test_steps_are_short_while_no_caller_waits_so_that_a_new_turn_starts_soon() -> None:
    for priority in (Priority.PREFILL, Priority.AFTER_CALL):
        assert slices(prefilling(2, 600, priority=priority)) == {2: 16}


def test_no_prefill_while_a_caller_waits_for_a_first_token() -> None:
    ahead = prefilling(2, 600, priority=Priority.PREFILL)
    assert slices(prefilling(1, 5), ahead, now_s=60.0) == {1: 5}
    assert slices(generating(1), ahead) == {1: 1, 2: 16}
    assert slices(ahead, prefilling(3, 600, priority=Priority.AFTER_CALL)) == {2: 16}


@pytest.mark.parametrize(("age_s", "rest_s"), [(0, 2.0), (30, 1.0), (270, 0.2)])
def test_older_post_call_work_pauses_less(age_s: float, rest_s: float) -> None:
    for rested_s, tokens in ((rest_s - 0.01, {1: 1}), (rest_s + 0.01, {1: 1, 2: 8})):
        after = prefilling(2, 600, priority=Priority.AFTER_CALL, last_step_s=age_s - rested_s)
        assert slices(generating(1), after, now_s=age_s) == tokens


def test_post_call_work_progresses_beside_any_load_of_prompts() -> None:
    after = prefilling(2, 600, priority=Priority.AFTER_CALL)
    assert slices(prefilling(1, 600, 3.0), after, now_s=3.0) == {1: 28, 2: 8}
    assert slices(generating(0), prefilling(1, 600, 3.0), after, now_s=3.0) == {0: 1, 1: 8, 2: 8}


def test_post_call_work_progresses_beside_turns() -> None:
    after = prefilling(9, 600, priority=Priority.AFTER_CALL, last_step_s=-1000.0)
    turns = [prefilling(key, 40, is_turn=True) for key in (1, 2)]
    assert slices(generating(0), *turns, after)[9] == 8
    assert slices(*turns, after)[9] == 8


def test_post_call_work_continues_in_small_slices_after_its_pause() -> None:
    after = prefilling(2, 600, priority=Priority.AFTER_CALL)
    assert slices(generating(1), after, now_s=2.0) == {1: 1, 2: 8}
    writing = generating(3, last_step_s=0.0, priority=Priority.AFTER_CALL)
    assert slices(generating(1), writing, now_s=2.0) == {1: 1, 3: 1}


def test_a_request_past_its_deadline_without_a_token_is_expired() -> None:
    works = [
        prefilling(1, 9, deadline_s=1.0),
        generating(2, deadline_s=1.0),
        prefilling(3, 9, deadline_s=3.0),
        prefilling(4, 9),
    ]
    assert expired(works, 2.0) == [1]


def test_a_preempted_generating_request_is_prefilled_in_slices() -> None:
    again = replace(generating(1), pending=600)
    assert slices(again) == {1: 36}
    assert slices(generating(2), again) == {2: 1, 1: 16}
    assert slices(replace(again, priority=Priority.AFTER_CALL)) == {1: 16}
    assert expired([replace(again, deadline_s=1.0)], 2.0) == []
    assert expected_wait_s(30, [replace(generating(1), pending=20)], STEP_TIMES, LIMITS) == expected_wait_s(
        30, [prefilling(1, 20)], STEP_TIMES, LIMITS
    )


def test_a_step_never_exceeds_the_batch_size() -> None:
    small = replace(LIMITS, batch_tokens=10)
    assert slices(prefilling(9, 100), limits=small) == {9: 10}
    assert slices(prefilling(9, 12), limits=small) == {9: 10}
    assert sum(slices(*(generating(key) for key in range(18)), limits=small).values()) == 10


def test_more_generating_requests_than_a_batch_holds_are_served_in_turn() -> None:
    small = replace(LIMITS, batch_tokens=2)
    served = dict.fromkeys(range(5), 0.0)
    for step in range(1, 6):
        for share in next_step([generating(key, at) for key, at in served.items()], step, STEP_TIMES, small):
            served[share.key] = step
    assert min(served.values()) >= 3


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 700), st.booleans(), st.sampled_from(Priority), st.floats(0, 5)), max_size=30),
    st.floats(5, 10),
)
def test_live_work_always_progresses_and_no_step_exceeds_its_limit(
    drawn: list[tuple[int, bool, Priority, float]], now_s: float
) -> None:
    works = [
        ResponseWork(
            key,
            1 if speaking else pending,
            speaking,
            at,
            at,
            priority,
            is_turn=not speaking and pending <= MAX_TURN_TOKENS,
        )
        for key, (pending, speaking, priority, at) in enumerate(drawn)
    ]
    given_out = next_step(works, now_s, STEP_TIMES, LIMITS)
    pending = {work.key: work.pending for work in works}
    assert all(0 < share.tokens <= pending[share.key] for share in given_out)
    assert len({share.key for share in given_out}) == len(given_out)
    assert bool(given_out) == bool(works)
    generating = {work.key: work.generating for work in works}
    read_s = sum(STEP_TIMES.step_s(0, share.tokens) for share in given_out if not generating[share.key])
    live = [work for work in works if work.priority is Priority.LIVE]
    generated, waiting = (sum(work.generating is speaking for work in live) for speaking in (True, False))
    turns = sum(work.is_turn for work in live)
    longest_s = LIMITS.step_s
    if turns:
        longest_s = LIMITS.turn_step_s
    if waiting and turns >= generated:
        longest_s = max(LIMITS.idle_step_s, STEP_TIMES.step_s(0, LIMITS.idle_chunk))
    if live and any(works[share.key].priority is Priority.AFTER_CALL for share in given_out):
        longest_s += LIMITS.least_chunk * STEP_TIMES.step_s(0, 1)
    assert read_s <= longest_s + LIMITS.least_chunk // 2 * STEP_TIMES.token_s + 1e-9


def test_no_prompt_starves() -> None:
    """Turns of 20 tokens arrive faster than the model prefills them; a prompt of 600 is prefilled nevertheless."""
    now_s, pending, turns, key = 0.0, 600, [prefilling(1, 20)], 1
    while pending and now_s < 30:
        step = {
            share.key: share.tokens for share in next_step([prefilling(0, pending), *turns], now_s, STEP_TIMES, LIMITS)
        }
        now_s += sum(STEP_TIMES.step_s(0, tokens) for tokens in step.values())
        pending -= step.get(0, 0)
        left = [replace(turn, pending=turn.pending - step.get(turn.key, 0)) for turn in turns]
        key += 2
        turns = [turn for turn in left if turn.pending] + [prefilling(key, 20, now_s), prefilling(key + 1, 20, now_s)]
    assert not pending


def test_the_predictor_learns_from_steps() -> None:
    pace = StepTimePredictor(step_s=0.02, token_s=0.006)
    for number in [1, 8, 33, 20, 4] * 20:
        pace.learn(number, 1, 0.01 + number * 0.02)
        pace.learn(1, number + 1, 0.01 + (number + 1) * 0.002)
    assert pace.token_s == pytest.approx(0.002, rel=0.05)
    assert pace.step_s(0, 20) == pytest.approx(0.05, rel=0.05)
    assert pace.step_s(10) == pytest.approx(0.21, rel=0.05)
    assert pace.step_s(10, 20) == pytest.approx(0.26, rel=0.05)
    assert pace.prompt_tokens_within(0.05) == pytest.approx(20, abs=1)


def test_the_predictor_follows_a_change_of_load() -> None:
    pace = StepTimePredictor()
    for tokens in [2, 8, 33, 20, 4] * 20:
        pace.learn(1, tokens, 0.01 + tokens * 0.002)
    for tokens in [2, 8, 33, 20, 4] * 20:
        pace.learn(1, tokens, 0.02 + tokens * 0.008)
    assert pace.step_s(0, 30) == pytest.approx(0.26, rel=0.2)


def test_the_predictor_is_stable_with_equal_steps() -> None:
    pace = StepTimePredictor()
    for _ in range(5000):
        pace.learn(1, 8, 0.1)
    assert pace.step_s(0, 8) == pytest.approx(0.1, rel=0.05)
    assert 0 < pace.prompt_tokens_within(0.1) <= 8


def test_the_expected_wait_counts_shorter_prompts_and_generating_requests() -> None:
    assert expected_wait_s(36, [], STEP_TIMES, LIMITS) == pytest.approx(0.2)
    run_alone = expected_wait_s(30, [], STEP_TIMES, LIMITS)
    assert expected_wait_s(30, [prefilling(1, 600)], STEP_TIMES, LIMITS) == run_alone
    assert expected_wait_s(30, [prefilling(1, 20)], STEP_TIMES, LIMITS) == pytest.approx(0.2 + 0.02 + 18 * 0.005)
    assert expected_wait_s(30, [generating(1)], STEP_TIMES, LIMITS) > run_alone
    assert expected_wait_s(30, [prefilling(1, 20, priority=Priority.AFTER_CALL)], STEP_TIMES, LIMITS) == run_alone


def test_urgency_grows_as_time_passes() -> None:
    assert urgency(prefilling(1, 100), 1.0, STEP_TIMES) < urgency(prefilling(1, 100), 0.5, STEP_TIMES)


def test_slices_have_a_least_size_while_no_request_generates() -> None:
    """However slow the machine; a caller who hears a response waits for the least slice only."""
    slow, limits = StepTimePredictor(step_s=0.1, token_s=0.05), StepLimits()
    run_alone = next_step([prefilling(0, 600)], 0.0, slow, limits)
    assert [share.tokens for share in run_alone] == [limits.idle_chunk]
    beside = next_step([prefilling(0, 600), generating(1, 0.0)], 0.0, slow, limits)
    assert {share.key: share.tokens for share in beside} == {0: limits.least_chunk, 1: 1}


def test_many_waiting_turns_go_before_few_generating_requests() -> None:
    """In small steps all would wait longer; long prompts do not get this budget."""
    waiting = [prefilling(key, 30, is_turn=True) for key in range(4)]
    assert slices(*waiting, generating(9), limits=StepLimits()) == {0: 30, 1: 30, 9: 1}
    generated = [generating(key) for key in range(9, 14)]
    assert slices(*waiting, *generated, limits=StepLimits()) == {0: 30, **dict.fromkeys(range(9, 14), 1)}
    assert slices(*(replace(work, is_turn=False) for work in waiting), generating(9), limits=StepLimits()) == {
        0: 12,
        9: 1,
    }
