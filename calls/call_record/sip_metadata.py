"""Maps SIP headers to call metadata and context variables, and metadata to the headers of outbound INVITEs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sipcore.dialogs.leg import InviteFacts
from sipcore.messages import captured_headers
from sipcore.messages.headers import NameAddr
from storage.calls.calls import Call

ANONYMOUS: Final = "anonymous"
"""The customer's number if the caller withholds it (RFC 3323)."""
METADATA_PREFIX: Final = "sip."
"""Prefix of metadata keys that are SIP headers: of an inbound INVITE, or for an outbound one."""
SENDABLE_HEADERS: Final = ("Subject", "Call-Info", "Alert-Info", "User-to-User", "Diversion")
"""Headers that an outbound INVITE may carry, besides X-... and P-..."""
MAX_HEADERS: Final = 16
MAX_HEADER_BYTES: Final = 2048
"""Bytes of all names and values together with which PJSIP can still send an INVITE."""
VARIABLE_PREFIX: Final = "sip_"
"""Prefix of the context variables made of SIP headers."""
_SET_BY_CALLER: Final = frozenset(("caller_number", "caller_name", "customer_number", "diverted_from"))
_ASSERTED: Final = frozenset(("P-Asserted-Identity", "P-Preferred-Identity"))
"""Identity headers, which are set from the calling number alone."""
_IDENTITIES: Final = _ASSERTED | {"Remote-Party-ID"}
_SENDABLE: Final = re.compile(rf"{'|'.join(SENDABLE_HEADERS)}|[XP]-[A-Za-z0-9.!%*_+`'~-]{{1,62}}", re.IGNORECASE)
_USER: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_NON_NAME_CHARACTERS: Final = re.compile(r"[^a-z0-9]+")


def remote_number(facts: InviteFacts) -> str:
    """Returns the caller's number: the asserted identity if that is a phone number, else the user of From by
    `safe_user`. `ANONYMOUS` if it is withheld or private."""
    if captured_headers.privacy_requested(facts.headers):
        return ANONYMOUS
    asserted = captured_headers.asserted_identity(facts.headers)
    if asserted is not None and captured_headers.is_phone_number(asserted.user):
        return asserted.user
    return safe_user(facts.from_addr.user)


def safe_user(user: str) -> str:
    """Returns a user part as agents, logs and clients may see it: `ANONYMOUS` unless it is a phone number or a short
    token, because callers choose it freely."""
    return user if _USER.fullmatch(user) else ANONYMOUS


def headers_to_metadata(facts: InviteFacts) -> dict[str, str]:
    """Returns the headers of an inbound INVITE as metadata, such as `sip.X-Customer-Id`. Several of one name are joined
    by commas (RFC 3261 7.3.1). Headers with the identity of a private caller are omitted."""
    hidden = _IDENTITIES if captured_headers.privacy_requested(facts.headers) else frozenset()
    return {METADATA_PREFIX + name: ", ".join(values) for name, values in facts.headers.items() if name not in hidden}


def sip_variables(call: Call, number: str, facts: InviteFacts) -> dict[str, str]:
    """Returns context variables: calling and called number, the diverting number, and `sip_x_customer_id` for the
    metadata `sip.X-Customer-Id`. `number` is our phone number."""
    caller, called, diverter = call.customer_number, number, captured_headers.diverted_from(facts.headers)
    if call.direction == "outbound":
        caller, called = called, caller
    return {
        **_header_variables(call.metadata),
        "caller_number": caller,
        "caller_name": caller_name(facts),
        "called_number": called,
        "diverted_from": "" if diverter is None else safe_user(diverter),
    }


def is_set_by_caller(name: str) -> bool:
    """True if the caller controls the value of this context variable."""
    return name in _SET_BY_CALLER or name.startswith(VARIABLE_PREFIX)


def caller_name(facts: InviteFacts) -> str:
    """Returns the display name of the caller of an inbound INVITE, "" if it is private. The caller may choose it."""
    if captured_headers.privacy_requested(facts.headers):
        return ""
    return (
        captured_headers.asserted_identity(facts.headers) or NameAddr("", "")
    ).display_name or facts.from_addr.display_name


def _header_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    headers = {
        name: value for name, value in metadata.items() if name.startswith(METADATA_PREFIX) and isinstance(value, str)
    }
    return {_NON_NAME_CHARACTERS.sub("_", name.lower()).strip("_"): value for name, value in headers.items()}


def header_problem(name: str, value: object) -> str | None:
    """Returns why a metadata item of the prefix `sip.` cannot be a header of an outbound INVITE; None if it can."""
    header = name.removeprefix(METADATA_PREFIX)
    if _SENDABLE.fullmatch(header) is None or header.title() in _ASSERTED:
        return f"Calls take along headers X-... and P-... (but no identity), {', '.join(SENDABLE_HEADERS)}"
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= captured_headers.MAX_VALUE_LENGTH
        or not value.isprintable()
    ):
        return f"Must be a string of 1 to {captured_headers.MAX_VALUE_LENGTH} characters without control characters"
    return None


def header_limit_problem(metadata: Mapping[str, Any]) -> str | None:
    """Returns why all the headers together cannot be sent, because there are limits; None if they can."""
    lines = [f"{name}: {value}" for name, value in metadata.items() if name.startswith(METADATA_PREFIX)]
    if len(lines) > MAX_HEADERS or len("\r\n".join(lines).encode(errors="replace")) > MAX_HEADER_BYTES:
        return f"Calls take along at most {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes together"
    return None


def outbound_headers(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the headers of an outbound INVITE: metadata of the prefix `sip.` that can be sent."""
    return [
        (name.removeprefix(METADATA_PREFIX), value)
        for name, value in metadata.items()
        if name.startswith(METADATA_PREFIX) and header_problem(name, value) is None
    ]
