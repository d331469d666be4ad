"""Headers captured from an INVITE, and the identities in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipcore.messages import captured_headers
from sipcore.messages.headers import NameAddr
from tests.sipcore.messages.test_headers import HOSTILE

NAMES = st.sampled_from(
    ("X-A", "x-b", "P-Asserted-Identity", "Diversion", "History-Info", "Privacy", "Via", "s", "X-" * 40)
)


def message(*lines: str) -> str:
    """An INVITE with these headers."""
    return "\r\n".join(["INVITE sip:1@h SIP/2.0", "Via: SIP/2.0/UDP h", *lines, "", "X-Body: no", ""])


def test_only_listed_headers_are_captured() -> None:
    kept = captured_headers.capture(
        message(
            "X-CustomerID: 17",
            "x-customerid: 18",
            "P-Charging-Vector: icid-value=1",
            "p-asserted-identity: <sip:+4930@h>",
            "s: hello",
            "b: <sip:boss@h>",
            "User-Agent: PBX 1",
            "Authorization: Digest response=1",
            "Proxy-Authorization: Digest response=1",
            "Contact: <sip:1@h>",
            "X-Empty:",
            "X bad: 1",
            "X-Folded: a\r\n  b",
        )
    )
    assert kept == {
        "X-CustomerID": ("17", "18"),
        "P-Charging-Vector": ("icid-value=1",),
        "P-Asserted-Identity": ("<sip:+4930@h>",),
        "Subject": ("hello",),
        "Referred-By": ("<sip:boss@h>",),
        "User-Agent": ("PBX 1",),
        "X-Folded": ("a b",),
    }


@pytest.mark.parametrize("name", ["X-Password", "X-Auth-Token", "X-Api-Key", "x-apikey-2", "P-Secret", "X-Cookie"])
def test_secret_headers_are_not_captured(name: str) -> None:
    assert captured_headers.capture(message(f"{name}: hunter2", "X-Order: 17")) == {"X-Order": ("17",)}


def test_captured_headers_are_bounded_in_number_and_length() -> None:
    many = captured_headers.capture(message(*(f"X-{n}: v" for n in range(100)), *("X-1: w" for _ in range(100))))
    assert len(many) == captured_headers.MAX_NAMES
    assert len(many["X-1"]) == captured_headers.MAX_VALUES
    assert captured_headers.capture(message("X-A: " + "v" * 9000)) == {
        "X-A": ("v" * captured_headers.MAX_VALUE_LENGTH,)
    }
    assert captured_headers.capture(message("X-" + "a" * 63 + ": v")) == {}


@pytest.mark.parametrize(
    ("headers", "party"),
    [
        ({"P-Asserted-Identity": ('"Ann" <sip:+4930@h>',)}, NameAddr("+4930", "Ann")),
        ({"P-Asserted-Identity": ('"A, B" <sip:ann@h>, <tel:+4930>',)}, NameAddr("+4930", "")),
        ({"P-Asserted-Identity": ("<sip:ann@h>", "<sip:bob@h>")}, NameAddr("ann", "")),
        ({"P-Asserted-Identity": ('"no end <sip:ann@h>, <tel:+4930>',)}, None),
        ({"Remote-Party-ID": ('"Ann" <sip:+4930@h>;party=calling;privacy=off',)}, NameAddr("+4930", "Ann")),
        ({"Remote-Party-ID": ("<sip:+4930@h>;party=called",)}, None),
        ({"P-Asserted-Identity": ("<sip:ann@h>",), "Remote-Party-ID": ("<sip:1234@h>",)}, NameAddr("1234", "")),
        ({}, None),
    ],
)
def test_asserted_identity_is_that_of_the_trunk(
    headers: captured_headers.CapturedHeaders, party: NameAddr | None
) -> None:
    assert captured_headers.asserted_identity(headers) == party


@pytest.mark.parametrize(
    ("headers", "private"),
    [
        ({"Privacy": ("id",)}, True),
        ({"Privacy": ("critical; ID",)}, True),
        ({"Privacy": ("user",)}, True),
        ({"Privacy": ("none",)}, False),
        ({"Privacy": ("session",)}, False),
        ({"Remote-Party-ID": ("<sip:1@h>;privacy=full",)}, True),
        ({"Remote-Party-ID": ("<sip:1@h>;privacy=off",)}, False),
        ({}, False),
    ],
)
def test_privacy_headers_withhold_the_callers_identity(
    headers: captured_headers.CapturedHeaders, private: bool
) -> None:
    assert captured_headers.privacy_requested(headers) is private


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        ({"Diversion": ("<sip:+491@h>;reason=no-answer, <sip:+492@h>;reason=unconditional",)}, "+491"),
        ({"Diversion": ("<sip:+491@h>;reason=no-answer", "<sip:+492@h>")}, "+491"),
        ({"History-Info": ("<sip:+491@h>;index=1, <sip:100@h;cause=302>;index=1.1",)}, "+491"),
        ({"History-Info": ("<sip:+491@h>;index=1", "<sip:2@h;cause=486>;index=1.1", "<sip:3@h>;index=1.1.1")}, "+491"),
        ({"History-Info": ("<sip:+491@h>;index=1, <sip:100@h>;index=1.1",)}, None),
        ({"History-Info": ("<sip:+491@h>;index=1",)}, None),
        ({"Diversion": ("<sip:h>",)}, ""),
        ({}, None),
    ],
)
def test_diverting_user_is_read_from_diversion_or_history_info(
    headers: captured_headers.CapturedHeaders, user: str | None
) -> None:
    assert captured_headers.diverted_from(headers) == user


@given(st.lists(st.tuples(NAMES, HOSTILE), max_size=12))
def test_captured_headers_are_printable_and_valid(lines: list[tuple[str, str]]) -> None:
    kept = captured_headers.capture(message(*(f"{name}: {value}" for name, value in lines)))
    for values in kept.values():
        for value in values:
            assert 0 < len(value) <= captured_headers.MAX_VALUE_LENGTH
            assert value.isprintable()
            value.encode()
    captured_headers.privacy_requested(kept)
    for user in (
        captured_headers.diverted_from(kept) or "",
        (captured_headers.asserted_identity(kept) or NameAddr("", "")).user,
    ):
        assert len(user) <= 128


@pytest.mark.parametrize("piece", ['"', "<", '"\\', '\\"', ",", "<,", '",', ";cause=302"])
def test_long_lists_take_linear_time(piece: str) -> None:
    """A backtracking pattern would need hours here; the suite's time limit would end it."""
    line = (piece * 200_000,)
    captured_headers.diverted_from({"Diversion": line})
    captured_headers.diverted_from({"History-Info": line})
    captured_headers.asserted_identity({"P-Asserted-Identity": line})
    captured_headers.capture(message(*(f"X-{piece}: {piece}" for _ in range(20_000))))
