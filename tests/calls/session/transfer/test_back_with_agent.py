"""A caller who is back from a transfer is told what happened, also by an agent whose language model fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from calls.conversation import tool_loop
from calls.session.transfer.call_transfers import CallTransfers
from calls.session.transfer.execution import TransferExecution
from config.errors import ModelError
from models.protocols import LlmOutput, ToolCall
from storage.calls.transfers import Transfer, TransferOrder
from tests.calls.call_service_harness import call_service, until
from tests.calls.outbound_calls import callee
from tests.calls.session.transfer.transfer_calls import SALES, caller, ended_transfer, tool_call, transfer_of
from tests.media.speech import silence, speech

HOLD_SENTENCE = "I put you through now and you hear music until somebody takes your call."
LONG_HOLD_MESSAGE = " ".join([HOLD_SENTENCE] * 6)
SUPPORT = {"name": "Support", "description": "Help", "number": "+49302", "mode": "cold"}
BUSY = "Es tut mir leid, bei Sales ist besetzt."
Answer = str | Sequence[LlmOutput] | Exception


@pytest.mark.parametrize("answer", [ModelError("broken"), "", []])
async def test_a_model_that_fails_or_says_nothing_is_replaced_by_a_sentence_in_the_language_of_the_call(
    tmp_path: Path, answer: Answer
) -> None:
    async with call_service(tmp_path, tool_call("Sales"), answer) as harness:
        phone = await caller(harness, language_hint="de-DE")
        (await callee(harness)).ends(486)
        await until(lambda: BUSY in harness.tts.spoken)
        assert "Wie kann ich Ihnen sonst helfen?" in harness.tts.spoken
        assert not phone.leg.ended.done()


async def test_a_model_without_a_word_in_time_is_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_loop, "FALLBACK_AFTER_S", 0.1)
    async with call_service(tmp_path, tool_call("Sales"), "Too late.") as harness:
        phone = await caller(harness, language_hint="de")
        target = await callee(harness)
        harness.llm.gate.clear()
        target.ends(486)
        await until(lambda: BUSY in harness.tts.spoken)
        harness.llm.gate.set()
        await ended_transfer(harness, phone)
        assert "Too late." not in harness.tts.spoken


async def test_a_model_that_hangs_up_without_a_word_tells_the_caller_first(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), [ToolCall("2", "end_call", "{}")]) as harness:
        phone = await caller(harness, language_hint="de")
        (await callee(harness)).ends(486)
        parent = await harness.ended_call(phone)
        assert BUSY in harness.tts.spoken
    assert parent.ended_reason == "agent_ended"


async def test_the_next_target_is_called_after_the_caller_was_told(tmp_path: Path) -> None:
    again = [ToolCall("2", "transfer_call", '{"target": "Support"}')]
    async with call_service(tmp_path, tool_call("Sales"), again) as harness:
        phone = await caller(harness, transfer_targets=[SALES, SUPPORT])
        (await callee(harness)).ends(486)
        second = await callee(harness, 1)
        assert second.uri.startswith("sip:+49302@")
        told = harness.tts.spoken.index("I am sorry, the line of Sales is busy.")
        assert harness.tts.spoken.index("I put you through.", told) > told
        result = harness.llm.prompts[-1].messages[-1]
        assert "transfer the call to Support instead" in result.content
        second.answers()
        await until(lambda: harness.pump.bridges)
        assert (await transfer_of(harness, phone)).target_name == "Support"


async def test_the_same_target_is_not_tried_again_before_the_caller_speaks(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), tool_call("Sales"), "They are busy.") as harness:
        await caller(harness)
        (await callee(harness)).ends(486)
        await until(lambda: "They are busy." in harness.tts.spoken)
        assert harness.callees.dial_count == 1
        assert "was not tried again" in harness.llm.prompts[-1].messages[-1].content


@pytest.mark.parametrize(
    ("words", "stays"), [("never mind please cancel the transfer", True), ("i want to cancel my contract", False)]
)
async def test_never_mind_that_outlasts_the_hold_message_cancels_the_transfer_and_other_words_do_not(
    tmp_path: Path, words: str, stays: bool
) -> None:
    async with call_service(tmp_path, "Hello.", "All right.", hears=[words]) as harness:
        phone = await caller(harness)
        await until(lambda: "Hello." in harness.tts.spoken)
        parent = await harness.stored_call(phone)
        await harness.service.transfer(parent.id, TransferOrder(target="Sales", requested_by="api"))
        await until(lambda: "I put you through." in harness.tts.spoken)
        harness.pump.speak(phone.slot, np.concatenate([speech(words), silence(60_000)]))
        if stays:
            await until(lambda: "All right." in harness.tts.spoken)
            assert (await ended_transfer(harness, phone)).status == "cancelled"
            assert not phone.leg.ended.done()
            return
        await until(lambda: not harness.stt.texts)
        target = await callee(harness)
        target.answers()
        await until(lambda: harness.pump.bridges)


async def test_words_over_the_hold_message_of_the_agents_own_transfer_get_a_response_instead(tmp_path: Path) -> None:
    answers = (tool_call("Sales"), "Then I do not.")
    async with call_service(tmp_path, *answers, hears=["no i want to talk to you"]) as harness:
        phone = await caller(harness, hold_message=LONG_HOLD_MESSAGE)
        await until(lambda: HOLD_SENTENCE in harness.tts.spoken)
        await until(lambda: harness.pump.sent(phone.slot).any())
        harness.pump.speak(phone.slot, np.concatenate([speech("no i want to talk to you"), silence(60_000)]))
        await until(lambda: harness.stt.streams[0].fed)
        harness.stt.streams[0].on_words("no i want to talk to you")
        await until(lambda: "Then I do not." in harness.tts.spoken)
        assert harness.callees.dial_count == 0


async def test_never_mind_while_a_transfer_is_authorized_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = CallTransfers.accept

    async def accept_and_cancel(transfers: CallTransfers, order: TransferOrder) -> Transfer:
        transfers.cancel()
        return await accept(transfers, order)

    monkeypatch.setattr(CallTransfers, "accept", accept_and_cancel)
    async with call_service(tmp_path, tool_call("Sales"), "All right.") as harness:
        phone = await caller(harness)
        await until(lambda: "All right." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert (transfer.status, transfer.attempts, harness.callees.dial_count) == ("cancelled", [], 0)


async def test_a_fault_in_a_transfer_leaves_the_caller_with_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: TransferExecution) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(TransferExecution, "run", fail)
    async with call_service(tmp_path, tool_call("Sales"), "It did not work.") as harness:
        phone = await caller(harness)
        await until(lambda: "It did not work." in harness.tts.spoken)
        transfer = await ended_transfer(harness, phone)
        assert not phone.leg.ended.done()
    assert transfer.status == "failed"
