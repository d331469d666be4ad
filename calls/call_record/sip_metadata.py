"""What a call brings with it by SIP, and takes along: who calls, the headers that become metadata and context
variables, and the metadata that become headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sipcore.dialogs.leg import LegFacts
from sipcore.messages import captured_headers
from sipcore.messages.headers import Party
from storage.calls.calls import Call

ANONYMOUS: Final = "anonymous"
"""The customer's number when the caller does not tell it (RFC 3323)."""
METADATA: Final = "sip."
"""Metadata of this prefix are SIP headers: those that an inbound call brought, and those that an outbound one takes
along."""
SENDABLE: Final = ("Subject", "Call-Info", "Alert-Info", "User-to-User", "Diversion")
"""Headers that a call of ours may take along, beside those whose names begin with X- or P-."""
MOST_SENT: Final = 16
MOST_SENT_BYTES: Final = 2048
"""Of all names and values: an INVITE with them still fits into what PJSIP sends."""
VARIABLE: Final = "sip_"
"""How the context variables begin that are made of a call's SIP headers."""
_CALLERS: Final = frozenset(("caller_number", "caller_name", "customer_number", "diverted_from"))
_OWN: Final = frozenset(("P-Asserted-Identity", "P-Preferred-Identity"))
"""What only the number that a call is made from may say."""
_IDENTITIES: Final = _OWN | {"Remote-Party-ID"}
_SENT: Final = re.compile(rf"{'|'.join(SENDABLE)}|[XP]-[A-Za-z0-9.!%*_+`'~-]{{1,62}}", re.IGNORECASE)
_USER: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def customer_of(facts: LegFacts) -> str:
    """The number of who calls in: what the trunk asserts, when that is a phone number; else the user of From, when that
    is a name that can stand for one. `ANONYMOUS` when it is not told, or not to be shown."""
    if captured_headers.is_private(facts.headers):
        return ANONYMOUS
    asserted = captured_headers.asserted(facts.headers)
    if asserted is not None and captured_headers.is_number(asserted.user):
        return asserted.user
    return named(facts.sender.user)


def named(user: str) -> str:
    """A user part as agents, logs and clients get it: callers write what they like, so what is neither a phone number
    nor a short token is `ANONYMOUS`."""
    return user if _USER.fullmatch(user) else ANONYMOUS


def metadata_of(facts: LegFacts) -> dict[str, str]:
    """The headers of an inbound call as its metadata: `sip.X-Customer-Id`. Several of a name are joined by commas (RFC
    3261, 7.3.1). Of a caller who does not want to be shown, no header tells the identity."""
    hidden = _IDENTITIES if captured_headers.is_private(facts.headers) else frozenset()
    return {METADATA + name: ", ".join(values) for name, values in facts.headers.items() if name not in hidden}


def values_of(call: Call, number: str, facts: LegFacts) -> dict[str, str]:
    """Context variables: who calls whom, who diverted the call to us, and `sip_x_customer_id` for the metadata
    `sip.X-Customer-Id`. `number` is ours."""
    caller, called, diverter = call.customer_number, number, captured_headers.diverted_from(facts.headers)
    if call.direction == "outbound":
        caller, called = called, caller
    return {
        **_headers_of(call.metadata),
        "caller_number": caller,
        "caller_name": _name_of(facts),
        "called_number": called,
        "diverted_from": "" if diverter is None else named(diverter),
    }


def is_callers(name: str) -> bool:
    """Whether whoever calls writes what the context variable of this name stands for."""
    return name in _CALLERS or name.startswith(VARIABLE)


def _name_of(facts: LegFacts) -> str:
    """The display name of who calls."""
    if captured_headers.is_private(facts.headers):
        return ""
    return (captured_headers.asserted(facts.headers) or Party("", "")).name or facts.sender.name


def _headers_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    headers = {name: value for name, value in metadata.items() if name.startswith(METADATA) and isinstance(value, str)}
    return {_NO_NAME.sub("_", name.lower()).strip("_"): value for name, value in headers.items()}


def unsendable(name: str, value: object) -> str | None:
    """Why a metadata key of the prefix `sip.` can be no header of a call that we make; None when it can."""
    header = name.removeprefix(METADATA)
    if _SENT.fullmatch(header) is None or header.title() in _OWN:
        return f"Calls take along headers X-... and P-... (but no identity), {', '.join(SENDABLE)}"
    if not isinstance(value, str) or not 1 <= len(value) <= captured_headers.LONGEST_VALUE or not value.isprintable():
        return f"Must be a string of 1 to {captured_headers.LONGEST_VALUE} characters without control characters"
    return None


def too_much(metadata: Mapping[str, Any]) -> str | None:
    """What is wrong with all the headers together; None when they can be sent."""
    lines = [f"{name}: {value}" for name, value in metadata.items() if name.startswith(METADATA)]
    if len(lines) > MOST_SENT or len("\r\n".join(lines).encode(errors="replace")) > MOST_SENT_BYTES:
        return f"Calls take along at most {MOST_SENT} headers, of {MOST_SENT_BYTES} bytes together"
    return None


def taken_along(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The headers of a call that we make: its metadata of the prefix `sip.`, as far as they can be sent."""
    ours = {name: value for name, value in metadata.items() if name.startswith(METADATA)}
    return [(name.removeprefix(METADATA), value) for name, value in ours.items() if unsendable(name, value) is None]
