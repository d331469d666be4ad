"""SIP headers and URIs of received messages, well-formed or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipcore.messages import headers
from sipcore.messages.headers import NameAddr

HOSTILE = st.text(st.characters(exclude_categories=()), max_size=600) | st.text('"<>\\ ;:@sip%0af\r\n\t', max_size=600)


@pytest.mark.parametrize(
    ("value", "party"),
    [
        ('"Ann Lee" <sip:ann@example.org>;tag=1', NameAddr("ann", "Ann Lee")),
        ("Ann Lee <sip:ann@example.org>", NameAddr("ann", "Ann Lee")),
        ("<sips:+4930123@example.org;user=phone>;tag=1", NameAddr("+4930123", "")),
        ("sip:ann@example.org;tag=1", NameAddr("ann", "")),
        ("sip:example.org", NameAddr("", "")),
        ("<tel:+4930123;phone-context=x>", NameAddr("+4930123", "")),
        ('"Ann \\"the boss\\" \\\\ <x>" <sip:ann@example.org>', NameAddr("ann", 'Ann "the boss" \\ <x>')),
        ("<sip:a%20b%00c@example.org>", NameAddr("a bc", "")),
        ("<sip:ann;isub=1:secret@example.org>", NameAddr("ann", "")),
        ("<sip:example.org:5060>", NameAddr("", "")),
        ("<sip:ann:secret@example.org>", NameAddr("ann", "")),
        ('  "  "  <sip:ann@h>', NameAddr("ann", "  ")),
        ('"open <sip:ann@h>', NameAddr("", "")),
        ("", NameAddr("", "")),
    ],
)
def test_name_addr_has_user_and_display_name(value: str, party: NameAddr) -> None:
    assert headers.parse_name_addr(value) == party


@pytest.mark.parametrize(
    ("message", "user"),
    [
        ("INVITE sip:100@h SIP/2.0\r\nVia: x", "100"),
        ("INVITE sip:100@h SIP/2.0\nVia: x", "100"),
        ("\r\n\r\nINVITE  sips:100@h  SIP/2.0\r\n", "100"),
        ("INVITE tel:+49 SIP/2.0\r\n", "+49"),
        ("INVITE sip:h SIP/2.0\r\n", ""),
        ("INVITE", ""),
        ("", ""),
    ],
)
def test_request_user_is_read_from_the_request_line(message: str, user: str) -> None:
    assert headers.request_user(message) == user


MESSAGE = (
    "INVITE sip:1@h SIP/2.0\r\nTO :  <sip:a@h>\r\n  ;tag=1\r\nX-From: no\r\nf: Ann\r\n\t<sip:ann@h>\r\n"
    "From: <sip:second@h>\r\n\r\nSubject: in the body\r\n"
)


@pytest.mark.parametrize(
    ("name", "short", "value"),
    [("To", "t", "<sip:a@h> ;tag=1"), ("From", "f", "Ann <sip:ann@h>"), ("Subject", "s", ""), ("x-from", "", "no")],
)
def test_header_is_found_by_full_or_compact_name_and_unfolded(name: str, short: str, value: str) -> None:
    assert headers.header_value(MESSAGE, name, short) == value


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85", "\r"])
def test_other_line_ends_of_unicode_do_not_inject_a_header(end: str) -> None:
    smuggled = (
        f'INVITE sip:1@h SIP/2.0\r\nTo: "x{end}f: <sip:forged@h>" <sip:a@h>\r\n{end}f: <sip:forged@h>\r\nf: sip:b@h\r\n'
    )
    assert headers.header_value(smuggled, "From", "f") == "sip:b@h"
    assert headers.request_user(f"INVITE sip:1{end}00@h SIP/2.0\r\n") == headers.uri_user(f"sip:1{end}00@h")


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_headers_end_before_the_body_and_may_follow_empty_lines(end: str) -> None:
    message = end.join(["", "", "INVITE sip:1@h SIP/2.0", "To: sip:a@h", "", "From: sip:body@h", ""])
    assert headers.header_value(message, "To", "t") == "sip:a@h"
    assert headers.header_value(message, "From", "f") == ""


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("sip:100@PBX.example:5070;transport=tcp", "pbx.example:5070"),
        ("sips:pbx.example?x=y", "pbx.example"),
        ("sip:a:b@[2001:db8::1]:5060", "[2001:db8::1]:5060"),
        ("tel:+4930", ""),
        ("", ""),
    ],
)
def test_host_port_of_a_uri_has_its_port(uri: str, place: str) -> None:
    assert headers.uri_host_port(uri) == place


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:5060", "10.0.0.1"), ("[2001:db8::1]:5060", "2001:db8::1"), ("10.0.0.1", "10.0.0.1"), ("::1", "::1")],
)
def test_the_host_of_an_address_has_no_port_and_no_brackets(address: str, host: str) -> None:
    assert headers.without_port(address) == host


@given(HOSTILE)
def test_names_are_short_printable_and_valid(text: str) -> None:
    for name in (*vars(headers.parse_name_addr(text)).values(), headers.uri_user(text), headers.request_user(text)):
        assert len(name) <= 128
        assert name == "" or name.isprintable()
        name.encode()
    headers.header_value(text, "From", "f")
    headers.without_port(text)


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=60).filter(lambda name: name.isprintable()))
def test_formatted_name_addr_parses_to_the_same_name(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    assert headers.parse_name_addr(f'"{quoted}" <sip:ann@h>') == NameAddr("ann", name)


@pytest.mark.parametrize("piece", [" ", '"', "\\", "<", '"\\', " <", '" '])
def test_long_input_takes_linear_time(piece: str) -> None:
    """A backtracking pattern would need hours here; the suite's time limit would end it."""
    for text in (piece * 200_000, "a" + piece * 200_000, '"' + piece * 200_000):
        assert headers.parse_name_addr(text).user == ""
