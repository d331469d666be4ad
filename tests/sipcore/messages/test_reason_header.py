"""Reason headers, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given

from sipcore.messages import reason_header
from sipcore.messages.reason_header import Cause, Reason
from tests.sipcore.messages.test_headers import HOSTILE


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('Q.850;cause=17;text="User busy"', Reason(Cause(17, "User busy"))),
        ('q.850 ; cause = 16 ; text = "a \\"b\\", c"', Reason(Cause(16, 'a "b", c'))),
        ("Q.850;cause=34;text=congestion", Reason(Cause(34, "congestion"))),
        ("Q.850;text=x;cause=34", Reason(Cause(34, "x"))),
        ("Q.850;cause=1, Q.850;cause=2", Reason(Cause(1, ""))),
        ('SIP;cause=200;text="Call completed elsewhere"', Reason(None, elsewhere=True)),
        ("SIP ;cause=200, Q.850;cause=26", Reason(Cause(26, ""), elsewhere=True)),
        ("SIP;cause=487", Reason()),
        ("Q.850;cause=0", Reason()),
        ("Q.850;cause=128", Reason()),
        ("Q.850;cause=1000", Reason()),
        ("Q.850;cause=x", Reason()),
        ('Preemption;cause=1;text="Q.850;cause=17"', Reason()),
        ("", Reason()),
    ],
)
def test_the_cause_and_whether_another_phone_took_the_call(value: str, reason: Reason) -> None:
    assert reason_header.read(value) == reason


def test_what_we_say_reads_back() -> None:
    value = reason_header.told(reason_header.ours(reason_header.NORMAL))
    assert value == 'Q.850;cause=16;text="Normal call clearing"'
    assert reason_header.read(value).cause == reason_header.ours(reason_header.NORMAL)


@pytest.mark.parametrize(("code", "number"), [(404, 1), (480, 20), (486, 17), (503, 42), (500, 41), (488, None)])
def test_a_refusal_of_ours_has_its_cause(code: int, number: int | None) -> None:
    given = reason_header.of_refusal(code)
    assert (given.number if given else None) == number
    assert given is None or given.text


@given(HOSTILE)
def test_whatever_the_network_says_a_cause_is_short_and_printable(text: str) -> None:
    for value in (text, f"Q.850;cause=17;text={text}", f'Q.850;cause=17;text="{text}"'):
        if found := reason_header.read(value).cause:
            assert 1 <= found.number <= 127
            assert len(found.text) <= 128
            assert found.text == "" or found.text.isprintable()
            found.text.encode()
