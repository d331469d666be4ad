"""Reason headers, parsed and formatted."""

from __future__ import annotations

import pytest
from hypothesis import given

from sipcore.messages import reason_header
from sipcore.messages.reason_header import Q850Cause, ReasonHeader
from tests.sipcore.messages.test_headers import HOSTILE


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('Q.850;cause=17;text="User busy"', ReasonHeader(Q850Cause(17, "User busy"))),
        ('q.850 ; cause = 16 ; text = "a \\"b\\", c"', ReasonHeader(Q850Cause(16, 'a "b", c'))),
        ("Q.850;cause=34;text=congestion", ReasonHeader(Q850Cause(34, "congestion"))),
        ("Q.850;text=x;cause=34", ReasonHeader(Q850Cause(34, "x"))),
        ("Q.850;cause=1, Q.850;cause=2", ReasonHeader(Q850Cause(1, ""))),
        ('SIP;cause=200;text="Call completed elsewhere"', ReasonHeader(None, completed_elsewhere=True)),
        ("SIP ;cause=200, Q.850;cause=26", ReasonHeader(Q850Cause(26, ""), completed_elsewhere=True)),
        ("SIP;cause=487", ReasonHeader()),
        ("Q.850;cause=0", ReasonHeader()),
        ("Q.850;cause=128", ReasonHeader()),
        ("Q.850;cause=1000", ReasonHeader()),
        ("Q.850;cause=x", ReasonHeader()),
        ('Preemption;cause=1;text="Q.850;cause=17"', ReasonHeader()),
        ("", ReasonHeader()),
    ],
)
def test_reason_has_cause_and_completed_elsewhere(value: str, reason: ReasonHeader) -> None:
    assert reason_header.parse_reason(value) == reason


def test_formatted_reason_parses_to_the_same_cause() -> None:
    value = reason_header.format_reason(reason_header.q850_cause(reason_header.NORMAL_CLEARING))
    assert value == 'Q.850;cause=16;text="Normal call clearing"'
    assert reason_header.parse_reason(value).cause == reason_header.q850_cause(reason_header.NORMAL_CLEARING)


@pytest.mark.parametrize(("code", "number"), [(404, 1), (480, 20), (486, 17), (503, 42), (500, 41), (488, None)])
def test_status_of_a_refusal_has_a_q850_cause(code: int, number: int | None) -> None:
    given = reason_header.cause_of_status(code)
    assert (given.number if given else None) == number
    assert given is None or given.text


@given(HOSTILE)
def test_cause_text_is_short_and_printable(text: str) -> None:
    for value in (text, f"Q.850;cause=17;text={text}", f'Q.850;cause=17;text="{text}"'):
        if found := reason_header.parse_reason(value).cause:
            assert 1 <= found.number <= 127
            assert len(found.text) <= 128
            assert found.text == "" or found.text.isprintable()
            found.text.encode()
