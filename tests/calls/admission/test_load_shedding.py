"""Load shedding: which calls are admitted while the models are slow."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from structlog.testing import capture_logs

from calls.admission.load_shedding import RAMP_INTERVAL_S, CallAdmissionControl, ModelLoadShedder
from calls.admission.rejection import CallRejected
from calls.session.call_session import CallSession
from sipcore.trunks.trunk import Trunk
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, queue, stored


def sample_for(
    control: CallAdmissionControl, seconds: float, wait_s: float, *, since_s: float = 0.0, talking: int = 4
) -> float:
    """Take samples twice a second for `seconds`; returns the time."""
    steps = round(seconds * 2)
    for step in range(1, steps + 1):
        control.observe(since_s + step / 2, wait_s, talking)
    return since_s + steps / 2


def test_calls_are_admitted_while_the_models_answer_in_time() -> None:
    control = CallAdmissionControl(3.0)
    now_s = sample_for(control, 60, 2.9)
    assert control.rejection_reason(now_s, 4) is None
    assert control.wait_s == pytest.approx(2.9, rel=0.01)


def test_a_lasting_wait_over_the_limit_begins_shedding_with_a_reason() -> None:
    control = CallAdmissionControl(3.0)
    now_s = sample_for(control, 2, 6.0)
    assert control.rejection_reason(now_s, 4) is None, "a short wait over the limit does not shed"
    now_s = sample_for(control, 10, 6.0, since_s=now_s)
    assert control.rejection_reason(now_s, 4) == "responses wait 4.1 s for the models, more than 3 s"


def test_shedding_ends_only_when_the_wait_has_halved() -> None:
    control = CallAdmissionControl(3.0)
    now_s = sample_for(control, 30, 6.0)
    now_s = sample_for(control, 30, 2.0, since_s=now_s)
    assert control.rejection_reason(now_s, 4) is not None
    now_s = sample_for(control, 30, 1.0, since_s=now_s)
    assert control.rejection_reason(now_s, 4) is None


def test_a_wait_around_the_limit_does_not_make_shedding_flap() -> None:
    control, changes, now_s = CallAdmissionControl(3.0), 0, 0.0
    for wait_s in (2.0, 4.5) * 60:
        was_shedding = control.is_shedding
        now_s = sample_for(control, 5, wait_s, since_s=now_s)
        changes += control.is_shedding != was_shedding
    assert changes == 1


def test_shedding_ends_soon_after_an_extreme_wait() -> None:
    control = CallAdmissionControl(3.0)
    now_s = sample_for(control, 60, 10_000.0)
    assert control.is_shedding
    sample_for(control, 20, 0.0, since_s=now_s)
    assert not control.is_shedding


def test_the_first_call_is_always_admitted() -> None:
    control = CallAdmissionControl(3.0, capacity=0)
    now_s = sample_for(control, 30, 60.0)
    assert control.rejection_reason(now_s, 1) is not None
    assert control.rejection_reason(now_s, 0) is None
    control.observe(now_s + 0.5, 60.0, active_calls=0)
    assert not control.is_shedding


def test_calls_beyond_the_capacity_are_admitted_one_by_one() -> None:
    control = CallAdmissionControl(3.0, capacity=2)
    control.record_admission(0.0)
    assert control.rejection_reason(0.1, 1) is None
    control.record_admission(0.1)
    assert control.rejection_reason(0.2, 2) == "the models have capacity for 2 calls: more are admitted one by one"
    assert control.rejection_reason(0.1 + RAMP_INTERVAL_S, 2) is None
    control.record_admission(0.1 + RAMP_INTERVAL_S)
    assert control.rejection_reason(0.2 + RAMP_INTERVAL_S, 3) is not None


class Models:
    """Models with a settable expected wait, sampled until it counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = True) -> None:
        monkeypatch.setattr("calls.admission.load_shedding.SMOOTHING_S", 1e-6)
        self.wait_s = 0.0
        self.load = ModelLoadShedder(CallAdmissionControl(3.0), lambda: self.wait_s, sheds=refuses)

    async def set_wait(self, wait_s: float) -> None:
        """Set the expected wait, and sample until it counts."""
        self.wait_s = wait_s
        await until(self._counts)

    def _counts(self) -> bool:
        self.load.sample()
        return self.load._control.is_shedding == (self.wait_s > 3.0)


async def two_calls(harness: CallServiceHarness, models: Models) -> None:
    """One call is active, then the models are slow for another one."""
    await harness.create_number()
    first = harness.invite()
    await until(lambda: 200 in first.sent)
    await models.set_wait(6.0)


async def test_a_call_gets_503_with_retry_after_while_the_models_are_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(monkeypatch)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        await two_calls(harness, models)
        with capture_logs() as lines:
            late = harness.invite()
            await until(late.leg.ended.done)
        assert late.sent == [503]
        assert int(late.dialog.headers["Retry-After"]) > 0
        [refused] = [line for line in lines if line["event"] == "call.refused"]
        assert refused["why"].startswith("responses wait")
        assert len(await harness.all_calls()) == 1
        await models.set_wait(0.5)
        again = harness.invite()
        await until(lambda: 200 in again.sent)


async def test_an_outbound_call_stays_queued_while_the_models_are_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(monkeypatch)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        await two_calls(harness, models)
        line = await harness.create_number("+4930200")
        with capture_logs() as lines:
            call = await queue(harness, line)
            await until(lambda: any(line["event"] == "call.waits_for_models" for line in lines))
        assert (await stored(harness, call)).status == "queued"
        assert harness.callees.dialled == []
        await models.set_wait(0.5)
        await callee(harness)


async def test_a_queued_call_is_withdrawn_while_it_waits_for_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(monkeypatch)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        await two_calls(harness, models)
        line = await harness.create_number("+4930200")
        call = await queue(harness, line)
        assert await harness.service.hangup(call.id)
        assert (await stored(harness, call)).ended_reason == "api_hangup"
        await queue(harness, line, "+4917099")
        await models.set_wait(0.5)
        assert (await callee(harness)).leg.facts.to_addr.user == "+4917099"


async def test_a_shedder_that_only_logs_admits_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = Models(monkeypatch, refuses=False)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        with capture_logs() as lines:
            await two_calls(harness, models)
        assert [line["refuses"] for line in lines if line["event"] == "models.slow"] == [False]
        second = harness.invite()
        await until(lambda: 200 in second.sent)


async def test_calls_that_arrive_together_count_before_they_are_active(tmp_path: Path) -> None:
    load = ModelLoadShedder(CallAdmissionControl(3.0, capacity=2), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load) as harness:
        await harness.create_number()
        phones = [harness.invite() for _ in range(5)]
        await until(lambda: all(phone.sent and phone.sent[-1] >= 200 for phone in phones))
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 503, 503, 503]


async def test_the_capacity_is_measured_before_sampling_and_cancellation_waits_for_it() -> None:
    began, goes_on, is_over = threading.Event(), threading.Event(), False

    def measure() -> int:
        nonlocal is_over
        began.set()
        goes_on.wait(10)
        is_over = True
        return 7

    control = CallAdmissionControl(3.0)
    watching = asyncio.create_task(ModelLoadShedder(control, lambda: 0.0, measure_capacity=measure).run())
    await asyncio.to_thread(began.wait, 10)
    watching.cancel()
    await asyncio.sleep(0)
    assert not watching.done()
    goes_on.set()
    await asyncio.wait((watching,))
    assert is_over
    again = asyncio.create_task(ModelLoadShedder(control, lambda: 0.0, measure_capacity=lambda: 7).run())
    await until(lambda: control.capacity == 7)
    again.cancel()


def test_queued_calls_leave_capacity_for_inbound_calls() -> None:
    control = CallAdmissionControl(3.0, capacity=10)
    control.record_admission(0.0, queued=True)
    assert control.rejection_reason(0.1, 7, queued=True) is None
    assert control.rejection_reason(0.1, 8, queued=True) is not None
    assert control.rejection_reason(0.1, 9) is None


def test_queued_calls_have_an_interval_of_their_own_and_wait_after_an_inbound_rejection() -> None:
    control = CallAdmissionControl(3.0, capacity=2)
    assert control.rejection_reason(20.0, 5, queued=True) is None
    control.record_admission(20.0, queued=True)
    assert control.rejection_reason(20.1, 5, queued=True) is not None
    assert control.rejection_reason(20.1, 5) is None, "queued calls do not delay inbound ones"
    control.record_admission(20.1)
    control.record_rejection(27.0)
    assert (
        control.rejection_reason(20.2 + RAMP_INTERVAL_S, 5, queued=True)
        == "inbound calls have priority, and one was rejected just now"
    )
    assert control.rejection_reason(27.1 + RAMP_INTERVAL_S, 5, queued=True) is None
    assert control.rejection_reason(27.1 + RAMP_INTERVAL_S, 0, queued=True) is None


def test_an_undone_admission_lets_another_call_in() -> None:
    control = CallAdmissionControl(3.0, capacity=2)
    control.record_admission(20.0)
    control.undo_admission()
    assert control.rejection_reason(20.1, 2) is None


async def test_a_queue_of_outbound_calls_does_not_block_inbound_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calls.admission.load_shedding.SAMPLE_EVERY_S", 0.001)
    load = ModelLoadShedder(CallAdmissionControl(3.0, capacity=5), lambda: 0.0)
    talking = 0
    load.active_calls = lambda: talking
    watching = asyncio.create_task(load.run())

    async def place() -> None:
        nonlocal talking
        await load.wait_for_slot(lambda: asyncio.sleep(0))
        if load.try_admit_queued():
            talking += 1
            load.end_admission()

    queue_ = [asyncio.create_task(place()) for _ in range(20)]
    await until(lambda: talking == 4)
    await asyncio.sleep(0.02)
    assert talking == 4
    assert load.admit_inbound() is None
    talking += 1
    load.end_admission()
    assert load.admit_inbound() is not None
    talking -= 3
    await asyncio.sleep(0.02)
    assert talking == 2, "a rejected caller that calls again is admitted"
    assert load.admit_inbound() is None
    for task in (*queue_, watching):
        task.cancel()


async def test_a_queued_call_that_waits_for_pacing_or_its_trunk_does_not_count(tmp_path: Path) -> None:
    load = ModelLoadShedder(CallAdmissionControl(3.0, capacity=2), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load, per_second=0.001) as harness:
        line = await harness.create_number()
        await queue(harness, line)
        await callee(harness)
        for _ in range(3):
            await queue(harness, line)
        await until(lambda: len(harness.service.active_calls()) == 4)
        phone = harness.invite()
        await until(lambda: phone.sent and phone.sent[-1] >= 200)
        assert phone.sent[-1] == 200


async def test_a_queued_call_waits_again_if_the_capacity_is_gone_once_its_trunk_is_known(tmp_path: Path) -> None:
    load = ModelLoadShedder(CallAdmissionControl(3.0, capacity=2), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load) as harness:
        line = await harness.create_number()
        trunk_of, asked, goes_on = harness.service._dialer.trunk_of, asyncio.Event(), asyncio.Event()  # type: ignore[union-attr]

        async def slow(number: PhoneNumber) -> Trunk:
            asked.set()
            await goes_on.wait()
            return await trunk_of(number)

        harness.service._dialer = replace(harness.service._dialer, trunk_of=slow)  # type: ignore[type-var]
        call = await queue(harness, line)
        await asked.wait()
        first, second = harness.invite(), harness.invite()
        await until(lambda: 200 in first.sent and 200 in second.sent)
        with capture_logs() as lines:
            goes_on.set()
            await until(lambda: any(line["event"] == "call.waits_for_models" for line in lines))
        assert (await stored(harness, call)).status == "queued"


async def test_a_call_that_is_rejected_for_another_reason_does_not_count_as_admitted(tmp_path: Path) -> None:
    load = ModelLoadShedder(CallAdmissionControl(3.0, capacity=1), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load) as harness:
        await harness.create_number()
        first = harness.invite()
        await until(lambda: 200 in first.sent)
        load._control.undo_admission()  # the interval is over

        async def full(*_: object) -> CallSession:
            raise CallRejected(486, "the organization has too many calls")

        with mock.patch.object(harness.service._admission, "_create_session", full):
            refused = harness.invite()
            await until(refused.leg.ended.done)
        assert refused.sent == [486]
        second = harness.invite()
        await until(lambda: second.sent and second.sent[-1] >= 200)
        assert second.sent[-1] == 200


async def test_a_failed_sample_does_not_keep_shedding_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calls.admission.load_shedding.SAMPLE_EVERY_S", 0.001)
    monkeypatch.setattr("calls.admission.load_shedding.SMOOTHING_S", 1e-6)
    control = CallAdmissionControl(3.0)
    sample_for(control, 10, 9.0)
    control._observed_s = 0.0
    assert control.is_shedding

    def broken() -> float:
        raise RuntimeError("a model is gone")

    def unmeasurable() -> int:
        raise RuntimeError("cannot be measured")

    load = ModelLoadShedder(control, broken, measure_capacity=unmeasurable)
    load.active_calls = lambda: 4
    with capture_logs() as lines:
        watching = asyncio.create_task(load.run())
        await until(lambda: not control.is_shedding)
        await asyncio.sleep(0.01)
    assert not watching.done()
    assert [line["event"] for line in lines if line["log_level"] in ("warning", "error")] == [
        "models.not_measured",
        "models.look_failed",
    ]
    watching.cancel()
