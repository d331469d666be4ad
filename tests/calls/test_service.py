"""Inbound calls from the first ringing to the stored end."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from calls.admission import Ceilings
from config.errors import ModelError
from media.recording import HEADER_BYTES
from models.flite_tts import FliteTextToSpeech
from models.protocols import EndCall, TextDelta, VoiceSettings
from sipcore.leg import Media
from storage import calls, recordings, webhook_deliveries
from storage.database import StorageTrouble
from tests.calls.house import GREETS, House, open_house, until
from tests.fakes_calls import RATE, WORD_MS
from tests.fakes_legs import Phone

WEBHOOK: dict[str, Any] = {"post_call_webhook_url": "https://receiver.test/hook"}


async def deliveries(house: House) -> list[webhook_deliveries.Delivery]:
    async with house.database.read() as conn:
        return await webhook_deliveries.due(conn, calls.utc_now())


async def refused(house: House, phone: Phone) -> list[int]:
    await until(phone.leg.ended.done)
    return phone.sent


async def eventually(house: House, condition: Callable[[calls.Call], bool]) -> None:
    """Wait until a stored call is as it should be; nothing tells of that but the database."""
    async with asyncio.timeout(10):
        while not any(condition(call) for call in await house.all_calls()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


# ---- admission ----


async def test_an_unknown_number_from_a_known_trunk_is_404_and_leaves_no_call(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        assert await refused(house, house.rings(dials="+4930999")) == [404]
        assert await house.all_calls() == []


async def test_a_number_of_another_trunk_is_unknown(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        assert await refused(house, house.rings(source="192.0.2.99")) == [404]


async def test_a_number_without_an_agent_is_480(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(assigned=False)
        assert await refused(house, house.rings()) == [480]


async def test_an_inactive_agent_is_480(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(is_active=False)
        assert await refused(house, house.rings()) == [480]


@pytest.mark.parametrize(
    ("dials", "to"), [("+4930100", ""), ("4930100", ""), ("trunk-user", "+4930100"), ("", "4930100")]
)
async def test_the_dialled_number_is_the_request_s_user_or_to_s_with_or_without_plus(
    tmp_path: Path, dials: str, to: str
) -> None:
    async with open_house(tmp_path) as house:
        number, _ = await house.number()
        phone = house.rings(dials=dials, to=to)
        await until(lambda: 200 in phone.sent)
        assert (await house.stored(phone)).phone_number_id == number.id


async def test_an_organization_at_its_ceiling_is_busy_and_others_are_not(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(max_calls=1)
        await house.number("+4930200")
        first = house.rings()
        await until(lambda: 200 in first.sent)
        assert await refused(house, house.rings()) == [486]
        other = house.rings(dials="+4930200")
        await until(lambda: 200 in other.sent)
        first.hangs_up()
        await house.ends(first)
        again = house.rings()
        await until(lambda: 200 in again.sent)


async def test_calls_that_come_at_once_do_not_pass_the_ceiling_together(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=Ceilings(organization=2)) as house:
        await house.number()
        phones = [house.rings() for _ in range(6)]
        await until(lambda: sum(bool(phone.sent) and phone.sent[-1] >= 200 for phone in phones) == 6)
        assert sorted(phone.sent[-1] for phone in phones) == [200, 200, 486, 486, 486, 486]


async def test_a_full_process_is_503_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with open_house(tmp_path, ceilings=Ceilings(process=1)) as house:
        await house.number()
        first = house.rings()
        await until(lambda: 200 in first.sent)
        second = house.rings()
        assert await refused(house, second) == [503]
        assert int(second.dialog.headers["Retry-After"]) > 0


async def test_a_database_in_trouble_is_503_and_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        first = house.rings()
        await until(lambda: 200 in first.sent)
        with monkeypatch.context() as broken:

            async def full(*_: object, **__: object) -> None:
                raise StorageTrouble("the disk is full")

            broken.setattr(calls, "create_inbound", full)
            assert await refused(house, house.rings()) == [503]
        assert not first.leg.ended.done()


# ---- the whole call ----


async def test_a_call_is_stored_from_ringing_to_its_end(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, agent = await house.number(**GREETS)
        phone = house.rings(number="+4917012")
        await until(lambda: 200 in phone.sent)
        live = await house.stored(phone)
        assert live.status in ("ringing", "in_progress")
        await until(lambda: house.voice.spoken)
        await until(lambda: phone.leg.stats() and house.pump.sent(phone.leg._media.result().slot).any())
        phone.hangs_up()
        call = await house.ends(phone)
    assert phone.sent == [180, 200]
    assert (call.status, call.ended_reason, call.direction) == ("completed", "customer_ended", "inbound")
    assert (call.agent_id, call.phone_number_id) == (agent.id, number.id)
    assert (call.customer_number, call.provider) == ("+4917012", "sip")
    assert call.started_at is not None
    assert call.ended_at is not None
    assert call.created_at <= call.started_at <= call.ended_at
    assert (call.context_variables, call.metadata, call.analysis) == ({}, {}, None)


async def test_a_caller_is_heard_answered_and_recorded(tmp_path: Path) -> None:
    flite = await asyncio.to_thread(FliteTextToSpeech)
    spoken = await flite.synthesize(
        "Hello, I would like to know your opening hours please.", VoiceSettings(flite.voices()[0], 1.0, 0.5, 8000)
    )
    answer = [TextDelta("We open at nine. Good bye."), EndCall()]
    async with open_house(tmp_path, answer, hears=["what are your opening hours"]) as house:
        await house.number(turn_endpoint_delay=600)
        phone = house.rings(caller=spoken.samples)
        call = await house.ends(phone)
        (ear,) = house.ears.streams
        assert ear.closed
        assert len(ear.turns) == 1
        assert ear.turns[0] > len(spoken.samples) * 3 // 4
        path = recordings.path_of(tmp_path, call.id, call.created_at)
        assert path.stat().st_size > HEADER_BYTES + 4 * len(spoken.samples)
        assert house.pump.released == [phone.leg._media.result().slot]
    assert (call.status, call.ended_reason, call.turn_count) == ("completed", "agent_ended", 1)
    assert [(item["role"], item["content"]) for item in call.transcript] == [
        ("user", "what are your opening hours"),
        ("assistant", "We open at nine. Good bye."),
    ]
    assert call.recorded
    assert phone.sent == [180, 200, -1]


async def test_the_talk_so_far_is_stored_while_the_call_lives(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(**GREETS)
        phone = house.rings()
        await until(lambda: 200 in phone.sent)
        await eventually(house, lambda call: bool(call.transcript))
        call = await house.stored(phone)
        assert (call.status, call.transcript[0]["content"]) == ("in_progress", "Welcome caller.")


async def test_placeholders_know_the_call_though_no_variables_were_given(tmp_path: Path) -> None:
    greeting = "Hello {{customer_number}} on {{phone_number}} {{nobody}}."
    async with open_house(tmp_path) as house:
        await house.number(**{**GREETS, "agent_greeting": greeting})
        with capture_logs() as logs:
            phone = house.rings(number="+4917012")
            await until(lambda: house.voice.spoken)
        assert house.voice.spoken == ["Hello +4917012 on +4930100 ."]
        assert [entry["names"] for entry in logs if entry["event"] == "context.missing"] == [["nobody"]]
        assert (await house.stored(phone)).context_variables == {}


async def test_a_greeting_is_not_said_by_an_agent_that_listens_first(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(**{**GREETS, "first_speaker": "user"})
        phone = house.rings()
        await until(lambda: 200 in phone.sent)
        phone.hangs_up()
        await house.ends(phone)
        assert house.voice.spoken == []


async def test_what_a_caller_did_not_wait_for_is_not_in_the_transcript(tmp_path: Path) -> None:
    greeting = " ".join(["word"] * 400) + "."
    async with open_house(tmp_path) as house:
        await house.number(**{**GREETS, "agent_greeting": greeting})
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        slot = phone.leg._media.result().slot
        await until(lambda: house.pump.taken(slot) >= 2 * RATE * WORD_MS // 1000)
        phone.hangs_up()
        call = await house.ends(phone)
    (item,) = call.transcript
    assert 2 <= len(item["content"].split()) < 400


async def test_digits_reach_the_conversation(tmp_path: Path) -> None:
    async with open_house(tmp_path, [TextDelta("You chose four two."), EndCall()]) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        for digit in "42#":
            phone.leg._has_digit(digit)
        call = await house.ends(phone)
    assert call.transcript[0] == {"role": "user", "content": "42"}
    assert call.turn_count == 1


# ---- why calls end ----


async def test_a_caller_who_cancels_while_it_rings_was_not_answered(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(**WEBHOOK)
        phone = Phone(house.pump)
        phone.dialog.mute = True
        house.service.incoming(phone.leg)
        await until(lambda: 200 in phone.sent)
        phone.hangs_up(487)
        call = await house.ends(phone)
        assert (call.status, call.ended_reason) == ("no_answer", "customer_ended")
        assert (call.started_at, call.duration_seconds, call.recorded) == (None, 0, False)
        assert len(await deliveries(house)) == 1


async def test_hangup_by_api_before_the_answer_is_no_answer(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = Phone(house.pump)
        phone.dialog.mute = True
        house.service.incoming(phone.leg)
        await until(lambda: 200 in phone.sent)
        assert await house.service.hangup((await house.stored(phone)).id)
        call = await house.stored(phone)
        assert (call.status, call.ended_reason) == ("no_answer", "api_hangup")
        assert phone.sent[-1] == -1


async def test_hangup_by_api_ends_a_live_call_and_returns_when_that_is_stored(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        call_id = (await house.stored(phone)).id
        assert await house.service.hangup(call_id)
        call = await house.stored(phone)
        assert (call.status, call.ended_reason) == ("completed", "api_hangup")
        assert phone.sent == [180, 200, -1]
        assert not await house.service.hangup(call_id)


async def test_a_call_ends_at_its_longest_duration(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(max_call_duration_seconds=1)
        phone = house.rings()
        call = await house.ends(phone)
    assert (call.status, call.ended_reason, call.duration_seconds) == ("completed", "max_duration", 1)


async def test_a_caller_who_vanished_without_bye_is_a_media_timeout(tmp_path: Path) -> None:
    async with open_house(tmp_path, rtp_timeout_s=0.05) as house:
        await house.number()
        house.pump.last_packet_ns = time.monotonic_ns()
        phone = house.rings()
        call = await house.ends(phone)
    assert (call.status, call.ended_reason) == ("completed", "media_timeout")
    assert phone.sent == [180, 200, -1]


async def test_a_call_on_hold_is_not_timed_out(tmp_path: Path) -> None:
    async with open_house(tmp_path, rtp_timeout_s=0.05) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        phone.leg.on_hold = True
        house.pump.last_packet_ns = time.monotonic_ns()
        started = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - started > 0.3)
        assert not phone.leg.ended.done()
        phone.leg.on_hold = False
        call = await house.ends(phone)
    assert call.ended_reason == "media_timeout"


async def test_a_leg_that_breaks_after_the_answer_is_unreachable(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up(503)
        call = await house.ends(phone)
    assert (call.status, call.ended_reason) == ("completed", "unreachable")


async def test_a_model_that_raises_ends_its_call_alone_and_is_logged_once(tmp_path: Path) -> None:
    async with open_house(tmp_path, ModelError("out of memory")) as house:
        await house.number()
        await house.number("+4930200", first_speaker="agent")
        well = house.rings()
        await until(lambda: well.leg.on_digit is not None)
        with capture_logs() as logs:
            call = await house.ends(house.rings(dials="+4930200"))
        assert (call.status, call.ended_reason) == ("completed", "error")
        errors = [entry for entry in logs if entry["log_level"] == "error"]
        assert [(entry["event"], entry["call_id"]) for entry in errors] == [("call.failed", call.id)]
        assert "out of memory" in errors[0]["error"]
        assert not well.leg.ended.done()
        well.hangs_up()
        assert (await house.ends(well)).ended_reason == "customer_ended"


async def test_a_leg_that_raises_before_the_answer_fails_its_call_alone(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = Phone(house.pump)
        phone.dialog.error = OSError("no transport")
        house.service.incoming(phone.leg)
        await eventually(house, lambda call: call.ended_at is not None)
        call = await house.stored(phone)
    assert (call.status, call.ended_reason) == ("failed", "error")


async def test_an_ear_that_cannot_be_opened_ends_its_call_and_gives_its_slot_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        await house.number()

        def fails(**_: Any) -> None:
            raise ModelError("no memory for an ear")

        monkeypatch.setattr(house.ears, "open", fails)
        phone = house.rings()
        call = await house.ends(phone)
        assert (call.status, call.ended_reason) == ("completed", "error")
        assert phone.sent == [180, 200, -1]
        assert len(house.pump.released) == 1


async def test_sound_that_comes_after_the_call_was_given_up_gives_its_slot_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = Phone(house.pump)
        phone.dialog.mute = True
        slot = house.pump.open(8000)
        bye = phone.dialog.bye

        async def crosses_with_the_sound(code: int) -> None:
            phone.leg._has_media(Media(slot, 8000, "PCMU"), False)
            await bye(code)

        monkeypatch.setattr(phone.dialog, "bye", crosses_with_the_sound)
        house.service.incoming(phone.leg)
        await until(lambda: 200 in phone.sent)
        await house.service.hangup((await house.stored(phone)).id)
        assert house.pump.released == [slot]


async def test_a_drain_lets_calls_finish_and_takes_no_new_ones(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        first = house.rings()
        await until(lambda: first.leg.on_digit is not None)
        drain = asyncio.ensure_future(house.service.drain(60))
        await until(lambda: house.service.draining)
        late = house.rings()
        assert await refused(house, late) == [503]
        assert "Retry-After" in late.dialog.headers
        assert not drain.done()
        first.hangs_up()
        await drain
        assert (await house.stored(first)).ended_reason == "customer_ended"


async def test_calls_that_outlast_the_drain_end_with_server_shutdown(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        await house.service.drain(0.01)
        call = await house.stored(phone)
    assert (call.status, call.ended_reason) == ("completed", "server_shutdown")
    assert phone.sent[-1] == -1


async def test_nothing_keeps_a_call_in_memory_after_its_end(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number(max_call_duration_seconds=3600)
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        call = weakref.ref(house.service.live()[0])
        phone.hangs_up()
        await house.ends(phone)
        house.ears.streams.clear()
        gc.collect()
        assert call() is None


# ---- what follows ----


async def test_the_webhook_tells_the_stored_call(tmp_path: Path) -> None:
    async with open_house(tmp_path, [TextDelta("Bye."), EndCall()]) as house:
        number, agent = await house.number(first_speaker="agent", post_call_webhook_secret_encrypted="token", **WEBHOOK)
        call = await house.ends(house.rings(number="+4917012"))
        (delivery,) = await deliveries(house)
        assert house.woken == [None]
    assert (delivery.call_id, delivery.url, delivery.secret_encrypted) == (
        call.id,
        WEBHOOK["post_call_webhook_url"],
        "token",
    )
    payload = json.loads(delivery.body)
    recording_url, transcript_url = payload.pop("recordingUrl"), payload.pop("transcriptUrl")
    assert payload.pop("startedAt")[-5] == "." and payload.pop("endedAt")[-1] == "Z"
    assert payload == {
        "event": "call.completed",
        "callId": call.id,
        "organizationId": number.organization_id,
        "agentId": agent.id,
        "phoneNumberId": number.id,
        "direction": "inbound",
        "status": "completed",
        "customerNumber": "+4917012",
        "durationSeconds": call.duration_seconds,
        "summary": None,
        "extractedData": {},
        "contextVariables": {},
        "metadata": {},
    }
    assert recording_url.startswith(f"https://here.test/v1/calls/{call.id}/recording?")
    assert transcript_url.startswith(f"https://here.test/v1/calls/{call.id}/transcript?")


async def test_an_agent_without_a_webhook_sends_none(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        phone.hangs_up()
        await house.ends(phone)
        assert await deliveries(house) == []


async def test_a_call_ends_with_its_webhook_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(tmp_path) as house:
        await house.number(**WEBHOOK)
        phone = house.rings()
        await until(lambda: phone.leg.on_digit is not None)
        await until(lambda: house.service.live_calls == 1)
        real = webhook_deliveries.add
        tries = 0

        async def fails_once(*arguments: Any, **named: Any) -> webhook_deliveries.Delivery:
            nonlocal tries
            tries += 1
            added = await real(*arguments, **named)
            if tries == 1:
                raise StorageTrouble("the disk is full")
            return added

        monkeypatch.setattr(webhook_deliveries, "add", fails_once)
        monkeypatch.setattr("calls.after_call.STORE_AGAIN_S", (0.2,))
        phone.hangs_up()
        await until(lambda: tries == 1)
        assert (await house.stored(phone)).ended_at is None
        assert await deliveries(house) == []
        call = await house.ends(phone)
        assert call.ended_reason == "customer_ended"
        assert len(await deliveries(house)) == 1


async def test_the_time_of_the_answer_is_kept_though_it_could_not_be_stored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        await house.number()
        real, tries = calls.answered, []

        async def fails_once(*arguments: Any) -> bool:
            tries.append(arguments)
            if len(tries) == 1:
                raise StorageTrouble("the disk is full")
            return await real(*arguments)

        monkeypatch.setattr(calls, "answered", fails_once)
        phone = house.rings()
        await until(lambda: len(tries) == 1)
        assert not phone.leg.ended.done()
        phone.hangs_up()
        call = await house.ends(phone)
    assert (call.status, call.ended_reason) == ("completed", "customer_ended")
    assert call.started_at is not None


async def test_a_call_that_a_dead_process_left_is_closed_at_the_next_start_and_told_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        number, agent = await house.number(**WEBHOOK)
        async with house.database.write() as conn:
            made = [
                await calls.create_inbound(
                    conn,
                    organization_id=number.organization_id,
                    agent_id=agent.id,
                    phone_number_id=number.id,
                    provider="sip",
                    call_sid=f"left-{each}",
                    customer_number="+1",
                )
                for each in range(2)
            ]
            await calls.answered(conn, made[0].id, calls.utc_now())
        assert await house.service.recover() == 2
        assert await house.service.recover() == 0
        stored = {call.id: call for call in await house.all_calls()}
        told = {json.loads(each.body)["callId"] for each in await deliveries(house)}
    assert [stored[each.id].status for each in made] == ["completed", "failed"]
    assert {stored[each.id].ended_reason for each in made} == {"server_restart"}
    assert told == {each.id for each in made}
