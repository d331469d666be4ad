"""Dialog records as JSON: what was stored is read, and nothing that could change the request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sipcore.dialogs.dialog_record import DialogRecord, UnansweredInvite

ANSWERED = DialogRecord("a@b", "<sip:1@h>", "t", "<sip:2@p>", "r", "sip:2@p;name=\xe4", 7, ("<sip:q;lr>", "<sip:s;lr>"))
UNANSWERED = replace(
    ANSWERED, remote_tag="", routes=(), invite=UnansweredInvite("z9hG4bK1", "h:5060", "TLS", "127.0.0.1:5061", "p")
)


@pytest.mark.parametrize("record", [ANSWERED, UNANSWERED])
def test_a_record_is_read_as_it_was_stored(record: DialogRecord) -> None:
    assert DialogRecord.of_json(json.loads(json.dumps(record.as_json()))) == record


def test_the_request_ends_the_dialog() -> None:
    assert (ANSWERED.request, UNANSWERED.request) == ("BYE", "CANCEL")


@pytest.mark.parametrize(
    "change",
    [
        {"call_id": None},
        {"target": "sip:2@p\r\nVia: x"},
        {"remote_tag": "\x7f"},
        {"local": "\u20ac"},
        {"cseq": True},
        {"cseq": -1},
        {"cseq": 1 << 31},
        {"routes": "<sip:q>"},
        {"routes": ["<sip:q>\n"]},
        {"invite": []},
        {"invite": {}},
        {"invite": {**UNANSWERED.as_json()["invite"], "branch": ""}},
    ],
)
def test_a_damaged_record_is_refused(change: dict[str, Any]) -> None:
    stored = json.loads(json.dumps(ANSWERED.as_json()))
    with pytest.raises(ValueError, match=r"\w"):
        DialogRecord.of_json({**stored, **change})


def test_a_record_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no object"):
        DialogRecord.of_json([])


def test_only_the_cseq_number_of_an_answered_dialog_may_differ() -> None:
    assert ANSWERED.same_dialog(replace(ANSWERED, cseq=8))
    assert not ANSWERED.same_dialog(replace(ANSWERED, target="sip:3@p"))
    assert not UNANSWERED.same_dialog(replace(UNANSWERED, cseq=8))
    assert not ANSWERED.same_dialog(None)
