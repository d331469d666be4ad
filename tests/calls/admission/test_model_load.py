"""Load shedding: which calls are admitted while the models are slow."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from calls.admission.model_load import RAMP_INTERVAL_S, LatencyGate, ModelLoadShedder
from calls.admission.rejection import CallRejected
from calls.session.call_session import CallSession
from sipcore.trunks.trunk import Trunk
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee, queue, stored


def watched(gate: LatencyGate, seconds: float, wait_s: float, *, since_s: float = 0.0, talking: int = 4) -> float:
    """The gate looks twice a second for so long; returns the time."""
    steps = round(seconds * 2)
    for step in range(1, steps + 1):
        gate.observe(since_s + step / 2, wait_s, talking)
    return since_s + steps / 2


def test_callers_are_welcome_while_the_models_keep_up() -> None:
    gate = LatencyGate(3.0)
    now_s = watched(gate, 60, 2.9)
    assert gate.why_not(now_s, 4) is None
    assert gate.wait_s == pytest.approx(2.9, rel=0.01)


def test_answers_that_wait_too_long_for_a_while_close_the_gate_and_it_says_why() -> None:
    gate = LatencyGate(3.0)
    now_s = watched(gate, 2, 6.0)
    assert gate.why_not(now_s, 4) is None, "one slow moment is none"
    now_s = watched(gate, 10, 6.0, since_s=now_s)
    assert gate.why_not(now_s, 4) == "answers wait 4.1 s for the models, 3 s is the most"


def test_it_opens_again_only_when_the_wait_has_halved() -> None:
    gate = LatencyGate(3.0)
    now_s = watched(gate, 30, 6.0)
    now_s = watched(gate, 30, 2.0, since_s=now_s)
    assert gate.why_not(now_s, 4) is not None
    now_s = watched(gate, 30, 1.0, since_s=now_s)
    assert gate.why_not(now_s, 4) is None


def test_a_wait_around_the_limit_does_not_make_it_flap() -> None:
    gate, changes, now_s = LatencyGate(3.0), 0, 0.0
    for wait_s in (2.0, 4.5) * 60:
        was_closed = gate.is_closed
        now_s = watched(gate, 5, wait_s, since_s=now_s)
        changes += gate.is_closed != was_closed
    assert changes == 1


def test_however_long_the_wait_was_the_gate_opens_soon_after_it() -> None:
    gate = LatencyGate(3.0)
    now_s = watched(gate, 60, 10_000.0)
    assert gate.is_closed
    watched(gate, 20, 0.0, since_s=now_s)
    assert not gate.is_closed


def test_the_first_call_is_always_taken() -> None:
    gate = LatencyGate(3.0, expected_calls=0)
    now_s = watched(gate, 30, 60.0)
    assert gate.why_not(now_s, 1) is not None
    assert gate.why_not(now_s, 0) is None
    gate.observe(now_s + 0.5, 60.0, active_calls=0)
    assert not gate.is_closed


def test_calls_beyond_the_expected_number_come_in_one_by_one() -> None:
    gate = LatencyGate(3.0, expected_calls=2)
    gate.admit(0.0)
    assert gate.why_not(0.1, 1) is None
    gate.admit(0.1)
    assert gate.why_not(0.2, 2) == "the models are expected to hold 2 calls: more come in one by one"
    assert gate.why_not(0.1 + RAMP_INTERVAL_S, 2) is None
    gate.admit(0.1 + RAMP_INTERVAL_S)
    assert gate.why_not(0.2 + RAMP_INTERVAL_S, 3) is not None


class Models:
    """Say how long they would let wait, and are looked at until it has come to count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = True) -> None:
        monkeypatch.setattr("calls.admission.model_load.SMOOTHING_S", 1e-6)
        self.wait_s = 0.0
        self.load = ModelLoadShedder(LatencyGate(3.0), lambda: self.wait_s, sheds=refuses)

    async def become(self, wait_s: float) -> None:
        """From now on they would let wait so long."""
        self.wait_s = wait_s
        await until(self._counts)

    def _counts(self) -> bool:
        self.load.sample()
        return self.load._gate.is_closed == (self.wait_s > 3.0)


async def two_calls(harness: CallServiceHarness, models: Models) -> None:
    """One call talks, and then the models are slow for another one."""
    await harness.create_number()
    first = harness.rings()
    await until(lambda: 200 in first.sent)
    await models.become(6.0)


async def test_a_call_gets_503_with_retry_after_while_the_models_are_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(monkeypatch)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        await two_calls(harness, models)
        with capture_logs() as lines:
            late = harness.rings()
            await until(late.leg.ended.done)
        assert late.sent == [503]
        assert int(late.dialog.headers["Retry-After"]) > 0
        [refused] = [line for line in lines if line["event"] == "call.refused"]
        assert refused["why"].startswith("answers wait")
        assert len(await harness.all_calls()) == 1
        await models.become(0.5)
        again = harness.rings()
        await until(lambda: 200 in again.sent)


async def test_a_call_that_we_make_stays_queued_until_the_models_keep_up(
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
        await models.become(0.5)
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
        await models.become(0.5)
        assert (await callee(harness)).leg.facts.to_addr.user == "+4917099"


async def test_a_shedder_that_only_logs_admits_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = Models(monkeypatch, refuses=False)
    async with call_service(tmp_path, load_shedder=models.load) as harness:
        with capture_logs() as lines:
            await two_calls(harness, models)
        assert [line["refuses"] for line in lines if line["event"] == "models.slow"] == [False]
        second = harness.rings()
        await until(lambda: 200 in second.sent)


async def test_callers_who_come_at_once_count_before_they_talk(tmp_path: Path) -> None:
    load = ModelLoadShedder(LatencyGate(3.0, expected_calls=2), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load) as harness:
        await harness.create_number()
        phones = [harness.rings() for _ in range(5)]
        await until(lambda: all(phone.sent and phone.sent[-1] >= 200 for phone in phones))
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 503, 503, 503]


async def test_models_are_measured_before_they_are_watched_and_to_the_end_before_they_are_closed() -> None:
    began, goes_on, is_over = threading.Event(), threading.Event(), False

    def measure() -> int:
        nonlocal is_over
        began.set()
        goes_on.wait(10)
        is_over = True
        return 7

    gate = LatencyGate(3.0)
    watching = asyncio.create_task(ModelLoadShedder(gate, lambda: 0.0, measure_capacity=measure).run())
    await asyncio.to_thread(began.wait, 10)
    watching.cancel()
    await asyncio.sleep(0)
    assert not watching.done()
    goes_on.set()
    await asyncio.wait((watching,))
    assert is_over
    again = asyncio.create_task(ModelLoadShedder(gate, lambda: 0.0, measure_capacity=lambda: 7).run())
    await until(lambda: gate.expected_calls == 7)
    again.cancel()


def test_calls_that_wait_leave_places_to_callers() -> None:
    gate = LatencyGate(3.0, expected_calls=10)
    gate.admit(0.0, queued=True)
    assert gate.why_not(0.1, 7, queued=True) is None
    assert gate.why_not(0.1, 8, queued=True) is not None
    assert gate.why_not(0.1, 9) is None


def test_calls_that_wait_take_no_turn_of_callers_but_one_of_their_own_while_no_caller_is_refused() -> None:
    gate = LatencyGate(3.0, expected_calls=2)
    assert gate.why_not(20.0, 5, queued=True) is None
    gate.admit(20.0, queued=True)
    assert gate.why_not(20.1, 5, queued=True) is not None
    assert gate.why_not(20.1, 5) is None, "the callers' turn is still there"
    gate.admit(20.1)
    gate.reject(27.0)
    assert gate.why_not(20.2 + RAMP_INTERVAL_S, 5, queued=True) == "callers come first, and one was refused just now"
    assert gate.why_not(27.1 + RAMP_INTERVAL_S, 5, queued=True) is None
    assert gate.why_not(27.1 + RAMP_INTERVAL_S, 0, queued=True) is None


def test_a_turn_that_is_given_back_is_another_ones() -> None:
    gate = LatencyGate(3.0, expected_calls=2)
    gate.admit(20.0)
    gate.withdraw()
    assert gate.why_not(20.1, 2) is None


async def test_a_queue_of_calls_that_we_make_does_not_shut_callers_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calls.admission.model_load.SAMPLE_EVERY_S", 0.001)
    load = ModelLoadShedder(LatencyGate(3.0, expected_calls=5), lambda: 0.0)
    talking = 0
    load.active_calls = lambda: talking
    watching = asyncio.create_task(load.run())

    async def place() -> None:
        nonlocal talking
        await load.wait_for_slot(lambda: asyncio.sleep(0))
        if load.try_enter():
            talking += 1
            load.entered()

    queue_ = [asyncio.create_task(place()) for _ in range(20)]
    await until(lambda: talking == 4)
    await asyncio.sleep(0.02)
    assert talking == 4
    assert load.admit() is None
    talking += 1
    load.entered()
    assert load.admit() is not None
    talking -= 3
    await asyncio.sleep(0.02)
    assert talking == 2, "a caller was refused: who has called again finds a place"
    assert load.admit() is None
    for task in (*queue_, watching):
        task.cancel()


async def test_a_call_that_waits_for_its_turn_or_its_trunk_counts_for_nothing(tmp_path: Path) -> None:
    load = ModelLoadShedder(LatencyGate(3.0, expected_calls=2), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load, per_second=0.001) as harness:
        line = await harness.create_number()
        await queue(harness, line)
        await callee(harness)
        for _ in range(3):
            await queue(harness, line)
        await until(lambda: len(harness.service.active_calls()) == 4)
        phone = harness.rings()
        await until(lambda: phone.sent and phone.sent[-1] >= 200)
        assert phone.sent[-1] == 200


async def test_a_call_that_finds_its_place_taken_when_its_trunk_is_there_waits_again(tmp_path: Path) -> None:
    load = ModelLoadShedder(LatencyGate(3.0, expected_calls=2), lambda: 0.0)
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
        first, second = harness.rings(), harness.rings()
        await until(lambda: 200 in first.sent and 200 in second.sent)
        with capture_logs() as lines:
            goes_on.set()
            await until(lambda: any(line["event"] == "call.waits_for_models" for line in lines))
        assert (await stored(harness, call)).status == "queued"


async def test_a_call_that_is_rejected_for_another_reason_takes_no_turn(tmp_path: Path) -> None:
    load = ModelLoadShedder(LatencyGate(3.0, expected_calls=1), lambda: 0.0)
    async with call_service(tmp_path, load_shedder=load) as harness:
        await harness.create_number()
        first = harness.rings()
        await until(lambda: 200 in first.sent)
        load._gate.withdraw()  # its turn is over
        create = harness.service._create_session

        async def full(*_: object) -> CallSession:
            raise CallRejected(486, "the organization has too many calls")

        harness.service._create_session = full  # type: ignore[method-assign]
        refused = harness.rings()
        await until(refused.leg.ended.done)
        assert refused.sent == [486]
        harness.service._create_session = create  # type: ignore[method-assign]
        second = harness.rings()
        await until(lambda: second.sent and second.sent[-1] >= 200)
        assert second.sent[-1] == 200


async def test_models_that_cannot_be_asked_do_not_keep_the_gate_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calls.admission.model_load.SAMPLE_EVERY_S", 0.001)
    monkeypatch.setattr("calls.admission.model_load.SMOOTHING_S", 1e-6)
    gate = LatencyGate(3.0)
    watched(gate, 10, 9.0)
    gate._observed_s = 0.0
    assert gate.is_closed

    def broken() -> float:
        raise RuntimeError("a model is gone")

    def unmeasurable() -> int:
        raise RuntimeError("cannot be measured")

    load = ModelLoadShedder(gate, broken, measure_capacity=unmeasurable)
    load.active_calls = lambda: 4
    with capture_logs() as lines:
        watching = asyncio.create_task(load.run())
        await until(lambda: not gate.is_closed)
        await asyncio.sleep(0.01)
    assert not watching.done()
    assert [line["event"] for line in lines if line["log_level"] in ("warning", "error")] == [
        "models.not_measured",
        "models.look_failed",
    ]
    watching.cancel()
