"""REFER requests, well-formed or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given

from sipcore.messages import refer
from sipcore.messages.contact import Contact
from sipcore.messages.refer import ReferRequest
from tests.sipcore.messages.test_headers import HOSTILE

PLACE = "a@b;to-tag=1;from-tag=2"


@pytest.mark.parametrize(
    ("text", "replaces"),
    [
        ("2 1 127.0.0.1 <sip:200@h>", ""),
        ("2 1 127.0.0.1 <sip:200@h?Replaces=a%40b%3Bto-tag%3D1%3Bfrom-tag%3D2>", PLACE),
        ("2 1 127.0.0.1 <sip:200@h?x=y&replaces=a%40b%3Bto-tag%3D1%3Bfrom-tag%3D2&z=1>;p=q", PLACE),
        ("2 1 127.0.0.1 <sip:200@h?Replaces=a%40b%3Bto-tag%3D1%3Bfrom-tag%3D2%3Bearly-only>", f"{PLACE};early-only"),
    ],
)
def test_refer_has_target_and_replaces(text: str, replaces: str) -> None:
    assert refer.parse_refer(text) == ReferRequest(Contact("200", "h", "127.0.0.1"), replaces, 2, False)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("2 1 127.0.0.1 <tel:+4930>", "it is no sip: URI with a user"),
        ("2 3 127.0.0.1 <sip:200@h;x=", "it is too long"),
        ("2 1 127.0.0.1 <sip:200@h?Replaces=a>", "what it is to replace is no call"),
    ],
)
def test_refer_with_an_unusable_target_has_a_refusal(text: str, refusal: str) -> None:
    found = refer.parse_refer(text)
    assert (found.refusal, found.replaces) == (refusal, "")
    assert bool(found.contact.user) != bool(found.contact.raw)


@given(HOSTILE)
def test_refer_request_has_no_line_ends(text: str) -> None:
    for value in (text, f"<sip:200@h?Replaces={text}>", f"<sip:{text}>"):
        found = refer.parse_refer(f"2 0 127.0.0.1 {value}")
        assert found.no_subscription
        assert (found.contact.user + found.contact.host + found.contact.raw + found.replaces).isprintable()
