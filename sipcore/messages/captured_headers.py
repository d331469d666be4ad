"""Headers captured from an INVITE: asserted identity, privacy, diversion, `X-` and `P-`; and the names and numbers in
them.

The input may be hostile: results are bounded, printable and valid Unicode, and the processing time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from sipcore.messages import headers
from sipcore.messages.masking import is_secret_header

CapturedHeaders = Mapping[str, tuple[str, ...]]
"""Values by header name: names in `NAMES` as spelled there, others as in their first occurrence."""

NAMES: Final = (
    "P-Asserted-Identity",
    "Remote-Party-ID",
    "Privacy",
    "Diversion",
    "History-Info",
    "Referred-By",
    "User-Agent",
    "Call-Info",
    "Alert-Info",
    "Subject",
    "Reason",
    "User-to-User",
)
PREFIXES: Final = ("x-", "p-")
MAX_NAMES: Final = 32
MAX_VALUES: Final = 8
"""Values of one name."""
MAX_NAME_LENGTH: Final = 64
MAX_VALUE_LENGTH: Final = 512
"""Characters; a longer value is cut."""

_CANONICAL_NAMES: Final = {name.lower(): name for name in NAMES} | {"s": "Subject", "b": "Referred-By"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9.!%*_+`'~-]++")
"""RFC 3261 25.1."""
_PHONE_NUMBER: Final = re.compile(r"\+?[0-9]{2,32}")
_DIVERTED: Final = re.compile(r";cause=(302|404|408|480|486|487|503)(?![0-9])", re.IGNORECASE)
"""RFC 7544, 2.1: an entry with such a cause is the target of a diversion."""
_WITHHOLDS_IDENTITY: Final = re.compile(r"\b(id|user|header)\b", re.IGNORECASE)


def capture(message: str) -> CapturedHeaders:
    """The headers of a request that are captured."""
    captured: dict[str, tuple[str, list[str]]] = {}
    for name, value in headers.header_fields(message):
        spelled = _captured_name(name)
        if spelled is None or (len(captured) == MAX_NAMES and spelled.lower() not in captured):
            continue
        _, values = captured.setdefault(spelled.lower(), (spelled, []))
        if len(values) < MAX_VALUES and (text := headers.printable(value, MAX_VALUE_LENGTH)):
            values.append(text)
    return {spelled: tuple(values) for spelled, values in captured.values() if values}


def _captured_name(name: str) -> str | None:
    """The name that a header is captured under; None when it is not captured, or must not be stored."""
    low = name.lower()
    if low in _CANONICAL_NAMES:
        return _CANONICAL_NAMES[low]
    is_extension = low.startswith(PREFIXES) and len(name) <= MAX_NAME_LENGTH and _TOKEN.fullmatch(name)
    return name if is_extension and not is_secret_header(name) else None


def asserted_identity(captured: CapturedHeaders) -> headers.NameAddr | None:
    """The caller that the trunk asserts (P-Asserted-Identity, RFC 3325, 9.1; else the older Remote-Party-ID): the first
    phone number, else the first user. None without any."""
    asserted = [headers.parse_name_addr(each) for each in _entries(captured, "P-Asserted-Identity")]
    remote = captured.get("Remote-Party-ID", ())
    asserted += [headers.parse_name_addr(each) for each in remote if "party=called" not in each.lower()]
    asserted = [each for each in asserted if each.user]
    return next((each for each in asserted if is_phone_number(each.user)), asserted[0] if asserted else None)


def privacy_requested(captured: CapturedHeaders) -> bool:
    """True if the caller withholds its identity from the callee (RFC 3323, 4.2; RFC 3325, 9.3)."""
    remote = any("privacy=full" in each.lower() for each in captured.get("Remote-Party-ID", ()))
    return remote or any(_WITHHOLDS_IDENTITY.search(each) for each in captured.get("Privacy", ()))


def is_phone_number(user: str) -> bool:
    """True if a user part is a phone number: digits, with or without `+`."""
    return _PHONE_NUMBER.fullmatch(user) is not None


def diverted_from(captured: CapturedHeaders) -> str | None:
    """The user that diverted the call last: the first Diversion (RFC 5806, 4), else the entry of History-Info before
    the last target of a diversion (RFC 7044, 5; RFC 7544, 2.1), "" for an entry without a user; None for a call that
    was not diverted."""
    if (latest := next(_entries(captured, "Diversion"), None)) is not None:
        return headers.parse_name_addr(latest).user
    history = pairwise(_entries(captured, "History-Info"))
    diverters = [headers.parse_name_addr(before).user for before, target in history if _DIVERTED.search(target)]
    return diverters[-1] if diverters else None


def _entries(captured: CapturedHeaders, name: str) -> Iterator[str]:
    for line in captured.get(name, ()):
        yield from headers.split_list(line)
