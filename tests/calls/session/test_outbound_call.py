"""Outbound calls, from the queue to the stored end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

from bench.turn.scripted_models import HANG_UP
from calls.outbound.dialer import trunk_problem
from config.clock import utc_now
from models.protocols import TextDelta
from sipcore.dialogs.invite_error import InviteError, InviteErrorKind
from sipcore.messages.headers import NameAddr
from storage.agents import agents
from storage.calls import queued_calls
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.webhooks import deliveries
from tests import database_template
from tests.calls.call_service_harness import GREETS, call_service, until
from tests.calls.outbound_calls import WEBHOOK, callee, ended, queue, status_and_reason, store, stored, wait_for_status
from tests.fakes.fake_leg import SOURCE
from tests.fakes.scripted_call import RATE, WORD_MS, settle


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"sip_protocol": "tcp"}, None),
        ({"sip_ip": "pbx.example", "source": "pbx.example"}, None),
        ({"sip_mode": None, "source": None}, "no trunk"),
        ({"sip_mode": "registration", "sip_proxy": "pbx.example", "source": "pbx.example"}, None),
        ({"sip_protocol": "tls"}, None),
        ({"source": "2001:db8::1"}, None),
    ],
)
async def test_a_trunk_problem_names_what_is_missing(tmp_path: Path, changes: dict[str, Any], word: str | None) -> None:
    async with call_service(tmp_path) as harness:
        number, _ = await harness.create_number()
    problem = trunk_problem(replace(number, **changes), tcp=True)
    assert problem is None if word is None else word in str(problem)
    if changes.get("sip_protocol") == "tcp":
        assert "TCP" in str(trunk_problem(replace(number, **changes), tcp=False))


async def test_an_outbound_call_uses_its_trunk_and_is_stored_from_queued_to_ended(tmp_path: Path) -> None:
    greeting = "Hello {{first_name}}, you are {{vip}} and {{age}}."
    async with call_service(tmp_path) as harness:
        line = await harness.create_number(**{**GREETS, **WEBHOOK, "agent_greeting": greeting})
        with capture_logs() as logs:
            variables = {"first_name": "Ann", "vip": True, "age": 4.5}
            call = await queue(harness, line, context_variables=variables, metadata={"order": 7})
            assert (call.status, call.call_sid, call.direction) == ("queued", None, "outbound")
            there = await callee(harness)
            assert there.uri == f"sip:+4917012@{SOURCE}"
            assert there.caller == NameAddr("+4930100", "")
            now = await stored(harness, call)
            assert (now.status, now.call_sid) == ("queued", there.leg.sip_call_id)
            there.rings()
            await wait_for_status(harness, call, "ringing")
            there.answers()
            await until(lambda: harness.tts.spoken)
            await wait_for_status(harness, call, "in_progress")
            await until(lambda: harness.pump.sent_position(there.slot) >= 2 * RATE * WORD_MS // 1000)
            there.ends()
            end = await ended(harness, call)
        assert harness.tts.spoken == ["Hello Ann, you are true and four point five."]
        assert len(await harness.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))) == 1
        assert harness.pump.released == [there.slot]
    assert (status_and_reason(end), end.customer_number, end.provider) == (
        ("completed", "customer_ended"),
        "+4917012",
        "sip",
    )
    assert end.started_at is not None
    assert end.ended_at is not None
    assert call.created_at <= end.started_at <= end.ended_at
    assert (end.context_variables, end.metadata) == (variables, {"order": 7})
    assert end.transcript[0]["content"].startswith("Hello Ann,")
    logged = [entry["event"] for entry in logs if entry["event"].startswith("call.")]
    assert logged == ["call.queued", "call.placed", "call.ringing", "call.answered", "call.ended"]


async def test_an_agent_that_does_not_speak_first_waits_for_the_callee(tmp_path: Path) -> None:
    async with call_service(tmp_path, [TextDelta("You chose four."), HANG_UP]) as harness:
        call = await queue(harness, await harness.create_number(**{**GREETS, "first_speaker": "user"}))
        there = await callee(harness)
        there.answers()
        await until(lambda: there.leg.on_digit is not None)
        assert harness.tts.spoken == []
        for digit in "4#":
            there.driver.on_digit(digit, "rfc4733")
        end = await ended(harness, call)
    assert [item["content"] for item in end.transcript] == ["4", "You chose four."]
    assert (status_and_reason(end), there.sent) == (("completed", "agent_ended"), [-1])


async def test_the_trunk_s_port_and_transport_and_the_number_s_name_are_used(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = await harness.create_number()
        changes = {"sip_port": 5070, "sip_protocol": "tcp", "name": "Front desk"}
        number = await harness.database.write(lambda conn: phone_numbers.replace(conn, number, changes))
        await queue(harness, (number, agent))
        there = await callee(harness)
        assert there.uri == f"sip:+4917012@{SOURCE}:5070;transport=tcp"
        assert there.caller == NameAddr("+4930100", "Front desk")


async def test_early_media_does_not_start_the_conversation(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number(**GREETS))
        there = await callee(harness)
        there.rings(early_media=True)
        await wait_for_status(harness, call, "ringing")
        ticks = harness.engine.stats.ticks
        await until(lambda: harness.engine.stats.ticks > ticks + 20)
        assert (harness.engine.stats.calls, harness.tts.spoken) == (0, [])
        there.answers()
        await until(lambda: harness.tts.spoken)
        there.ends()
        assert (await ended(harness, call)).duration_seconds == 0


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (408, "no_answer", "no_answer"),
        (480, "no_answer", "no_answer"),
        (486, "failed", "busy"),
        (603, "failed", "rejected"),
        (404, "failed", "invalid_number"),
        (503, "failed", "unreachable"),
        (302, "failed", "unreachable"),
        (0, "failed", "unreachable"),
    ],
)
async def test_a_final_status_is_the_reason_of_the_end(tmp_path: Path, code: int, status: str, reason: str) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number(**WEBHOOK))
        there = await callee(harness)
        there.rings(early_media=code == 486)
        there.ends(code)
        end = await ended(harness, call)
        assert (*status_and_reason(end), end.started_at, end.duration_seconds) == (status, reason, None, 0)
        assert len(await harness.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))) == 1
        assert len(harness.pump.released) == (code == 486), "early media gave its slot back"
    assert there.sent == []


@pytest.mark.parametrize(
    ("rings", "trying", "expected"),
    [
        (True, 180, ("no_answer", "no_answer")),
        (False, 100, ("no_answer", "no_answer")),
        (False, 0, ("failed", "unreachable")),
    ],
)
async def test_a_callee_that_does_not_answer_in_time_is_cancelled(
    tmp_path: Path, rings: bool, trying: int, expected: tuple[str, str]
) -> None:
    async with call_service(tmp_path, ring_timeout_s=0.1) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.dialog.trying = trying
        if rings:
            there.rings()
        assert status_and_reason(await ended(harness, call)) == expected
        assert there.sent == [-1]


async def test_the_ring_timeout_does_not_limit_the_conversation(tmp_path: Path) -> None:
    async with call_service(tmp_path, ring_timeout_s=0.1) as harness:
        call = await queue(harness, await harness.create_number(max_call_duration_seconds=1))
        (await callee(harness)).answers()
        assert status_and_reason(await ended(harness, call)) == ("completed", "max_duration")


async def test_an_answer_without_audio_is_a_media_timeout(tmp_path: Path) -> None:
    async with call_service(tmp_path, rtp_timeout_s=0.05) as harness:
        call = await queue(harness, await harness.create_number())
        (await callee(harness)).answers(mute=True)
        end = await ended(harness, call)
    assert status_and_reason(end) == ("completed", "media_timeout")
    assert end.started_at is not None


async def test_a_callee_that_answers_and_hangs_up_at_once_has_answered(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.answers()
        there.ends()
        end = await ended(harness, call)
    assert (status_and_reason(end), end.duration_seconds) == (("completed", "customer_ended"), 0)
    assert end.started_at is not None


async def test_an_invite_that_cannot_be_sent_is_unreachable_and_the_log_says_why(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()
        for kind in get_args(InviteErrorKind):
            harness.callees.error = InviteError(kind, "no INVITE could be sent: no transport")
            with capture_logs() as logs:
                assert status_and_reason(await ended(harness, await queue(harness, line))) == ("failed", "unreachable")
            logged = [(each["why"], each["kind"]) for each in logs if each["event"] == "call.not_placed"]
            assert logged == [("no INVITE could be sent: no transport", kind)]


async def test_a_trunk_whose_host_is_unknown_is_unreachable(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        harness.callees.address = None
        call = await queue(harness, await harness.create_number())
        assert status_and_reason(await ended(harness, call)) == ("failed", "unreachable")
        assert harness.callees.dial_count == 0


async def test_an_unexpected_exception_ends_its_call_alone_as_error_and_is_logged_once(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()
        well = await queue(harness, line)
        there = await callee(harness)
        there.answers()
        harness.callees.error = ValueError("broken")
        with capture_logs() as logs:
            call = await queue(harness, line)
            assert status_and_reason(await ended(harness, call)) == ("failed", "error")
        failed = [entry for entry in logs if entry["log_level"] == "error"]
        assert [(entry["event"], entry["call_id"]) for entry in failed] == [("call.failed", call.id)]
        there.ends()
        assert status_and_reason(await ended(harness, well)) == ("completed", "customer_ended")


async def test_a_call_whose_agent_is_deleted_before_it_is_placed_fails(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        number, agent = line = await harness.create_number()
        call = await harness.database.write(lambda conn: store(conn, line, "+4917012"))
        await harness.database.write(lambda conn: agents.delete(conn, number.organization_id, agent.id))
        harness.service.start_queued_calls()
        assert status_and_reason(await ended(harness, call)) == ("failed", "unreachable")
        assert harness.callees.dial_count == 0


async def test_a_failing_database_does_not_stop_the_queue_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()

        def full(*_: object) -> None:
            raise StorageUnavailable("the disk cannot be read or written")

        with monkeypatch.context() as broken, capture_logs() as logs:
            broken.setattr(queued_calls, "waiting", full)
            await queue(harness, line)
            await until(lambda: any(entry["event"] == "calls.queue_not_read" for entry in logs))
        harness.service.start_queued_calls()
        await callee(harness)


async def test_queued_calls_are_read_again_only_if_something_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path, "Hello.") as harness:
        line = await harness.create_number(**GREETS)
        reads: list[int] = []
        waiting = queued_calls.waiting

        def counted(*arguments: Any) -> Any:
            reads.append(1)
            return waiting(*arguments)

        monkeypatch.setattr(queued_calls, "waiting", counted)
        await database_template.settled(harness.database)
        harness.service.start_calls_queued_meanwhile()
        await until(lambda: harness.service._queue._read_change_number is not None)
        for _ in range(3):
            harness.service.start_calls_queued_meanwhile()
            await settle()
        assert len(reads) == 1
        call = await harness.database.write(lambda conn: store(conn, line, "+4917012"))
        await database_template.settled(harness.database)
        harness.service.start_calls_queued_meanwhile()
        there = await callee(harness)
        assert len(reads) == 2
        there.ends()
        await ended(harness, call)
