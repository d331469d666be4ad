"""Calls that we make, from the queue to the stored end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls import after_call
from calls.admission import Ceilings
from calls.outbound import Pace, Turns, trunk_problem
from config.clock import utc_now
from config.errors import TooMany, Unavailable
from models.protocols import EndCall, TextDelta
from sipcore.headers import Party
from storage import agents, calls, organizations, phone_numbers, webhook_deliveries
from storage.agents import Agent
from storage.calls import Call
from storage.database import StorageTrouble
from storage.phone_numbers import PhoneNumber
from tests.calls.house import GREETS, House, open_house, until
from tests.fakes_calls import RATE, WORD_MS
from tests.fakes_legs import SOURCE, Callee

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}
Line = tuple[PhoneNumber, Agent]


def store(conn: sa.Connection, line: Line, to: str, **more: Any) -> Call:
    """What POST /calls does in its transaction."""
    number, agent = line
    facts = {"context_variables": {}, "metadata": {}, **more}
    return calls.create_outbound(
        conn,
        organization_id=number.organization_id,
        agent_id=agent.id,
        phone_number_id=number.id,
        provider=number.provider,
        customer_number=to,
        **facts,
    )


async def queue(house: House, line: Line, to: str = "+4917012", **more: Any) -> Call:
    """A call that is to be placed."""
    call = await house.database.write(lambda conn: store(conn, line, to, **more))
    house.service.look_for_queued()
    return call


async def callee(house: House, place: int = 0) -> Callee:
    """Wait until somebody is called."""
    await until(lambda: len(house.callees.called) > place)
    return house.callees.called[place]


async def stored(house: House, call: Call) -> Call:
    """The call as it is now."""
    found = await house.database.read(lambda conn: calls.get_anywhere(conn, call.id))
    assert found is not None
    return found


async def ended(house: House, call: Call) -> Call:
    """Wait for the stored end of a call."""
    async with asyncio.timeout(10):
        while (now := await stored(house, call)).ended_at is None:  # noqa: ASYNC110 - only the database tells
            await asyncio.sleep(0.005)
    await until(lambda: all(live.call.id != call.id for live in house.service.live()))
    return now


async def becomes(house: House, call: Call, status: str) -> None:
    """Wait until the call is stored in this status."""
    async with asyncio.timeout(10):
        while (await stored(house, call)).status != status:  # noqa: ASYNC110 - only the database tells
            await asyncio.sleep(0.005)


def how(call: Call) -> tuple[str, str | None]:
    """Status and reason of the end."""
    return call.status, call.ended_reason


# ---- pace ----


def test_starts_are_spread_evenly_and_an_idle_time_saves_nothing_up() -> None:
    pace, starts, now = Pace(per_second=4), [], 100.0
    for _ in range(9):
        now += pace.wait_s(now)
        pace.started(now)
        starts.append(now - 100)
    assert starts == [0.25 * n for n in range(9)]
    now += 60
    assert pace.wait_s(now) == 0
    pace.started(now)
    assert pace.wait_s(now) == pytest.approx(0.25)


def test_a_timer_that_fires_too_early_does_not_quicken_the_pace() -> None:
    pace = Pace(per_second=10)
    pace.started(0.0)
    pace.started(0.099)
    assert pace.wait_s(0.099) == pytest.approx(0.101)


async def test_turns_are_taken_in_order_and_one_that_is_given_up_holds_up_nobody() -> None:
    now = 0.0
    turns, order = Turns(per_second=20, clock_s=lambda: now), []

    async def take(name: str) -> None:
        await turns.take()
        order.append(name)

    await take("first")
    given_up, second, third = (asyncio.create_task(take(name)) for name in ("given up", "second", "third"))
    await asyncio.sleep(0)
    now = 0.05
    given_up.cancel()
    await second
    assert order == ["first", "second"]
    third.cancel()


async def test_calls_are_placed_in_the_order_of_their_queueing_at_the_pace_of_the_settings(tmp_path: Path) -> None:
    async with open_house(tmp_path, per_second=50) as house:
        line = await house.number()
        times: list[float] = []
        dial = house.callees.dial

        async def timed(*args: Any, **kwargs: Any) -> Any:
            times.append(asyncio.get_running_loop().time())
            return await dial(*args, **kwargs)

        house.service._way_out = replace(house.service._way_out, dial=timed)  # type: ignore[type-var]
        for last in range(6):
            await queue(house, line, f"+491701{last}")
            await asyncio.sleep(0.002)
        await callee(house, 5)
        assert [each.leg.facts.to.user for each in house.callees.called] == [f"+491701{n}" for n in range(6)]
        assert times[-1] - times[0] >= 5 * 0.02 - 0.003


# ---- the way of a call ----


async def test_a_call_goes_through_its_trunk_and_is_stored_from_queued_to_its_end(tmp_path: Path) -> None:
    greeting = "Hello {{first_name}}, you are {{vip}} and {{age}}."
    async with open_house(tmp_path) as house:
        line = await house.number(**{**GREETS, **WEBHOOK, "agent_greeting": greeting})
        with capture_logs() as logs:
            variables = {"first_name": "Ann", "vip": True, "age": 4.5}
            call = await queue(house, line, context_variables=variables, metadata={"order": 7})
            assert (call.status, call.call_sid, call.direction) == ("queued", None, "outbound")
            there = await callee(house)
            assert there.uri == f"sip:+4917012@{SOURCE}:5060;transport=udp"
            assert there.caller == Party("+4930100", "")
            now = await stored(house, call)
            assert (now.status, now.call_sid) == ("queued", there.leg.sip_call_id)
            there.rings()
            await becomes(house, call, "ringing")
            there.answers()
            await until(lambda: house.voice.spoken)
            await becomes(house, call, "in_progress")
            await until(lambda: house.pump.taken(there.leg._media.result().slot) >= 2 * RATE * WORD_MS // 1000)
            there.ends()
            end = await ended(house, call)
        assert house.voice.spoken == ["Hello Ann, you are true and 4.5."]
        assert len(await house.database.read(lambda conn: webhook_deliveries.due(conn, utc_now()))) == 1
        assert house.pump.released == [there.leg._media.result().slot]
    assert (how(end), end.customer_number, end.provider) == (("completed", "customer_ended"), "+4917012", "sip")
    assert end.started_at is not None
    assert end.ended_at is not None
    assert call.created_at <= end.started_at <= end.ended_at
    assert (end.context_variables, end.metadata) == (variables, {"order": 7})
    assert end.transcript[0]["content"].startswith("Hello Ann,")
    told = [entry["event"] for entry in logs if entry["event"].startswith("call.")]
    assert told == ["call.queued", "call.placed", "call.ringing", "call.answered", "call.ended"]


async def test_an_agent_that_listens_first_says_nothing_until_it_is_spoken_to(tmp_path: Path) -> None:
    async with open_house(tmp_path, [TextDelta("You chose four."), EndCall()]) as house:
        call = await queue(house, await house.number(**{**GREETS, "first_speaker": "user"}))
        there = await callee(house)
        there.answers()
        await until(lambda: there.leg.on_digit is not None)
        assert house.voice.spoken == []
        for digit in "4#":
            there.leg._has_digit(digit)
        end = await ended(house, call)
    assert [item["content"] for item in end.transcript] == ["4", "You chose four."]
    assert (how(end), there.sent) == (("completed", "agent_ended"), [-1])


async def test_the_trunk_s_port_and_transport_and_the_number_s_name_are_used(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, agent = await house.number()
        changes = {"sip_port": 5070, "sip_protocol": "tcp", "name": "Front desk"}
        number = await house.database.write(lambda conn: phone_numbers.replace(conn, number, changes))
        await queue(house, (number, agent))
        there = await callee(house)
        assert there.uri == f"sip:+4917012@{SOURCE}:5070;transport=tcp"
        assert there.caller == Party("+4930100", "Front desk")


async def test_early_media_is_no_conversation(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number(**GREETS))
        there = await callee(house)
        there.rings(early_media=True)
        await becomes(house, call, "ringing")
        ticks = house.engine.stats.ticks
        await until(lambda: house.engine.stats.ticks > ticks + 20)
        assert (house.engine.stats.calls, house.voice.spoken) == (0, [])
        there.answers()
        await until(lambda: house.voice.spoken)
        there.ends()
        assert (await ended(house, call)).duration_seconds == 0


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
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number(**WEBHOOK))
        there = await callee(house)
        there.rings(early_media=code == 486)
        there.ends(code)
        end = await ended(house, call)
        assert (*how(end), end.started_at, end.duration_seconds) == (status, reason, None, 0)
        assert len(await house.database.read(lambda conn: webhook_deliveries.due(conn, utc_now()))) == 1
        assert len(house.pump.released) == (code == 486), "early media gave its slot back"
    assert there.sent == []


@pytest.mark.parametrize(
    ("rings", "trying", "expected"),
    [
        (True, 180, ("no_answer", "no_answer")),
        (False, 100, ("no_answer", "no_answer")),
        (False, 0, ("failed", "unreachable")),
    ],
)
async def test_who_does_not_answer_in_time_is_cancelled(
    tmp_path: Path, rings: bool, trying: int, expected: tuple[str, str]
) -> None:
    async with open_house(tmp_path, ring_timeout_s=0.1) as house:
        call = await queue(house, await house.number())
        there = await callee(house)
        there.dialog.trying = trying
        if rings:
            there.rings()
        assert how(await ended(house, call)) == expected
        assert there.sent == [-1]


async def test_the_ring_timeout_does_not_bound_the_talk(tmp_path: Path) -> None:
    async with open_house(tmp_path, ring_timeout_s=0.1) as house:
        call = await queue(house, await house.number(max_call_duration_seconds=1))
        (await callee(house)).answers()
        assert how(await ended(house, call)) == ("completed", "max_duration")


async def test_an_answer_without_any_sound_is_a_media_timeout(tmp_path: Path) -> None:
    async with open_house(tmp_path, rtp_timeout_s=0.05) as house:
        call = await queue(house, await house.number())
        (await callee(house)).answers(mute=True)
        end = await ended(house, call)
    assert how(end) == ("completed", "media_timeout")
    assert end.started_at is not None


async def test_who_answers_and_hangs_up_in_one_breath_has_answered(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number())
        there = await callee(house)
        there.answers()
        there.ends()
        end = await ended(house, call)
    assert (how(end), end.duration_seconds) == (("completed", "customer_ended"), 0)
    assert end.started_at is not None


# ---- what goes wrong on our side ----


async def test_an_invite_that_cannot_be_sent_is_unreachable(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.callees.error = ConnectionError("no INVITE could be sent: no transport")
        call = await queue(house, await house.number())
        assert how(await ended(house, call)) == ("failed", "unreachable")


async def test_a_trunk_whose_host_is_unknown_is_unreachable(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.callees.address = None
        call = await queue(house, await house.number())
        assert how(await ended(house, call)) == ("failed", "unreachable")
        assert house.callees.asked == 0


async def test_a_fault_ends_its_call_alone_as_error_and_is_logged_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        line = await house.number()
        well = await queue(house, line)
        there = await callee(house)
        there.answers()
        house.callees.error = ValueError("broken")
        with capture_logs() as logs:
            call = await queue(house, line)
            assert how(await ended(house, call)) == ("failed", "error")
        failed = [entry for entry in logs if entry["log_level"] == "error"]
        assert [(entry["event"], entry["call_id"]) for entry in failed] == [("call.failed", call.id)]
        there.ends()
        assert how(await ended(house, well)) == ("completed", "customer_ended")


async def test_a_call_whose_agent_is_deleted_before_it_is_placed_fails(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, agent = line = await house.number()
        call = await house.database.write(lambda conn: store(conn, line, "+4917012"))
        await house.database.write(lambda conn: agents.delete(conn, number.organization_id, agent.id))
        house.service.look_for_queued()
        assert how(await ended(house, call)) == ("failed", "unreachable")
        assert house.callees.asked == 0


async def test_a_database_in_trouble_does_not_stop_the_queue_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        line = await house.number()

        def full(*_: object) -> None:
            raise StorageTrouble("the disk cannot be read or written")

        with monkeypatch.context() as broken, capture_logs() as logs:
            broken.setattr(calls, "queued", full)
            await queue(house, line)
            await until(lambda: any(entry["event"] == "calls.queue_not_read" for entry in logs))
        house.service.look_for_queued()
        await callee(house)


# ---- hanging up ----


async def test_a_queued_call_that_is_hung_up_is_never_placed(tmp_path: Path) -> None:
    async with open_house(tmp_path, per_second=0.001) as house:
        line = await house.number()
        await queue(house, line)
        await callee(house)
        waiting = await queue(house, line)
        assert await house.service.hangup(waiting.id)
        end = await stored(house, waiting)
        assert (how(end), end.call_sid) == (("no_answer", "api_hangup"), None)
        house.service.look_for_queued()
        assert not await house.service.hangup(waiting.id)
        assert house.callees.asked == 1


async def test_a_call_that_nobody_has_looked_for_yet_can_be_hung_up(tmp_path: Path) -> None:
    async with open_house(tmp_path, per_second=0.001) as house:
        line = await house.number()
        await queue(house, line)
        await callee(house)
        call = await house.database.write(lambda conn: store(conn, line, "+4917012"))
        assert await house.service.hangup(call.id)
        assert how(await stored(house, call)) == ("no_answer", "api_hangup")


async def test_a_ringing_call_that_is_hung_up_is_cancelled(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number())
        there = await callee(house)
        there.rings()
        assert await house.service.hangup(call.id)
        assert how(await stored(house, call)) == ("no_answer", "api_hangup")
        assert there.sent == [-1]


async def test_a_call_that_is_hung_up_while_its_invite_is_sent_is_cancelled(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.callees.gate.clear()
        call = await queue(house, await house.number())
        await until(lambda: house.callees.asked)
        hanging_up = asyncio.create_task(house.service.hangup(call.id))
        await until(lambda: house.service.live()[0]._ending.done())  # type: ignore[attr-defined]
        house.callees.gate.set()
        assert await hanging_up
        assert (await callee(house)).sent == [-1]
        assert how(await stored(house, call)) == ("no_answer", "api_hangup")


async def test_two_who_hang_up_at_once_both_see_the_same_end(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number())
        there = await callee(house)
        there.answers()
        await until(lambda: there.leg.on_digit is not None)
        assert await asyncio.gather(*(house.service.hangup(call.id) for _ in range(2))) == [True, True]
        assert how(await stored(house, call)) == ("completed", "api_hangup")


async def test_whatever_comes_first_each_call_is_placed_once_and_ends_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        line = await house.number()

        async def queue_and_hang_up(n: int) -> str:
            call = await queue(house, line, f"+4917{n:04}")
            if n % 3:
                await asyncio.sleep(0.003 * (n % 5))
            await house.service.hangup(call.id)
            house.service.look_for_queued()
            return call.id

        ids = await asyncio.gather(*(queue_and_hang_up(n) for n in range(40)))
        await house.service.drain(0)
        ends = {call.id: how(call) for call in await house.all_calls()}
        assert ends == dict.fromkeys(ids, ("no_answer", "api_hangup"))
        dialled = [each.leg.facts.to.user for each in house.callees.called]
        assert len(dialled) == len(set(dialled))
        assert all(each.sent == [-1] for each in house.callees.called)


# ---- draining ----


async def test_a_drain_places_nothing_more_and_lets_what_rings_go_on(tmp_path: Path) -> None:
    async with open_house(tmp_path, per_second=0.001) as house:
        line = await house.number(**WEBHOOK)
        ringing = await queue(house, line)
        there = await callee(house)
        there.rings()
        known = await queue(house, line)
        await until(lambda: house.service.live_calls == 2)
        unknown = await house.database.write(lambda conn: store(conn, line, "+4917013"))
        drain = asyncio.ensure_future(house.service.drain(60))
        for call in (known, unknown):
            assert how(await ended(house, call)) == ("failed", "server_shutdown")
        assert not drain.done()
        there.answers()
        await becomes(house, ringing, "in_progress")
        there.ends()
        await drain
        assert how(await stored(house, ringing)) == ("completed", "customer_ended")
        assert len(await house.database.read(lambda conn: webhook_deliveries.due(conn, utc_now()))) == 3


async def test_a_call_that_outlasts_the_drain_while_it_rings_fails(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        call = await queue(house, await house.number())
        there = await callee(house)
        there.rings()
        await house.service.drain(0.01)
        assert how(await stored(house, call)) == ("failed", "server_shutdown")
        assert there.sent == [-1]


# ---- ceilings ----


async def place_in(house: House, line: Line, to: str = "+4917012") -> Call | str:
    """A call stored as POST /calls does, or the name of what was raised."""

    def work(conn: sa.Connection) -> Call:
        organization = organizations.get(conn, line[0].organization_id)
        assert organization is not None
        house.service.check_room(conn, organization)
        return store(conn, line, to)

    try:
        return await house.database.write(work)
    except (TooMany, Unavailable) as refusal:
        return type(refusal).__name__


async def test_queued_ringing_and_inbound_calls_share_the_places_of_their_organization(tmp_path: Path) -> None:
    async with open_house(tmp_path, per_second=0.001) as house:
        line, other = await house.number(max_calls=3), await house.number("+4930200")
        await queue(house, line)
        await callee(house)
        waiting = await queue(house, line)
        phone = house.rings()
        await until(lambda: 200 in phone.sent)
        assert await place_in(house, line) == "TooMany"
        late = house.rings()
        await until(late.leg.ended.done)
        assert late.sent == [486]
        assert isinstance(await place_in(house, other), Call)
        await house.service.hangup(waiting.id)
        assert isinstance(await place_in(house, line), Call)
        assert await place_in(house, line) == "TooMany"


async def test_the_process_is_full_whoever_asks(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=Ceilings(process=1)) as house:
        line, other = await house.number(), await house.number("+4930200")
        await queue(house, line)
        assert await place_in(house, other) == "Unavailable"
        late = house.rings()
        await until(late.leg.ended.done)
        assert late.sent == [503]


async def test_calls_that_are_made_and_come_at_once_do_not_pass_the_ceiling_together(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=Ceilings(organization=4)) as house:
        line = await house.number()
        phones = [house.rings() for _ in range(6)]
        made = await asyncio.gather(*(place_in(house, line) for _ in range(10)))
        await until(lambda: all(phone.sent and phone.sent[-1] >= 200 for phone in phones))
        taken = sum(isinstance(each, Call) for each in made) + sum(phone.sent[-1] == 200 for phone in phones)
        assert taken == 4


async def test_a_transaction_that_fails_takes_no_place(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        line = await house.number(max_calls=1)

        def fails(conn: sa.Connection) -> None:
            store(conn, line, "+4917012")
            raise ValueError("later in the same transaction")

        for _ in range(3):
            with pytest.raises(ValueError, match="later"):
                await house.database.write(fails)
        assert isinstance(await place_in(house, line), Call)


async def test_a_call_whose_end_cannot_be_stored_takes_no_place_and_is_not_placed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path, per_second=0.001) as house:
        line = await house.number(max_calls=2)
        await queue(house, line)
        await callee(house)
        call = await queue(house, line)
        await until(lambda: house.service.live_calls == 2)
        assert await place_in(house, line) == "TooMany"

        def full(*_: object, **__: object) -> None:
            raise StorageTrouble("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(after_call, "STORE_AGAIN_S", ())
            broken.setattr(calls, "finish", full)
            assert await house.service.hangup(call.id)
        assert (await stored(house, call)).ended_at is None
        assert not await house.service.hangup(call.id), "it is not begun again"
        assert isinstance(await place_in(house, line), Call)


async def test_no_call_is_stored_while_the_server_drains(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        line = await house.number()
        house.service.end_all()
        assert await place_in(house, line) == "Unavailable"


# ---- trunks ----


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"sip_protocol": "tcp"}, None),
        ({"sip_ip": "pbx.example", "source": "pbx.example"}, None),
        ({"sip_mode": None, "source": None}, "no trunk"),
        ({"sip_mode": "registration"}, "ip_allowlist only"),
        ({"sip_protocol": "tls"}, "tls"),
        ({"source": "2001:db8::1"}, "IPv6"),
    ],
)
async def test_what_a_trunk_lacks_is_said(tmp_path: Path, changes: dict[str, Any], word: str | None) -> None:
    async with open_house(tmp_path) as house:
        number, _ = await house.number()
    problem = trunk_problem(replace(number, **changes), tcp=True)
    assert problem is None if word is None else word in str(problem)
    if changes.get("sip_protocol") == "tcp":
        assert "tcp" in str(trunk_problem(replace(number, **changes), tcp=False))
