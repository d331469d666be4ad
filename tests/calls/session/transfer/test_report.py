"""Reports of transfers without a connection: what the language model and the caller are told."""

from __future__ import annotations

import pytest

from calls.session.transfer.report import report_refusal, report_result
from calls.session.transfer.result import TransferResult
from config.errors import Conflict, FieldProblem, Invalid
from storage.calls.transfers import TransferStatus

OTHERS = ["Support", "Billing", "Front desk", "Night shift"]
FAILURES: list[TransferStatus] = ["declined", "no_answer", "busy", "voicemail", "failed"]
LANGUAGES = ["en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv"]


@pytest.mark.parametrize("status", FAILURES)
def test_the_model_is_told_what_happened_and_what_it_can_do(status: TransferStatus) -> None:
    told = report_result(TransferResult(status), "Sales", OTHERS, "en").for_model
    assert told.startswith("The transfer to Sales did not happen: ")
    assert "offer to transfer the call to Support or Billing or Front desk instead, or to take a message" in told
    assert "Night shift" not in told


def test_without_another_target_the_model_is_told_to_take_a_message() -> None:
    told = report_result(TransferResult("busy"), "Sales", [], "en").for_model
    assert told.endswith("without any, offer to take a message.")


def test_the_model_is_told_what_the_target_said() -> None:
    told = report_result(TransferResult("declined", decline_reason="in a meeting"), "Sales", [], "en").for_model
    assert 'They said: "in a meeting".' in told


def test_a_cancelled_transfer_offers_nothing() -> None:
    report = report_result(TransferResult("cancelled"), "Sales", OTHERS, "en")
    assert "wants to stay with you" in report.for_model
    assert "Support" not in report.for_model
    assert report.for_caller == "All right, I am still here. How can I help you?"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Invalid([FieldProblem("target", "Calls from this number may not go there")]), "may not go there"),
        (Conflict("A transfer of the call is under way."), "was not made: A transfer of the call is under way. Nobody"),
    ],
)
def test_the_model_is_told_why_a_transfer_was_refused(error: Invalid | Conflict, why: str) -> None:
    report = report_refusal(error, "Sales", OTHERS, "en")
    assert why in report.for_model
    assert "Support" in report.for_model
    assert report.for_caller == "I am sorry, I could not put you through to Sales. How else can I help you?"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_caller_is_told_each_result_in_the_language_of_the_call(language: str) -> None:
    told = {report_result(TransferResult(status), "Sales", [], language).for_caller for status in FAILURES}
    assert len(told) == len(FAILURES)
    assert all(text is not None and text.count("Sales") == 1 and "{" not in text for text in told)
    english = report_result(TransferResult("busy"), "Sales", [], "en").for_caller
    assert (english in told) is (language == "en")


def test_a_language_without_phrases_gets_english() -> None:
    report = report_result(TransferResult("busy"), "Sales", [], "fi-FI")
    assert report.for_caller == "I am sorry, the line of Sales is busy. How else can I help you?"
