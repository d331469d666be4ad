"""The next step's tokens, on a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.llama.batching.scheduler import (
    TURN,
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

PACE = StepTimePredictor(step_s=0.02, token_s=0.005)
BOUNDS = StepLimits(step_s=0.1, idle_step_s=0.2, batch_tokens=512, least_chunk=8, idle_chunk=8, patience_s=2.0)


def reads(key: int, pending: int, arrived_s: float = 0.0, **more: object) -> ResponseWork:
    return replace(ResponseWork(key, pending, False, arrived_s, arrived_s), **more)  # type: ignore[arg-type]


def speaks(key: int, served_s: float = 0.0, **more: object) -> ResponseWork:
    return replace(ResponseWork(key, 1, True, 0.0, served_s), **more)  # type: ignore[arg-type]


def shares(*works: ResponseWork, now_s: float = 0.0, bounds: StepLimits = BOUNDS) -> dict[int, int]:
    return {share.key: share.tokens for share in next_step(works, now_s, PACE, bounds)}


def test_nothing_to_do_is_no_step() -> None:
    assert next_step([], 0.0, PACE, BOUNDS) == []


def test_everyone_who_speaks_gets_a_token_in_every_step() -> None:
    works = [speaks(key) for key in range(20)]
    assert next_step([reads(99, 600), *works], 0.0, PACE, BOUNDS)[:20] == [BatchSlice(key, 1) for key in range(20)]


def test_a_long_prompt_is_read_in_chunks_that_a_listener_does_not_notice() -> None:
    # 0.02 + 16 * 0.005 s = 0.1 s, however many speak.
    assert shares(speaks(1), reads(2, 600)) == {1: 1, 2: 16}
    assert shares(speaks(1), speaks(3), reads(2, 600)) == {1: 1, 3: 1, 2: 16}


def test_the_end_of_a_prompt_is_read_along_when_it_is_short() -> None:
    assert shares(speaks(1), reads(2, 20)) == {1: 1, 2: 20}
    assert shares(speaks(1), reads(2, 21)) == {1: 1, 2: 16}


def test_no_prompt_is_begun_beside_another_one_for_a_few_tokens() -> None:
    """The weights are passed over for each."""
    assert shares(reads(1, 20), reads(2, 600, arrived_s=-0.1)) == {1: 20}
    assert shares(reads(1, 20), reads(2, 15, arrived_s=-0.1)) == {1: 20, 2: 15}
    assert shares(reads(1, 16), reads(2, 21)) == {1: 16}
    wide = replace(BOUNDS, idle_step_s=0.321)
    assert shares(reads(1, 20), reads(2, 600, arrived_s=-0.1), bounds=wide) == {1: 20, 2: 36}


def test_each_prompt_more_takes_a_pass_over_the_weights() -> None:
    ahead = [reads(key, 5, priority=Priority.PREFILL) for key in range(12)]
    assert len(shares(speaks(99), *ahead)) == 1 + 2  # 2 x (0.02 + 5 x 0.005) s


def test_with_nobody_speaking_chunks_are_longer() -> None:
    assert shares(reads(2, 600)) == {2: 36}


def test_prompts_are_read_on_a_machine_that_is_too_slow_for_the_bound() -> None:
    slow = StepTimePredictor(step_s=0.5, token_s=0.1)
    assert [share.tokens for share in next_step([speaks(1), reads(2, 600)], 0.0, slow, BOUNDS)] == [1, 8]


def test_a_short_turn_overtakes_a_long_prompt() -> None:
    assert shares(reads(1, 600, arrived_s=0.0), reads(2, 20, arrived_s=0.5), now_s=0.5) == {2: 20}


def test_a_long_prompt_is_not_overtaken_for_ever() -> None:
    # To read 600 takes 3 s: after that a turn of a moment ago is less urgent.
    now_s = 3.1
    assert next(iter(shares(reads(1, 600), reads(2, 20, arrived_s=now_s), now_s=now_s))) == 1


def test_a_deadline_that_comes_near_goes_first() -> None:
    long = reads(1, 400, deadline_s=2.1)
    assert next(iter(shares(long, reads(2, 20)))) == 2
    assert next(iter(shares(long, reads(2, 20, arrived_s=0.09), now_s=0.09))) == 1


def test_work_after_a_call_rests_while_callers_need_the_model() -> None:
    after = reads(2, 600, priority=Priority.AFTER_CALL)
    assert shares(speaks(1), after, now_s=1.8) == {1: 1}


def test_while_nobody_waits_a_question_finds_no_long_step() -> None:
    for priority in (Priority.PREFILL, Priority.AFTER_CALL):
        assert shares(reads(2, 600, priority=priority)) == {2: 16}


def test_nothing_is_read_ahead_while_somebody_waits_for_a_first_word() -> None:
    ahead = reads(2, 600, priority=Priority.PREFILL)
    assert shares(reads(1, 5), ahead, now_s=60.0) == {1: 5}
    assert shares(speaks(1), ahead) == {1: 1, 2: 16}
    assert shares(ahead, reads(3, 600, priority=Priority.AFTER_CALL)) == {2: 16}


@pytest.mark.parametrize(("age_s", "rest_s"), [(0, 2.0), (30, 1.0), (270, 0.2)])
def test_the_older_work_after_a_call_is_the_less_it_rests(age_s: float, rest_s: float) -> None:
    for rested_s, tokens in ((rest_s - 0.01, {1: 1}), (rest_s + 0.01, {1: 1, 2: 8})):
        after = reads(2, 600, priority=Priority.AFTER_CALL, served_s=age_s - rested_s)
        assert shares(speaks(1), after, now_s=age_s) == tokens


def test_work_after_a_call_moves_however_much_callers_read() -> None:
    after = reads(2, 600, priority=Priority.AFTER_CALL)
    assert shares(reads(1, 600, 3.0), after, now_s=3.0) == {1: 28, 2: 8}
    assert shares(speaks(0), reads(1, 600, 3.0), after, now_s=3.0) == {0: 1, 1: 8, 2: 8}


def test_work_after_a_call_moves_beside_turns_too() -> None:
    after = reads(9, 600, priority=Priority.AFTER_CALL, served_s=-1000.0)
    turns = [reads(key, 40, is_turn=True) for key in (1, 2)]
    assert shares(speaks(0), *turns, after)[9] == 8
    assert shares(*turns, after)[9] == 8


def test_work_after_a_call_goes_on_by_little_when_it_has_rested_too_long() -> None:
    after = reads(2, 600, priority=Priority.AFTER_CALL)
    assert shares(speaks(1), after, now_s=2.0) == {1: 1, 2: 8}
    writing = speaks(3, served_s=0.0, priority=Priority.AFTER_CALL)
    assert shares(speaks(1), writing, now_s=2.0) == {1: 1, 3: 1}


def test_what_missed_its_deadline_before_its_first_token_is_too_late() -> None:
    works = [reads(1, 9, deadline_s=1.0), speaks(2, deadline_s=1.0), reads(3, 9, deadline_s=3.0), reads(4, 9)]
    assert expired(works, 2.0) == [1]


def test_an_answer_that_lost_its_place_after_it_spoke_is_read_in_chunks_again() -> None:
    again = replace(speaks(1), pending=600)
    assert shares(again) == {1: 36}
    assert shares(speaks(2), again) == {2: 1, 1: 16}
    assert shares(replace(again, priority=Priority.AFTER_CALL)) == {1: 16}
    assert expired([replace(again, deadline_s=1.0)], 2.0) == []
    assert expected_wait_s(30, [replace(speaks(1), pending=20)], PACE, BOUNDS) == expected_wait_s(
        30, [reads(1, 20)], PACE, BOUNDS
    )


def test_what_is_computed_together_is_never_more_than_a_batch() -> None:
    small = replace(BOUNDS, batch_tokens=10)
    assert shares(reads(9, 100), bounds=small) == {9: 10}
    assert shares(reads(9, 12), bounds=small) == {9: 10}
    assert sum(shares(*(speaks(key) for key in range(18)), bounds=small).values()) == 10


def test_with_more_speakers_than_a_batch_holds_all_get_their_turn() -> None:
    small = replace(BOUNDS, batch_tokens=2)
    served = dict.fromkeys(range(5), 0.0)
    for step in range(1, 6):
        for share in next_step([speaks(key, at) for key, at in served.items()], step, PACE, small):
            served[share.key] = step
    assert min(served.values()) >= 3


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 700), st.booleans(), st.sampled_from(Priority), st.floats(0, 5)), max_size=30),
    st.floats(5, 10),
)
def test_live_work_always_moves_and_no_step_takes_longer_than_it_may(
    drawn: list[tuple[int, bool, Priority, float]], now_s: float
) -> None:
    works = [
        ResponseWork(
            key, 1 if speaking else pending, speaking, at, at, priority, is_turn=not speaking and pending <= TURN
        )
        for key, (pending, speaking, priority, at) in enumerate(drawn)
    ]
    given_out = next_step(works, now_s, PACE, BOUNDS)
    pending = {work.key: work.pending for work in works}
    assert all(0 < share.tokens <= pending[share.key] for share in given_out)
    assert len({share.key for share in given_out}) == len(given_out)
    assert bool(given_out) == bool(works)
    speaks = {work.key: work.generating for work in works}
    read_s = sum(PACE.step_s(0, share.tokens) for share in given_out if not speaks[share.key])
    live = [work for work in works if work.priority is Priority.LIVE]
    heard, waiting = (sum(work.generating is speaking for work in live) for speaking in (True, False))
    turns = sum(work.is_turn for work in live)
    longest_s = BOUNDS.step_s
    if turns:
        longest_s = BOUNDS.turn_step_s
    if waiting and turns >= heard:
        longest_s = max(BOUNDS.idle_step_s, PACE.step_s(0, BOUNDS.idle_chunk))
    if live and any(works[share.key].priority is Priority.AFTER_CALL for share in given_out):
        longest_s += BOUNDS.least_chunk * PACE.step_s(0, 1)
    assert read_s <= longest_s + BOUNDS.least_chunk // 2 * PACE.token_s + 1e-9


def test_no_prompt_waits_longer_than_to_read_it_and_what_is_as_long_takes() -> None:
    """Turns of 20 tokens come all the time, more than the model can read; a prompt of 600 is read nevertheless."""
    now_s, pending, turns, key = 0.0, 600, [reads(1, 20)], 1
    while pending and now_s < 30:
        step = {share.key: share.tokens for share in next_step([reads(0, pending), *turns], now_s, PACE, BOUNDS)}
        now_s += sum(PACE.step_s(0, tokens) for tokens in step.values())
        pending -= step.get(0, 0)
        left = [replace(turn, pending=turn.pending - step.get(turn.key, 0)) for turn in turns]
        key += 2
        turns = [turn for turn in left if turn.pending] + [reads(key, 20, now_s), reads(key + 1, 20, now_s)]
    assert not pending


def test_the_pace_is_learnt_from_the_steps() -> None:
    pace = StepTimePredictor(step_s=0.02, token_s=0.006)
    for number in [1, 8, 33, 20, 4] * 20:
        pace.learn(number, 1, 0.01 + number * 0.02)
        pace.learn(1, number + 1, 0.01 + (number + 1) * 0.002)
    assert pace.token_s == pytest.approx(0.002, rel=0.05)
    assert pace.step_s(0, 20) == pytest.approx(0.05, rel=0.05)
    assert pace.step_s(10) == pytest.approx(0.21, rel=0.05)
    assert pace.step_s(10, 20) == pytest.approx(0.26, rel=0.05)
    assert pace.tokens_within(0.05) == pytest.approx(20, abs=1)


def test_the_pace_follows_a_machine_that_gets_busier() -> None:
    pace = StepTimePredictor()
    for tokens in [2, 8, 33, 20, 4] * 20:
        pace.learn(1, tokens, 0.01 + tokens * 0.002)
    for tokens in [2, 8, 33, 20, 4] * 20:
        pace.learn(1, tokens, 0.02 + tokens * 0.008)
    assert pace.step_s(0, 30) == pytest.approx(0.26, rel=0.2)


def test_steps_that_are_all_alike_do_not_confuse_the_pace() -> None:
    pace = StepTimePredictor()
    for _ in range(5000):
        pace.learn(1, 8, 0.1)
    assert pace.step_s(0, 8) == pytest.approx(0.1, rel=0.05)
    assert 0 < pace.tokens_within(0.1) <= 8


def test_the_wait_counts_what_is_read_before_and_the_tokens_of_those_who_speak() -> None:
    assert expected_wait_s(36, [], PACE, BOUNDS) == pytest.approx(0.2)
    alone = expected_wait_s(30, [], PACE, BOUNDS)
    assert expected_wait_s(30, [reads(1, 600)], PACE, BOUNDS) == alone
    assert expected_wait_s(30, [reads(1, 20)], PACE, BOUNDS) == pytest.approx(0.2 + 0.02 + 18 * 0.005)
    assert expected_wait_s(30, [speaks(1)], PACE, BOUNDS) > alone
    assert expected_wait_s(30, [reads(1, 20, priority=Priority.AFTER_CALL)], PACE, BOUNDS) == alone


def test_urgency_grows_as_time_passes() -> None:
    assert urgency(reads(1, 100), 1.0, PACE) < urgency(reads(1, 100), 0.5, PACE)


def test_while_nobody_speaks_prompts_are_read_in_chunks_that_are_worth_a_step() -> None:
    """However slow the machine; a caller who listens still waits no longer than for the least of them."""
    slow, bounds = StepTimePredictor(step_s=0.1, token_s=0.05), StepLimits()
    alone = next_step([reads(0, 600)], 0.0, slow, bounds)
    assert [share.tokens for share in alone] == [bounds.idle_chunk]
    beside = next_step([reads(0, 600), speaks(1, 0.0)], 0.0, slow, bounds)
    assert {share.key: share.tokens for share in beside} == {0: bounds.least_chunk, 1: 1}


def test_when_many_callers_end_their_turns_at_once_the_few_who_hear_an_answer_wait_for_them() -> None:
    """One after the other in small steps, all would wait longer; long prompts do not get that room."""
    waiting = [reads(key, 30, is_turn=True) for key in range(4)]
    assert shares(*waiting, speaks(9), bounds=StepLimits()) == {0: 30, 1: 30, 9: 1}
    heard = [speaks(key) for key in range(9, 14)]
    assert shares(*waiting, *heard, bounds=StepLimits()) == {0: 30, **dict.fromkeys(range(9, 14), 1)}
    assert shares(*(replace(work, is_turn=False) for work in waiting), speaks(9), bounds=StepLimits()) == {0: 12, 9: 1}
