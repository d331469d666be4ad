"""Warm transfers: the target is briefed, decides by key or by word, and the caller is connected or comes back."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from calls.session.transfer.briefing import briefing
from calls.session.transfer.briefing.phrases import Decision, briefing_phrases, briefing_text, decision_in
from media.audio_port import Samples
from storage.calls import recordings, transfers
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee
from tests.calls.session.transfer.transfer_calls import (
    SALES,
    caller,
    child_of,
    ended_transfer,
    tool_call,
    transfer_of,
)
from tests.fakes.fake_leg import Callee, Phone
from tests.media.speech import silence, speech

WARM: dict[str, Any] = {"transfer_targets": [{**SALES, "mode": "warm_briefing"}]}
ATTENDED = [{**SALES, "mode": "attended"}]
SAID = speech("what is your address")
ORDER = tool_call("Sales", reason="prices", summary="wants ten chairs")


@pytest.fixture(scope="module")
def words() -> Samples:
    """Something that the target says; the recognizer is scripted."""
    return np.concatenate([silence(14_000), speech("what is your address"), silence(60_000)])


async def briefed(harness: CallServiceHarness, audio: Samples | None = None) -> tuple[Phone, Callee]:
    """A caller who waits, and a target who is being briefed."""
    phone = await caller(harness, **WARM)
    target = await callee(harness)
    target.audio = audio
    target.answers()
    await until(lambda: any("wants ten chairs" in text for text in harness.tts.spoken))
    return phone, target


async def accepted(harness: CallServiceHarness) -> Callee:
    """A target who was briefed and accepts."""
    target = await callee(harness)
    target.answers()
    await until(lambda: any("wants ten chairs" in text for text in harness.tts.spoken))
    target.driver.on_digit("1", "rfc4733")
    return target


async def test_the_target_hears_who_calls_and_why_before_the_caller_is_connected(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone, target = await briefed(harness)
        text = " ".join(harness.tts.spoken)
        assert phone.leg.facts.from_addr.user == "+49170"
        assert "plus four nine one seven zero" in text
        assert "prices" in text
        assert harness.pump.bridges == []
        assert (await transfer_of(harness, phone)).status == "briefing"
        target.driver.on_digit("1", "rfc4733")
        await until(lambda: harness.pump.bridges)
        assert harness.pump.bridges == [frozenset((phone.slot, target.slot))]
        target.ends()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
    assert (parent.ended_reason, transfer.status) == ("transferred", "completed")
    assert transfer.connected_at is not None
    assert child.recorded
    assert child.transcript[0]["content"].startswith("Hello, this is an automatic assistant")
    assert (child.transcript[1]["role"], child.transcript[1]["content"]) == ("user", "1")


@pytest.mark.parametrize("answer", ["yes please", "put them through"])
async def test_a_word_accepts(tmp_path: Path, words: Samples, answer: str) -> None:
    async with call_service(tmp_path, ORDER, hears=[answer]) as harness:
        await briefed(harness, words)
        await until(lambda: harness.pump.bridges)


async def test_a_refusal_with_a_reason_leads_back_to_the_agent(tmp_path: Path, words: Samples) -> None:
    hears = ["no i am in a meeting"]
    async with call_service(tmp_path, ORDER, "They are in a meeting.", hears=hears) as harness:
        phone, target = await briefed(harness, words)
        await until(lambda: "They are in a meeting." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert "in a meeting" in harness.llm.prompts[-1].messages[-1].content
        assert target.sent[-1] == -1
        assert harness.pump.bridges == []
        assert not phone.leg.ended.done()
    assert (transfer.status, transfer.decline_reason) == ("declined", "no i am in a meeting")


async def test_key_2_declines(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, "Not now.") as harness:
        phone, target = await briefed(harness)
        target.driver.on_digit("2", "rfc4733")
        await until(lambda: "Not now." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
    assert (transfer.status, transfer.decline_reason) == ("declined", None)


async def test_a_question_is_answered_by_the_model_from_the_call(tmp_path: Path, words: Samples) -> None:
    hears = ["who is it"]
    async with call_service(tmp_path, ORDER, "A customer who wants chairs. Will you take it?", hears=hears) as harness:
        _, target = await briefed(harness, words)
        await until(lambda: "A customer who wants chairs." in harness.tts.spoken)
        assert "wants ten chairs" in harness.llm.prompts[-1].system
        assert harness.pump.bridges == []
        target.driver.on_digit("1", "rfc4733")
        await until(lambda: harness.pump.bridges)


def said_at(*times_s: float) -> Samples:
    """Something that the target says at each of these times after the answer; the recognizer is scripted."""
    audio = np.concatenate([speech("what is your address"), silence(int(times_s[-1] * 1000) + 60_000)])
    for time_s in times_s:
        at = int(time_s * 8000)
        audio[at : at + len(SAID)] = SAID
    audio[: int(times_s[0] * 8000)] = 0
    return audio


async def test_a_yes_before_the_briefing_is_no_decision_and_the_briefing_follows(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, hears=["yes hello", "yes please"]) as harness:
        phone, _ = await briefed(harness, said_at(0.6, 16))
        await until(lambda: harness.pump.bridges)
        assert not harness.stt.texts, "the second yes has decided"
        assert not any("You are on the phone with Sales" in each.system for each in harness.llm.prompts)
        assert sum("wants ten chairs" in text for text in harness.tts.spoken) == 1, "it is said once"
        assert (await transfer_of(harness, phone)).status in ("briefing", "connected")


async def test_a_greeting_does_not_keep_an_announced_caller_waiting(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, hears=["hello this is sales"]) as harness:
        await caller(harness, transfer_targets=[{**SALES, "mode": "warm_announce"}])
        target = await callee(harness)
        target.audio = said_at(0.2)
        target.answers()
        answered_ms = harness.pump.now_ms
        await until(lambda: harness.pump.bridges)
        assert harness.pump.now_ms - answered_ms < 14_000, "the agent has not asked after 10 s of silence"
        assert "wants ten chairs" in " ".join(harness.tts.spoken)


async def test_a_target_that_hangs_up_undecided_has_declined(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, "Nobody took it.") as harness:
        phone, target = await briefed(harness)
        target.ends()
        await until(lambda: "Nobody took it." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
    assert transfer.status == "declined"


async def test_no_decision_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(briefing, "IDLE_MS", 1500)
    async with call_service(tmp_path, ORDER, "Nobody took it.") as harness:
        phone, target = await briefed(harness)
        await until(lambda: "Nobody took it." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert target.sent[-1] == -1
    assert transfer.status == "no_answer"


async def test_a_caller_who_hangs_up_during_the_briefing_ends_it(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone, target = await briefed(harness)
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        assert target.sent[-1] == -1
        child = await child_of(harness, transfer)
    assert (parent.ended_reason, transfer.status) == ("customer_ended", "cancelled")
    assert child.ended_at is not None


async def until_status(harness: CallServiceHarness, transfer_id: str, status: str) -> None:
    def read(conn: sa.Connection) -> str:
        found = transfers.get(conn, transfer_id)
        return "" if found is None else found.status

    await harness.database.until(read, lambda found: found == status)


async def test_the_status_follows_the_transfer(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, **WARM)
        target = await callee(harness)
        transfer = await transfer_of(harness, phone)
        for step, status in ((target.rings, "ringing"), (target.answers, "briefing")):
            step()
            await until_status(harness, transfer.id, status)


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("yes hello", None),
        ("no idea", None),
        ("okay", None),
        ("1", "accepted"),
        ("yes put them through", "accepted"),
        ("no i am busy", "declined"),
        ("no put him through later", "declined"),
        ("do not connect them", None),
    ],
)
def test_before_the_question_only_clear_words_decide(text: str, decision: Decision | None) -> None:
    assert decision_in(text, "en-US", asked=False) == decision


@pytest.mark.parametrize(
    ("text", "language", "decision"),
    [
        ("1", None, "accepted"),
        ("2", "de", "declined"),
        ("yes", "en-US", "accepted"),
        ("okay put him through", None, "accepted"),
        ("no problem", None, "accepted"),
        ("no", None, "declined"),
        ("no thanks not now", None, "declined"),
        ("i know him", None, None),
        ("yes but who is it", None, None),
        ("hello", None, None),
        ("ja gern", "de", "accepted"),
        ("nein ich habe keine zeit", "de", "declined"),
        ("kein problem", "de", "accepted"),
        ("wer ist das", "de", None),
        ("oui d'accord", "fr", "accepted"),
        ("non plus tard", "fr", "declined"),
        ("sí claro", "es", "accepted"),
        ("no gracias", "es", "declined"),
        ("sì", "it", "accepted"),
        ("non ora", "it", "declined"),
        ("ja graag", "nl", "accepted"),
        ("nee", "nl", "declined"),
        ("sim claro", "pt", "accepted"),
        ("não", "pt", "declined"),
        ("yes", "fi", "accepted"),
    ],
)
def test_decision(text: str, language: str | None, decision: Decision | None) -> None:
    assert decision_in(text, language) == decision


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "it", "nl", "pt"])
def test_the_briefing_is_complete_in_every_language_and_its_own_words_decide_nothing(language: str) -> None:
    text = str(briefing_text("+4930", "prices.", language))
    assert "+ 4 9 3 0" in text
    assert not re.search(r"\d|a n o n", str(briefing_text("anonymous", None, language, asks=False)))
    assert "prices." in text
    assert "1" in text
    assert "2" in text
    assert decision_in(briefing_phrases(language).about.format(about=""), language) is None


async def test_an_announced_caller_is_connected_after_the_announcement(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, transfer_targets=[{**SALES, "mode": "warm_announce"}])
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)
        spoken = " ".join(harness.tts.spoken)
        assert "wants ten chairs" in spoken
        assert "press 1" not in spoken
        assert harness.pump.sent_position(target.slot) == harness.pump.written_position(target.slot)
        assert (await transfer_of(harness, phone)).mode == "warm_announce"


@pytest.mark.parametrize("taken", [True, False])
async def test_an_attended_transfer_is_a_refer_with_replaces_or_a_bridge(tmp_path: Path, taken: bool) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, "auto", transfer_targets=ATTENDED)
        target = await accepted(harness)
        await until(lambda: phone.dialog.refers)
        params, sent = phone.dialog.refers[0]
        assert params.replaces == await target.dialog.dialog_id()
        if not taken:
            sent.on_response(501)
            await until(lambda: harness.pump.bridges)
            return
        sent.on_notify(True, "message/sipfrag", b"SIP/2.0 200 OK\r\n")
        parent = await harness.ended_call(phone)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        assert harness.pump.bridges == []
    assert (parent.ended_reason, transfer.status, child.ended_reason) == ("transferred", "completed", "transferred")


async def test_an_attended_transfer_of_a_number_with_bridge_sends_no_refer(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, "bridge", transfer_targets=ATTENDED)
        await accepted(harness)
        await until(lambda: harness.pump.bridges)
        assert phone.dialog.refers == []


async def test_a_caller_may_stay_while_the_pbx_has_not_taken_the_legs(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, "All right.", hears=["never mind"]) as harness:
        phone = await caller(harness, "auto", transfer_targets=ATTENDED)
        target = await accepted(harness)
        await until(lambda: phone.dialog.refers)
        harness.pump.speak(phone.slot, np.concatenate([speech("never mind"), silence(60_000)]))
        await until(lambda: "All right." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert target.sent[-1] == -1
        assert phone.dialog.ended_refers == [1]
        assert not phone.leg.ended.done()
    assert transfer.status == "cancelled"
    assert [each["outcome"] for each in transfer.attempts] == ["answered", "cancelled"]


async def test_an_agent_that_does_not_record_records_neither_leg(tmp_path: Path) -> None:
    announcement: dict[str, Any] = {"recording_enabled": False, "recording_announcement": "This call is recorded."}
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, **WARM, **announcement)
        target = await callee(harness)
        target.answers()
        await until(lambda: any("wants ten chairs" in text for text in harness.tts.spoken))
        target.driver.on_digit("1", "rfc4733")
        await until(lambda: harness.pump.bridges)
        target.ends()
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await ended_transfer(harness, phone))
        assert "This call is recorded." not in harness.tts.spoken
    assert (parent.status, parent.recorded, child.status, child.recorded) == ("completed", False, "completed", False)
    assert (parent.recording_absent_reason, child.recording_absent_reason) == ("disabled", "disabled")
    assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("*.wav")))


@pytest.mark.parametrize("record", [True, False])
async def test_the_recording_goes_on_unless_the_agent_says_otherwise(tmp_path: Path, record: bool) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        phone = await caller(harness, **WARM, record_after_transfer=record)
        target = await callee(harness)
        target.answers()
        await until(lambda: any("wants ten chairs" in text for text in harness.tts.spoken))
        target.driver.on_digit("1", "rfc4733")
        await until(lambda: harness.pump.bridges)
        connected_ms = harness.pump.now_ms
        await until(lambda: harness.pump.now_ms > connected_ms + 5000)
        target.ends()
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await ended_transfer(harness, phone))
    assert parent.recorded
    assert child.recorded
    frames = recordings.path_of(tmp_path, parent.id, parent.created_at).stat().st_size / 4 / 8
    assert (frames > connected_ms - 1_000_000 + 3000) is record
