"""POST /calls/{id}/hold and /unhold in a call: what is heard, what waits, and what goes on. On a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from config.errors import Conflict
from models.protocols import TextDelta, ToolCall
from storage.calls import calls
from tests.calls.call_service_harness import call_service, until
from tests.calls.session.transfer.transfer_stages import Stage, Way, method_of, reach
from tests.calls.session.transfer.virtual_transfers import RTP_TIMEOUT_S, VirtualTransfer, virtual_transfer
from tests.virtual_time import run_virtually

LONG_HOLD_S: Final = 120.0
REPORT: Final = "Back with you."


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Nothing: the database runs on the thread of the event loop."""


def held_call(tmp_path: Path, test: Callable[[VirtualTransfer], Awaitable[None]], **agent: Any) -> None:
    """Run a test with a caller whom the agent greets, and who has begun to hear it; `way`: the number's method of
    transfers."""
    way: Way = agent.pop("way", "cold")

    async def run() -> None:
        async with virtual_transfer(tmp_path, method=method_of(way), **agent) as call:
            await test(call)

    run_virtually(run())


async def hold(call: VirtualTransfer, on: bool = True, call_id: str | None = None) -> None:
    """POST /calls/{id}/hold or /unhold."""
    await call.harness.service.set_held(call_id or call.call.id, on)


def transcript(call: VirtualTransfer, call_id: str | None = None) -> list[tuple[str, str]]:
    """The transcript as it is stored now."""
    stored = call.database.now(lambda conn: calls.get_by_id(conn, call_id or call.call.id))
    assert stored is not None
    return [(each["role"], each["content"]) for each in stored.transcript]


async def greeted(call: VirtualTransfer) -> None:
    """Wait until the agent has said its greeting."""
    await call.until(lambda: transcript(call) == [("assistant", "How can I help?")])
    await call.until(lambda: call.is_settled)


def has_music(call: VirtualTransfer, slot: int | None = None) -> bool:
    """The caller hears hold music, or the peer of this slot."""
    return call.pump.backgrounds.get(call.phone.slot if slot is None else slot) is not None


def test_the_agent_stops_for_the_hold_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        slot, pump = call.phone.slot, call.pump
        await call.until(lambda: pump.sent_position(slot) > 0)
        with capture_logs() as events:
            for _ in range(2):
                await hold(call)
            sent, whole = pump.sent_position(slot), pump.written_position(slot)
            assert sent < whole
            await call.passes(LONG_HOLD_S)
            assert (pump.sent_position(slot), pump.written_position(slot)) == (sent, whole)
            assert has_music(call)
            for _ in range(2):
                await hold(call, False)
        await greeted(call)
        assert not has_music(call)
        assert pump.sent_position(slot) == whole
        holds = [(each["event"], each["by"]) for each in events if each["event"] in ("call.held", "call.resumed")]
        assert holds == [("call.held", "client"), ("call.resumed", "client")]
        assert call.phone.sent == [180, 200]  # no request is sent

    held_call(tmp_path, test)


def test_words_before_the_hold_are_answered_after_it(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        call.caller_says("Have you got berths?")
        await hold(call)
        await call.passes(LONG_HOLD_S)
        assert transcript(call)[1:] == [("user", "Have you got berths?")]
        await hold(call, False)
        await call.until(lambda: transcript(call)[2:] == [("assistant", REPORT)])
        call.phone.hangs_up()
        await call.end_of_caller()
        stored = call.database.now(lambda conn: calls.get_by_id(conn, call.call.id))
        assert stored is not None
        assert [each["response_gap_ms"] for each in stored.timeline[1:]] == [None]

    held_call(tmp_path, test)


def test_keys_during_a_hold_do_not_reach_the_agent(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        await hold(call)
        call.phone.driver.on_digit("7", "rfc4733")
        await call.passes(20.0)
        await hold(call, False)
        call.phone.driver.on_digit("8", "rfc4733")
        await call.until(lambda: ("user", "8") in transcript(call))
        assert transcript(call)[:2] == [("assistant", "How can I help?"), ("user", "8")]

    held_call(tmp_path, test)


@pytest.mark.parametrize("peer_holds", [False, True])
def test_the_questions_about_silence_rest_until_all_holds_are_lifted(tmp_path: Path, peer_holds: bool) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        await hold(call)
        if peer_holds:
            call.phone.holds()
        await call.passes(LONG_HOLD_S)
        await hold(call, False)
        if peer_holds:
            await call.passes(LONG_HOLD_S)
            call.phone.holds(False)
        assert transcript(call) == [("assistant", "How can I help?")]
        resumed_s = call.now_s
        await call.until(lambda: len(transcript(call)) == 2)
        assert 1.0 < call.now_s - resumed_s < 15.0

    held_call(tmp_path, test, customer_silence_ms=5000)


def test_the_rtp_timeout_rests_and_begins_anew(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        await hold(call)
        call.vanishes(call.phone.slot)
        await call.passes(LONG_HOLD_S)
        assert call.is_talking
        resumed_s = call.now_s
        await hold(call, False)
        await call.end_of_caller()
        assert RTP_TIMEOUT_S - 1 <= call.now_s - resumed_s <= 2 * RTP_TIMEOUT_S + 1
        assert stored_end(call) == "media_timeout"

    held_call(tmp_path, test)


def stored_end(call: VirtualTransfer) -> str | None:
    """The ended reason of the caller's call."""
    stored = call.database.now(lambda conn: calls.get_by_id(conn, call.call.id))
    assert stored is not None
    return stored.ended_reason


def test_the_maximum_duration_ends_a_call_on_hold(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await hold(call)
        await call.end_of_caller()
        assert (stored_end(call), call.phone.sent) == ("max_duration", [180, 200, -1])

    held_call(tmp_path, test, max_call_duration_seconds=20)


@pytest.mark.parametrize("end", ["caller", "client", "server"])
def test_a_call_on_hold_ends_as_any_other(tmp_path: Path, end: str) -> None:
    async def test(call: VirtualTransfer) -> None:
        await hold(call)
        await call.passes(5.0)
        if end == "caller":
            call.phone.hangs_up()
        elif end == "client":
            await call.hang_up_by_api(call.call.id)
        else:
            call.harness.service.end_all()
        await call.end_of_caller()
        reasons = {"caller": "customer_ended", "client": "api_hangup", "server": "server_shutdown"}
        assert stored_end(call) == reasons[end]
        assert not call.pump._slots
        for on in (True, False):
            with pytest.raises(Conflict):
                await hold(call, on)

    held_call(tmp_path, test)


def test_an_agent_that_hangs_up_waits_for_the_end_of_the_hold(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        call.harness.llm.answers.clear()
        call.harness.llm.answers.append([ToolCall("1", "end_call", "{}")])
        call.harness.llm.gate.clear()
        call.caller_says("Bye.")
        await hold(call)
        call.harness.llm.gate.set()
        await call.passes(LONG_HOLD_S)
        assert call.is_talking
        await hold(call, False)
        await call.end_of_caller()
        assert stored_end(call) == "agent_ended"

    held_call(tmp_path, test)


def test_a_tool_goes_on_and_its_result_is_said_after_the_hold(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await greeted(call)
        call.harness.llm.answers.clear()
        call.harness.llm.answers.extend([[ToolCall("1", "send_dtmf", '{"digits": "1"}')], [TextDelta("Done.")]])
        call.caller_says("Press one.")
        await hold(call)
        await call.until(lambda: call.pump.dialled == ["1"])
        await call.passes(LONG_HOLD_S)
        assert ("assistant", "Done.") not in transcript(call)
        await hold(call, False)
        await call.until(lambda: ("assistant", "Done.") in transcript(call))

    held_call(tmp_path, test)


@pytest.mark.parametrize("state", ["ringing", "unknown"])
async def test_only_a_call_in_progress_can_be_held(tmp_path: Path, state: str) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number()
        phone = harness.invite()
        call_id = "no call"
        if state == "ringing":
            phone.dialog.mute = True
            await until(lambda: 180 in phone.sent)
            call_id = (await harness.stored_call(phone)).id
        for on in (True, False):
            with pytest.raises(Conflict):
                await harness.service.set_held(call_id, on)


# ---- transfers ----


@pytest.mark.parametrize(
    ("way", "stage"),
    [
        ("cold", "ringing"), ("briefing", "early_media"), ("briefing", "briefing"), ("briefing", "deciding"),
        ("attended", "refer_sent"), ("cold", "connected"),
    ],
)  # fmt: skip
def test_a_caller_on_hold_is_connected_once_the_hold_is_lifted(tmp_path: Path, way: Way, stage: Stage) -> None:
    async def test(call: VirtualTransfer) -> None:
        await reach(call, way, stage)
        await hold(call)
        if stage != "connected":
            await take(call, way, stage)
            await call.until(lambda: call.transfer.status == "connected")
        await call.passes(LONG_HOLD_S)
        assert (call.pump.bridges, has_music(call), has_music(call, call.target.slot)) == ([], True, False)
        await hold(call, False)
        await call.passes(1.0)
        assert (len(call.pump.bridges), has_music(call)) == (1, False)
        call.phone.hangs_up()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()
        assert call.transfer.status == "completed"

    held_call(tmp_path, test, way=way)


async def take(call: VirtualTransfer, way: Way, stage: Stage) -> None:
    """The target answers and takes the call."""
    if stage in ("ringing", "early_media"):
        call.target.answers()
    if stage == "refer_sent":
        call.refer.on_response(501)
    elif way != "cold":
        await call.passes(10.0)
        call.target.driver.on_digit("1", "rfc4733")


def test_a_transfer_of_a_caller_on_hold_begins_at_once_without_words(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await hold(call)
        await call.start("cold")
        await call.until(lambda: call.dialled)
        assert call.harness.tts.spoken == ["How can I help?"]
        call.target.ends(486)
        await call.until(lambda: call.transfer.status == "busy")
        await call.passes(LONG_HOLD_S)
        assert has_music(call)
        assert ("assistant", REPORT) not in transcript(call)
        await hold(call, False)
        await call.until(lambda: ("assistant", REPORT) in transcript(call))
        assert not has_music(call)

    held_call(tmp_path, test)


def test_a_hold_starts_the_transfer_that_waits_for_the_agents_last_words(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await call.start("cold")
        await hold(call)
        await call.until(lambda: call.dialled)
        assert call.harness.tts.spoken == ["How can I help?"]

    held_call(tmp_path, test)


def test_the_target_of_a_briefing_can_be_held(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await reach(call, "briefing", "ringing")
        child_id = call.transfer.id
        with pytest.raises(Conflict):
            await hold(call, call_id=child_id)
        call.target.answers()
        await call.until(lambda: any("ten chairs" in each for each in call.harness.tts.spoken))
        slot = call.target.slot
        await hold(call, call_id=child_id)
        sent = call.pump.sent_position(slot)
        call.target.driver.on_digit("1", "rfc4733")
        await call.passes(LONG_HOLD_S)
        assert (call.pump.sent_position(slot), has_music(call, slot)) == (sent, True)
        assert call.transfer.status == "briefing"
        await hold(call, False, call_id=child_id)
        await call.passes(1.0)
        assert not has_music(call, slot)
        call.target.driver.on_digit("1", "rfc4733")
        await call.until(lambda: call.pump.bridges)
        await hold(call, call_id=child_id)
        await call.passes(1.0)
        assert (call.pump.bridges, has_music(call), has_music(call, slot)) == ([], True, True)
        await hold(call, False, call_id=child_id)
        await call.passes(1.0)
        assert (len(call.pump.bridges), has_music(call), has_music(call, slot)) == (1, False, False)
        call.target.ends()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()

    held_call(tmp_path, test)


async def screened(call: VirtualTransfer) -> str:
    """The target of a cold transfer has answered, and has not spoken; returns the id of its call."""
    await reach(call, "cold", "ringing")
    call.target.answers()
    await call.until(lambda: call.target.slot in call.harness.engine._by_slot)
    return call.transfer.id


def test_the_target_of_a_cold_transfer_can_be_held_during_its_screening(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        child_id = await screened(call)
        await hold(call, call_id=child_id)
        call.vanishes(call.target.slot)
        await call.passes(LONG_HOLD_S)
        assert (call.transfer.ended_at, has_music(call), has_music(call, call.target.slot)) == (None, True, True)
        call.pump.vanished.clear()
        await hold(call, False, call_id=child_id)
        await call.until(lambda: call.pump.bridges)
        await call.passes(1.0)
        assert (has_music(call), has_music(call, call.target.slot)) == (False, False)
        call.target.ends()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()
        assert call.transfer.status == "completed"

    held_call(tmp_path, test)


def test_a_caller_on_hold_is_connected_after_the_screening_once_the_hold_is_lifted(tmp_path: Path) -> None:
    async def test(call: VirtualTransfer) -> None:
        await screened(call)
        await hold(call)
        await call.until(lambda: call.transfer.status == "connected")
        await call.passes(LONG_HOLD_S)
        assert (call.pump.bridges, has_music(call)) == ([], True)
        await hold(call, False)
        await call.until(lambda: call.pump.bridges)
        call.phone.hangs_up()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()

    held_call(tmp_path, test)


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("caller", "cancelled", "agent_ended"),
        ("target", "declined", "customer_ended"),
        ("api", "cancelled", "api_hangup"),
    ],
)
def test_a_target_on_hold_during_its_screening_ends_as_any_other(
    tmp_path: Path, end: str, status: str, reason: str
) -> None:
    async def test(call: VirtualTransfer) -> None:
        child_id = await screened(call)
        await hold(call, call_id=child_id)
        await call.passes(LONG_HOLD_S)
        if end == "caller":
            call.phone.hangs_up()
        elif end == "target":
            call.target.ends()
        else:
            assert await call.hang_up_by_api(child_id)
        await call.passes(1.0)
        assert call.target.leg.ended.done()
        call.phone.hangs_up()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()
        child = call.stored().child
        assert child is not None
        assert (call.transfer.status, child.ended_reason) == (status, reason)

    held_call(tmp_path, test)


@pytest.mark.parametrize("end", ["caller", "target"])
def test_a_leg_that_ends_during_a_hold_ends_its_partner(tmp_path: Path, end: str) -> None:
    async def test(call: VirtualTransfer) -> None:
        await reach(call, "cold", "connected")
        await hold(call)
        await call.passes(10.0)
        if end == "caller":
            call.phone.hangs_up()
        else:
            call.target.ends()
        await call.end_of_caller()
        await call.passes(1.0)
        call.assert_nothing_is_left()

    held_call(tmp_path, test)
