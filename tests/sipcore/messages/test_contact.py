"""The contacts of a redirect."""

from __future__ import annotations

import pytest
from hypothesis import given

from sipcore.messages import contact
from sipcore.messages.contact import Contact
from tests.sipcore.messages.test_headers import HOSTILE


@pytest.mark.parametrize(
    ("value", "user", "host"),
    [
        ("<sip:+49301@pbx.example:5070;transport=tcp?Replaces=x>;q=0.5", "+49301", "pbx.example"),
        ('"Ann, <x>" <sip:100@192.0.2.1>', "100", "192.0.2.1"),
        ('"Ann" <sip:100@PBX.example>', "100", "pbx.example"),
        ("sip:100@192.0.2.1;q=0.1", "100", "192.0.2.1"),
        ("<sip:100@[2001:db8::1]:5060>", "100", "2001:db8::1"),
        ("<SIPS:100@192.0.2.1>", "100", "192.0.2.1"),
        ("<tel:+49301>", "", ""),
        ("<mailto:a@b>", "", ""),
        ("<sip:192.0.2.1>", "", ""),
        ("<sips:192.0.2.1>", "", ""),
        ("*", "", ""),
        ("", "", ""),
    ],
)
def test_only_a_sip_or_sips_uri_with_a_user_can_be_called(value: str, user: str, host: str) -> None:
    found = contact.parse_contact(value, "peer")
    assert found == Contact(user, host, "peer", "" if user else value.strip("<>"), secure="SIPS" in value)


def users(*lines: str) -> list[str]:
    """The contacts of a 302 with these lines."""
    message = "\r\n".join(["SIP/2.0 302 Moved", *lines, "", ""])
    return [each.user for each in contact.redirect_contacts(message, "peer")]


def test_contacts_are_ordered_by_q() -> None:
    one_line = "Contact: <sip:a@h>;q=0.5, <sip:b@h>, <sip:c@h>;q=0.7"
    assert users(one_line) == ["b", "c", "a"]
    assert users("m: <sip:a@h>;q=0.2", "CONTACT: <sip:b@h>;Q=0.3", "X-Contact: <sip:c@h>") == ["b", "a"]
    assert users("Contact: <sip:a@h;q=0.1>;q=2, <sip:b@h>;q=0.9") == ["a", "b"]


def test_number_of_contacts_of_a_redirect_is_bounded() -> None:
    assert len(users("Contact: " + ", ".join(f"<sip:{n}@h>" for n in range(100)))) == contact.MAX_CONTACTS


@given(HOSTILE)
def test_contact_is_short_and_printable(text: str) -> None:
    for value in (text, f"<{text}>", f"<sip:{text}>", f"<sip:1@{text}>"):
        found = contact.parse_contact(value, "peer")
        assert not (found.user and found.raw)
        assert max(map(len, (found.user, found.host, found.raw))) <= 128
        assert (found.user + found.host + found.raw).isprintable()
    users(f"Contact: {text}")


@pytest.mark.parametrize("piece", ["<", '"', ";q=", "<sip:", "sip:", ",", ";"])
def test_long_contacts_take_linear_time(piece: str) -> None:
    """A backtracking pattern would need hours here; the suite's time limit would end it."""
    users(f"Contact: {piece * 200_000}", f"Contact: <sip:a@h>{piece * 200_000}")
