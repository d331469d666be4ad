"""Cold transfers by REFER and by a bridged child call: what the caller, the target and the stored calls see."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.conversation.conversation import Conversation
from config.errors import Conflict, Invalid, LimitExceeded
from storage import tables
from storage.calls import calls, transfers
from storage.calls.transfers import TransferOrder
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from tests.calls.call_service_harness import call_service, until
from tests.calls.outbound_calls import callee, ended, queue
from tests.calls.session.transfer.transfer_calls import (
    AGENT,
    bridged_pair,
    caller,
    child_of,
    ended_transfer,
    tool_call,
    transfer_of,
)
from tests.fakes.scripted_call import settle

ORDER = TransferOrder(target="sales", requested_by="api")


# ---- a bridged child call ----


async def test_the_last_word_and_the_hold_message_are_played_before_the_target_is_called(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        assert target.uri.startswith("sip:+49301@")
        call = next(iter(harness.service.active_calls()))
        await until(lambda: harness.pump.sent_position(phone.slot) == harness.pump.written_position(phone.slot))
        assert harness.tts.spoken == ["Sure.", "I put you through."]
        assert call.call.id.encode().hex() in dict(target.headers)["User-to-User"]


async def test_caller_and_target_are_connected_and_recorded(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales", reason="prices", summary="wants a quote")) as harness:
        phone, target = await bridged_pair(harness)
        assert harness.pump.bridges == [frozenset((phone.slot, target.slot))]
        assert harness.pump.backgrounds == {phone.slot: None, target.slot: None}
        transfer = await transfer_of(harness, phone)
        await harness.database.until(
            lambda conn: transfers.get(conn, transfer.id), lambda each: each is not None and each.status == "connected"
        )
        target.ends()
        parent = await harness.ended_call(phone)
        ended, child = await ended_transfer(harness, phone), await child_of(harness, transfer)
    assert (parent.status, parent.ended_reason) == ("completed", "transferred")
    assert (parent.transfer_type, parent.transfer_status) == ("cold", "completed")
    assert phone.sent[-1] == -1
    assert (ended.status, ended.reason, ended.summary, ended.requested_by) == (
        "completed",
        "prices",
        "wants a quote",
        "agent",
    )
    assert ended.answered_at is not None
    assert [each["outcome"] for each in ended.attempts] == ["answered"]
    assert (child.parent_call_id, child.direction, child.customer_number) == (parent.id, "outbound", "+49301")
    assert (child.status, child.ended_reason, child.recorded) == ("completed", "customer_ended", True)
    assert harness.pump.bridges == []
    assert {phone.slot, target.slot} <= set(harness.pump.released)


async def test_a_caller_who_hangs_up_ends_both(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await transfer_of(harness, phone))
    assert parent.ended_reason == "customer_ended"
    assert target.sent[-1] == -1
    assert child.status == "completed"


async def test_the_end_of_the_server_ends_both(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        harness.service.end_all()
        parent = await harness.ended_call(phone)
        assert parent.ended_reason == "server_shutdown"
        assert target.sent[-1] == -1


async def test_dtmf_of_either_side_reaches_the_other_one(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        await until(lambda: phone.leg.on_digit is not None and target.leg.on_digit is not None)
        for digit in "12":
            target.driver.on_digit(digit, "rfc4733")
        await until(lambda: harness.pump.dialled == ["1", "2"])
        phone.driver.on_digit("#", "info")
        phone.driver.on_digit("9", "inband")
        await until(lambda: harness.pump.dialled[2:] == ["#"])


async def test_no_turn_is_detected_and_no_limit_runs_after_the_connection(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, _ = await bridged_pair(harness)
        windows = harness.engine.stats.windows_run
        ticks = harness.engine.stats.ticks
        await until(lambda: harness.engine.stats.ticks > ticks + 50)
        assert harness.engine.stats.windows_run == windows
        assert not phone.leg.ended.done()


async def test_nothing_listens_any_more_to_a_call_that_the_server_has_placed_once_it_is_connected(
    tmp_path: Path,
) -> None:
    async with call_service(tmp_path, *["How can I help?"] * 3) as harness:
        number, agent = await harness.create_number(**AGENT, voicemail_detection="detect")
        bridges = {"sip_transfer_method": "bridge"}
        number = await harness.database.write(lambda conn: phone_numbers.replace(conn, number, bridges))
        call = await queue(harness, (number, agent))
        customer = await callee(harness)
        customer.answers()
        await until(lambda: customer.slot in harness.engine._by_slot)
        audio = harness.engine._by_slot[customer.slot]
        await until(lambda: audio.monitor is not None)
        await harness.service.transfer(call.id, ORDER)
        target = await callee(harness, 1)
        target.answers()
        await until(lambda: harness.pump.bridges)
        assert audio.monitor is None
        assert not harness.engine._unheard.heard
        target.ends()
        await ended(harness, call)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (486, "busy"),
        (600, "busy"),
        (603, "declined"),
        (480, "no_answer"),
        (408, "no_answer"),
        (404, "failed"),
        (0, "failed"),
    ],
)
async def test_a_target_that_does_not_answer_gives_the_caller_back(tmp_path: Path, code: int, status: str) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "They cannot talk now.") as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.ends(code)
        await until(lambda: "They cannot talk now." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        tool_result = harness.llm.prompts[-1].messages[-1]
        assert not phone.leg.ended.done()
    assert (transfer.status, transfer.sip_status) == (status, code or None)
    assert child.ended_at is not None
    assert "Sales" in tool_result.content
    assert tool_result.ok is False


async def test_the_ring_timeout_is_no_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "Nobody is there.", ring_timeout_s=0.05) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.rings(early_media=True)
        await until(lambda: "Nobody is there." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert target.sent[-1] == -1
        assert harness.pump.bridges == []
    assert transfer.status == "no_answer"


async def test_an_answer_without_audio_is_a_failure_and_no_missing_answer(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "It did not work.", rtp_timeout_s=0.3) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.answers(mute=True)
        await until(lambda: "It did not work." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        assert target.sent[-1] == -1
    assert (transfer.status, transfer.sip_status) == ("failed", 200)
    assert [(each["outcome"], each["sipStatus"]) for each in transfer.attempts] == [("no_audio", 200)]
    assert child.ended_reason == "media_timeout"


async def test_a_target_that_hangs_up_before_it_has_audio_has_declined(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "It did not work.") as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.answers(mute=True)
        target.ends()
        await until(lambda: "It did not work." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
    assert transfer.status == "declined"


async def test_a_caller_who_hangs_up_while_the_target_rings_cancels_the_transfer(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        target.rings()
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert target.sent[-1] == -1
    assert parent.ended_reason == "customer_ended"
    assert transfer.status == "cancelled"


async def test_an_invite_that_cannot_be_sent_is_a_failed_transfer(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "It did not work.") as harness:
        harness.callees.address = None
        phone = await caller(harness)
        await until(lambda: "It did not work." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
    assert transfer.status == "failed"
    assert (child.status, child.ended_reason) == ("failed", "unreachable")


# ---- the tool and the API ----


async def test_a_made_up_target_is_refused_and_nothing_is_called(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("+4990066"), "I cannot do that.") as harness:
        await caller(harness)
        await until(lambda: "I cannot do that." in harness.tts.spoken)
        assert harness.callees.dial_count == 0
        assert "Sales" in harness.llm.prompts[-1].messages[-1].content


async def test_a_client_starts_a_transfer_after_the_agents_words(tmp_path: Path) -> None:
    async with call_service(tmp_path, "What can I do for you?") as harness:
        phone = await caller(harness)
        await until(lambda: harness.tts.spoken)
        call = await harness.stored_call(phone)
        stored = await harness.service.transfer(call.id, ORDER)
        assert (stored.status, stored.target_name, stored.requested_by) == ("initiated", "Sales", "api")
        with pytest.raises(Conflict):
            await harness.service.transfer(call.id, ORDER)
        target = await callee(harness)
        assert harness.tts.spoken == ["What can I do for you?", "I put you through."]
        target.answers()
        await until(lambda: harness.pump.bridges)
        with pytest.raises(Conflict):
            await harness.service.transfer(call.id, ORDER)


async def test_a_client_starts_a_transfer_before_anything_is_said(tmp_path: Path) -> None:
    async with call_service(tmp_path, "They are busy.") as harness:
        phone = await caller(harness, first_speaker="user")
        await until(lambda: 200 in phone.sent)
        call = await harness.stored_call(phone)
        await harness.database.until(
            lambda conn: calls.get_by_id(conn, call.id), lambda each: each is not None and each.started_at is not None
        )
        await harness.service.transfer(call.id, ORDER)
        target = await callee(harness)
        target.ends(486)
        await ended_transfer(harness, phone)
        await until(lambda: len(harness.tts.spoken) > 1)
        phone.hangs_up()
        ended = await harness.ended_call(phone)
    assert [(turn["turn"], turn["ended_by"]) for turn in ended.timeline] == [(0, None), (0, None)]


async def test_a_client_gets_the_reason_why_there_is_no_transfer(tmp_path: Path) -> None:
    limits = ConcurrencyLimits(organization=1)
    async with call_service(tmp_path, "Hello.", limits=limits) as harness:
        phone = await caller(harness)
        await until(lambda: harness.tts.spoken)
        call = await harness.stored_call(phone)
        with pytest.raises(Invalid) as unknown:
            await harness.service.transfer(call.id, TransferOrder(target="Nobody", requested_by="api"))
        with pytest.raises(LimitExceeded):
            await harness.service.transfer(call.id, ORDER)
        with pytest.raises(Conflict):
            await harness.service.transfer("00000000-0000-4000-8000-000000000000", ORDER)
        assert [problem.field for problem in unknown.value.problems] == ["target"]
        assert harness.callees.dial_count == 0


async def test_a_forbidden_destination_is_told_to_the_model_and_audited(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "That is not possible.") as harness:
        number, _ = await harness.create_number(**AGENT)
        await harness.database.write(lambda c: phone_numbers.replace(c, number, {"outbound_prefixes": ["+43"]}))
        harness.invite()
        await until(lambda: "That is not possible." in harness.tts.spoken)
        assert harness.callees.dial_count == 0


# ---- REFER ----


async def test_a_completed_refer_gives_the_call_back_to_the_pbx(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        params, sent = phone.dialog.refers[0]
        assert (params.user, params.referred_by) == ("+49301", "+4930100")
        sent.on_response(202)
        assert not phone.leg.ended.done()
        sent.on_notify(False, "message/sipfrag", b"SIP/2.0 180 Ringing\r\n")
        sent.on_notify(True, "message/sipfrag", b"SIP/2.0 200 OK\r\n")
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
    assert parent.ended_reason == "transferred"
    assert phone.sent[-1] == -1
    assert (transfer.status, transfer.sip_status) == ("completed", 200)
    assert [each["outcome"] for each in transfer.attempts] == ["completed"]


async def test_a_refused_refer_is_followed_by_a_child_call_with_auto(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        phone.dialog.refers[0][1].on_response(603)
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)
        transfer = await transfer_of(harness, phone)
    assert (transfer.attempts[0]["outcome"], transfer.attempts[0]["sipStatus"]) == ("refused", 603)


async def test_a_refused_refer_is_the_end_with_refer_alone(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "No.") as harness:
        phone = await caller(harness, "refer")
        await until(lambda: phone.dialog.refers)
        phone.dialog.refers[0][1].on_response(405)
        await until(lambda: "No." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
    assert (transfer.status, transfer.sip_status) == ("failed", 405)


async def test_the_targets_answer_in_a_notify_leads_back_to_the_agent(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), "The line is busy.") as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        phone.dialog.refers[0][1].on_notify(True, "message/sipfrag", b"SIP/2.0 486 Busy Here\r\n")
        await until(lambda: "The line is busy." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
        assert not phone.leg.ended.done()
    assert (transfer.status, transfer.sip_status) == ("busy", 486)


@pytest.mark.parametrize("notified", [True, False])
async def test_a_bye_of_the_pbx_that_has_taken_the_call_completes_the_transfer(tmp_path: Path, notified: bool) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        _, sent = phone.dialog.refers[0]
        sent.on_response(202)
        if notified:
            sent.on_notify(True, "message/sipfrag", b"SIP/2.0 200 OK\r\n")
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
    assert (parent.ended_reason, transfer.status) == ("transferred", "completed")


async def test_a_caller_who_hangs_up_before_the_refer_is_accepted_has_ended_the_call(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
    assert (parent.ended_reason, transfer.status) == ("customer_ended", "cancelled")


async def test_a_call_that_ends_before_its_transfer_begins_cancels_it(tmp_path: Path) -> None:
    async with call_service(tmp_path, "One moment please.") as harness:
        phone = await caller(harness)
        await until(lambda: harness.tts.spoken)
        call = await harness.stored_call(phone)
        await harness.service.transfer(call.id, ORDER)
        phone.hangs_up()
        await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
    assert transfer.status == "cancelled"


async def test_a_caller_who_hangs_up_while_the_invite_is_being_sent_leaves_no_leg_behind(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        harness.callees.gate.clear()
        phone = await caller(harness)
        await until(lambda: harness.callees.dial_count == 1)
        phone.hangs_up()
        await settle()
        harness.callees.gate.set()
        await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        (target,) = harness.callees.dialled
        assert target.sent[-1] == -1
    assert transfer.status == "cancelled"
    assert child.ended_at is not None


async def test_a_database_that_fails_ends_the_transfer_and_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageUnavailable("the disk is gone")

    monkeypatch.setattr(calls, "create_child", fail)
    async with call_service(tmp_path, tool_call("Sales"), "It did not work.") as harness:
        phone = await caller(harness)
        await until(lambda: "It did not work." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert harness.callees.dial_count == 0
        assert not phone.leg.ended.done()
    assert transfer.status == "failed"


async def test_a_peer_that_refuses_the_refer_and_hangs_up_gets_no_child_call(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness, "auto")
        await until(lambda: phone.dialog.refers)
        phone.dialog.refers[0][1].on_response(603)
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        assert harness.callees.dial_count == 0
    assert parent.ended_reason == "customer_ended"


async def test_an_error_of_the_conversation_after_the_answer_ends_the_target_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Conversation) -> None:
        raise RuntimeError("a fault")

    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone = await caller(harness)
        target = await callee(harness)
        monkeypatch.setattr(Conversation, "close", fail)
        target.answers()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        assert target.sent[-1] == -1
    assert (parent.ended_reason, transfer.status) == ("error", "failed")
    assert child.ended_at is not None


async def test_a_client_is_told_that_the_target_is_not_permitted(tmp_path: Path) -> None:
    async with call_service(tmp_path, "Hello.") as harness:
        number, _ = await harness.create_number(**AGENT)
        await harness.database.write(lambda c: phone_numbers.replace(c, number, {"outbound_prefixes": ["+43"]}))
        phone = harness.invite()
        await until(lambda: harness.tts.spoken)
        call = await harness.stored_call(phone)
        with pytest.raises(Invalid) as refused:
            await harness.service.transfer(call.id, ORDER)
    assert [problem.field for problem in refused.value.problems] == ["target"]


async def test_numbers_are_redacted_in_what_is_stored_of_a_transfer(tmp_path: Path) -> None:
    card = "4111 1111 1111 1111"
    async with call_service(tmp_path, tool_call("Sales", summary=f"pays with {card}")) as harness:
        number, _ = await harness.create_number(**AGENT)

        def redact(conn: sa.Connection) -> None:
            conn.execute(sa.update(tables.organizations).values(redact=True))
            phone_numbers.replace(conn, number, {"sip_transfer_method": "bridge"})

        await harness.database.write(redact)
        phone = harness.invite()
        await callee(harness)
        summary = (await transfer_of(harness, phone)).summary
    assert summary is not None
    assert summary.startswith("pays with")
    assert "4111" not in summary
