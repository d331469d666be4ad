"""Conversations in which the responder transfers the caller, by the product's transfer tool and with its results."""

from __future__ import annotations

import asyncio
import json

import pytest

from calls.session.transfer.report import report_result
from calls.session.transfer.result import TransferResult
from calls.tools.transfer_tool import TransferTool
from models.protocols import ChatMessage, ChatPrompt, TextDelta, ToolCall
from models.rule_based.responder import ExtractiveResponder
from models.rule_based.transfer_requests import MORE_QUESTION, NOT_POSSIBLE, STAYS
from storage.calls.transfers import TransferStatus
from storage.tables.agent_fields import TransferTarget

PROMPT = "You answer for Harbour Shop. We take cards and bank transfers. Our opening hours are nine to five."
ASKED = "Who would you like to speak to: Sales or Harbour master?"


def target(name: str, description: str) -> TransferTarget:
    return {"name": name, "description": description, "number": "200", "mode": "cold"}


ONE = TransferTool([target("Front desk", "Everything")])
TWO = TransferTool([target("Sales", "Prices and orders"), target("Harbour master", "Berths and complaints")])


def respond(tool: TransferTool | None, *messages: ChatMessage) -> str | dict[str, str]:
    """The agent's text, or the arguments of its transfer, which must be valid."""
    tools = [] if tool is None else [tool.definition]

    async def parts() -> list[TextDelta | ToolCall]:
        prompt = ChatPrompt("call", PROMPT, messages, tools=tools)
        return [part async for part in ExtractiveResponder().respond(prompt)]

    found = asyncio.run(parts())
    if not isinstance(found[-1], ToolCall):
        return "".join(part.text for part in found if isinstance(part, TextDelta))
    assert (len(found), found[-1].name) == (1, "transfer_call"), "the hold message is said by the conversation"
    arguments: dict[str, str] = json.loads(found[-1].arguments)
    assert tool is not None
    assert tool.order(arguments) is not None
    return arguments


def said(text: str) -> ChatMessage:
    return ChatMessage("user", text)


@pytest.mark.parametrize(
    "request_",
    [
        "can i speak to a person please",
        "I'd like to talk to somebody.",
        "i want to speak with a real human",
        "give me an operator",
        "please put me through",
        "could you transfer me",
        "i need a human",
        "connect me to the front desk",
        "can i speak to the front desk",
    ],
)
def test_a_request_for_a_person_is_a_transfer_to_the_only_target(request_: str) -> None:
    assert respond(ONE, said(request_)) == {"target": "Front desk"}


@pytest.mark.parametrize(
    "text",
    [
        "i don't want to talk to a person",
        "no need to transfer me",
        "do you take bank transfers",
        "what are your opening hours",
        "are you a person",
        "who am i speaking to",
        "is there a person in the shop",
    ],
)
def test_other_words_are_no_transfer(text: str) -> None:
    assert isinstance(respond(ONE, said(text)), str)


def test_without_targets_there_is_no_transfer() -> None:
    assert isinstance(respond(None, said("can i speak to a person")), str)


def test_the_target_is_chosen_by_its_name_or_its_description() -> None:
    assert respond(TWO, said("put me through to sales please")) == {"target": "Sales"}
    assert respond(TWO, said("i want to talk to the harbour master")) == {"target": "Harbour master"}
    chosen = respond(TWO, said("can i talk to someone about a complaint"))
    assert chosen == {"target": "Harbour master", "reason": "a complaint"}


def test_among_several_targets_the_caller_is_asked() -> None:
    request = said("can i speak to a person")
    assert respond(TWO, request) == ASKED
    asked = ChatMessage("assistant", ASKED)
    assert respond(TWO, request, asked, said("sales please")) == {"target": "Sales"}
    assert isinstance(respond(TWO, request, asked, said("what are your opening hours")), str)
    assert isinstance(respond(TWO, said("do you have sales")), str), "a name alone is no request"


def test_the_target_is_told_why_in_the_callers_words() -> None:
    earlier = (said("hello"), ChatMessage("assistant", "Hello!"), said("How much does a lamp cost?"))
    request = said("Can I talk to a person about my bill, please?")
    assert respond(ONE, *earlier, ChatMessage("assistant", "I do not know."), request) == {
        "target": "Front desk",
        "reason": "their bill",
        "summary": "They said before: How much does a lamp cost?",
    }
    assert respond(ONE, said("transfer me because i'm late")) == {"target": "Front desk", "reason": "they are late"}


@pytest.mark.parametrize(
    ("status", "spoken"),
    [
        ("declined", f"I am sorry, I could not put you through to Front desk: the call was declined. {MORE_QUESTION}"),
        ("busy", f"I am sorry, I could not put you through to Front desk: the line is busy. {MORE_QUESTION}"),
        ("cancelled", STAYS),
    ],
)
def test_the_caller_is_told_what_came_of_it_and_not_what_the_target_said(status: TransferStatus, spoken: str) -> None:
    result = report_result(TransferResult(status, decline_reason="not again"), "Front desk", ["Sales"], "en").for_model
    assert respond_to_result(result) == spoken


def test_the_cause_of_a_refused_transfer_is_not_told_to_the_caller() -> None:
    refused = "The transfer to Front desk was not made: Calls from this number may not go there."
    assert respond_to_result(refused) == f"{NOT_POSSIBLE} {MORE_QUESTION}"


def respond_to_result(result: str) -> str | dict[str, str]:
    call = ToolCall("1", "transfer_call", '{"target": "Front desk"}')
    return respond(
        ONE,
        said("can i speak to a person"),
        ChatMessage("assistant", "One moment, please.", tool_calls=(call,)),
        ChatMessage("tool", result, tool_call_id="1", ok=False),
    )
