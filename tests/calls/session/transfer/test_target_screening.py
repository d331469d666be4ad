"""Screening of the targets of bridged transfers: who is connected or briefed, and what machines lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from media.audio_port import Samples
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.calls.outbound_calls import callee
from tests.calls.session.transfer.transfer_calls import SALES, caller, child_of, ended_transfer, tool_call
from tests.fakes.fake_leg import Callee, Phone
from tests.media.speech import silence, speech

ORDER = tool_call("Sales", reason="prices", summary="wants ten chairs")
BACK = "They are not there."
VOICEMAIL = "please leave a message after the tone"
MENU = "please listen to the following options"
RATE = 8000


def said(*parts: Samples) -> Samples:
    """What a target sends from the answer on: the parts, then silence."""
    return np.concatenate([silence(400), *parts, silence(400_000)])


def ms(samples: Samples) -> int:
    """Its length."""
    return len(samples) * 1000 // RATE


async def answered(harness: CallServiceHarness, audio: Samples, mode: str, **agent: Any) -> tuple[Phone, Callee, float]:
    """A transfer whose target has answered with this audio; with the time of the answer, ms."""
    phone = await caller(harness, transfer_targets=[{**SALES, "mode": mode}], **agent)
    target = await callee(harness)
    target.audio = audio
    target.answers()
    return phone, target, harness.pump.now_ms


def audible_from_ms(harness: CallServiceHarness, target: Callee) -> float | None:
    """When the agent became audible, ms since the answer."""
    loud = np.flatnonzero(harness.pump.sent(target.slot))
    return None if len(loud) == 0 else float(loud[0]) * 1000 / RATE


async def test_a_cold_caller_is_connected_within_2_s_of_hello(tmp_path: Path) -> None:
    hello = speech("hello")
    async with call_service(tmp_path, ORDER, hears=["hello"]) as harness:
        phone, target, since_ms = await answered(harness, said(hello), "cold")
        await until(lambda: harness.pump.bridges)
        assert harness.pump.now_ms - since_ms < 400 + ms(hello) + 2000
        target.ends()
        await harness.ended_call(phone)
        child = await child_of(harness, await ended_transfer(harness, phone))
    assert [each["answer"] for each in child.timeline] == ["human"]


async def test_a_cold_caller_is_connected_with_a_silent_target_after_3_s(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER) as harness:
        _, _, since_ms = await answered(harness, said(), "cold")
        await until(lambda: harness.pump.bridges)
        assert 3000 <= harness.pump.now_ms - since_ms < 4000


async def test_a_cold_caller_is_connected_with_a_menu(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, hears=[MENU]) as harness:
        await answered(harness, said(speech(MENU)), "cold")
        await until(lambda: harness.pump.bridges)


@pytest.mark.parametrize("mode", ["cold", "warm_briefing", "warm_announce", "attended"])
async def test_a_mailbox_leads_back_to_the_agent(tmp_path: Path, mode: str) -> None:
    async with call_service(tmp_path, ORDER, BACK, hears=[VOICEMAIL]) as harness:
        phone, target, _ = await answered(harness, said(speech(VOICEMAIL)), mode)
        await until(lambda: BACK in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
        assert "a mailbox answered" in harness.llm.prompts[-1].messages[-1].content
        assert target.sent[-1] == -1
        assert harness.pump.bridges == []
        assert not phone.leg.ended.done()
    assert (transfer.status, child.status, child.ended_reason) == ("voicemail", "completed", "voicemail")
    assert [each["answer"] for each in child.timeline if "answer" in each] == ["voicemail"]
    assert not any(item["role"] == "assistant" for item in child.transcript), "the agent says nothing to a mailbox"


async def test_a_fax_leads_back_to_the_agent(tmp_path: Path) -> None:
    ced = np.rint(8000 * np.sin(2 * np.pi * 2100 * np.arange(3 * RATE) / RATE)).astype(np.int16)
    async with call_service(tmp_path, ORDER, BACK) as harness:
        phone, _, _ = await answered(harness, said(ced), "cold")
        await until(lambda: BACK in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert "a fax machine answered" in harness.llm.prompts[-1].messages[-1].content
    assert transfer.status == "failed"


@pytest.mark.parametrize("mode", ["warm_briefing", "warm_announce", "attended"])
async def test_a_person_is_briefed_within_2_s_of_hello(tmp_path: Path, mode: str) -> None:
    hello = speech("hello")
    async with call_service(tmp_path, ORDER, hears=["hello"]) as harness:
        _, target, _ = await answered(harness, said(hello), mode)
        await until(lambda: audible_from_ms(harness, target) is not None)
        began_ms = audible_from_ms(harness, target)
    assert began_ms is not None
    assert 400 + ms(hello) < began_ms < 400 + ms(hello) + 2000


async def test_a_menu_is_waited_out_and_the_person_behind_it_is_briefed(tmp_path: Path) -> None:
    audio = said(speech(MENU), silence(10_000), speech("hello"))
    async with call_service(tmp_path, ORDER, hears=[MENU, "hello"]) as harness:
        _, target, _ = await answered(harness, audio, "warm_briefing")
        await until(lambda: audible_from_ms(harness, target) is not None)
        began_ms = audible_from_ms(harness, target)
    assert began_ms is not None
    assert began_ms > 10_000


async def test_a_menu_without_a_person_is_no_answer_after_60_s(tmp_path: Path) -> None:
    async with call_service(tmp_path, ORDER, BACK, hears=[MENU]) as harness:
        phone, _, since_ms = await answered(harness, said(speech(MENU)), "warm_briefing")
        await until(lambda: BACK in harness.tts.spoken)
        assert harness.pump.now_ms - since_ms >= 60_000
        transfer = await ended_transfer(harness, phone)
        child = await child_of(harness, transfer)
    assert transfer.status == "no_answer"
    assert not any(item["role"] == "assistant" for item in child.transcript), "the agent says nothing to a menu"
