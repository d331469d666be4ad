"""The lifecycle of a call: a call may end in any state, and late events change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from calls.session.lifecycle import CallLifecycle, SessionState
from config.clock import utc_now
from tests.virtual_time import run_virtually

Step = Callable[[CallLifecycle], object]
STEPS: tuple[Step, ...] = (
    CallLifecycle.mark_ringing,
    CallLifecycle.mark_answered,
    CallLifecycle.mark_active,
    lambda call: call.end("customer_ended"),
    CallLifecycle.mark_ended,
)


async def test_a_queued_call_goes_through_all_states() -> None:
    call = CallLifecycle(SessionState.QUEUED)
    states = [call.state]
    for step in STEPS:
        step(call)
        states.append(call.state)
    assert states == list(SessionState)


@pytest.mark.parametrize("steps", range(4))
async def test_a_call_may_end_at_any_time_and_the_first_reason_counts(steps: int) -> None:
    call = CallLifecycle(SessionState.QUEUED)
    for step in STEPS[:steps]:
        step(call)
    assert (call.is_ending, call.reason, call.ended_at) == (False, None, None)
    call.end("api_hangup")
    ended_at = call.ended_at
    call.end("error")
    assert (call.state, call.reason, call.is_ending) == (SessionState.ENDING, "api_hangup", True)
    assert ended_at is not None
    assert call.ended_at == ended_at


@pytest.mark.parametrize("end", [lambda call: call.end("error"), lambda call: (call.end("error"), call.mark_ended())])
async def test_a_late_event_does_not_revive_a_call(end: Step) -> None:
    call = CallLifecycle(SessionState.QUEUED)
    end(call)
    state = call.state
    for step in STEPS[:3]:
        step(call)
    assert call.state is state


async def test_an_answer_is_recorded_also_while_the_call_is_ending() -> None:
    call = CallLifecycle()
    call.end("api_hangup")
    answered_at = call.mark_answered()
    assert (call.is_answered, call.answered_at, call.state) == (True, answered_at, SessionState.ENDING)
    assert call.mark_answered() == answered_at


async def test_a_call_ends_only_after_its_reason_is_known() -> None:
    call = CallLifecycle()
    call.mark_ended()
    assert call.state is SessionState.RINGING


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_the_time_since_the_answer_is_right_although_the_wall_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, set_by_s: int
) -> None:
    async def answer() -> None:
        call = CallLifecycle()
        await asyncio.sleep(1)
        assert call.since_answer_ms() == 0
        call.mark_answered()
        monkeypatch.setattr("calls.session.lifecycle.utc_now", lambda: utc_now() + timedelta(seconds=set_by_s))
        await asyncio.sleep(2.5)
        call.mark_answered()
        assert call.since_answer_ms() == pytest.approx(2500)

    run_virtually(answer())
