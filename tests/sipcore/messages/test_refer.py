"""REFER requests, well-formed or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipcore.messages import refer
from sipcore.messages.contact import Contact
from sipcore.messages.refer import DialogId, ReferRequest
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
        ("2 1 127.0.0.1 <tel:+4930>", "it is no sip: or sips: URI with a user"),
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


@pytest.mark.parametrize(
    ("user", "host_port", "value"),
    [
        ("200", "pbx.example", "<sip:200@pbx.example>"),
        ("+49 30", "pbx.example:5080;transport=tcp", "<sip:+49%2030@pbx.example:5080;transport=tcp>"),
        ("a>b@c", "[2001:db8::1]:5060", "<sip:a%3Eb%40c@[2001:db8::1]:5060>"),
    ],
)
def test_refer_to_is_the_user_at_the_domain(user: str, host_port: str, value: str) -> None:
    assert refer.format_refer_to(user, host_port) == value


@pytest.mark.parametrize(
    ("user", "host_port"),
    [
        ("", "h"),
        ("200", ""),
        ("200", "h>"),
        ("200", "h:port"),
        ("200", "h;x=y"),
        ("200", "h?Replaces=a"),
        ("200", "h\n"),
    ],
)
def test_target_that_cannot_be_dialled_is_refused(user: str, host_port: str) -> None:
    with pytest.raises(ValueError, match="target of a REFER"):
        refer.format_refer_to(user, host_port)


def test_replaces_has_the_tags_as_the_dialogs_peer_knows_them() -> None:
    value = refer.format_refer_to("200", "h", DialogId(b"a@b", b"ours", b"theirs"))
    assert value == "<sip:200@h?Replaces=a%40b%3Bto-tag%3Dtheirs%3Bfrom-tag%3Dours>"


@given(st.binary(min_size=1, max_size=60), st.binary(min_size=1, max_size=60))
def test_replaces_of_a_hostile_dialog_adds_no_header(call_id: bytes, tag: bytes) -> None:
    value = refer.format_refer_to("200", "h", DialogId(call_id, b"ours", tag))
    assert value.isascii()
    assert value.isprintable()
    assert not set(value.removeprefix("<sip:200@h?Replaces=").removesuffix(">")) & set('<>?&;=@ ,"')


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"SIP/2.0 200 OK\r\n", 200),
        (b"SIP/2.0 486 Busy Here", 486),
        (b"sip/2.0 100\n", 100),
        (b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h\r\n", 200),
        (b"SIP/2.0 603 \xc3\x9cber\r\n", 603),
    ],
)
def test_sipfrag_has_a_status(body: bytes, status: int) -> None:
    assert refer.parse_sipfrag("message/SIPfrag", body) == status
    assert refer.parse_sipfrag("text/plain", body) is None


@given(st.binary(max_size=600))
def test_hostile_sipfrag_has_no_status_outside_of_the_range(body: bytes) -> None:
    for text in (body, b"SIP/2.0 " + body, b"SIP/2.0 200" + body):
        status = refer.parse_sipfrag("message/sipfrag", text)
        assert status is None or 100 <= status <= 699
