"""The headers that a call carries for those who answer it: which of an INVITE's are kept, and how names and numbers are
read from them.

Everything here may be hostile: what is kept is bounded, printable and valid Unicode, and the time taken is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from sipcore.messages import headers
from sipcore.messages.masking import is_secret_header

CapturedHeaders = Mapping[str, tuple[str, ...]]
"""Values by the header's name: those of `NAMES` as spelled there, others as they were spelled first."""

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
"""Of one name."""
MAX_NAME_LENGTH: Final = 64
MAX_VALUE_LENGTH: Final = 512
"""Characters; what is longer is cut."""

_SPELLED: Final = {name.lower(): name for name in NAMES} | {"s": "Subject", "b": "Referred-By"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9.!%*_+`'~-]++")
"""RFC 3261 25.1."""
_PHONE_NUMBER: Final = re.compile(r"\+?[0-9]{2,32}")
_DIVERTED: Final = re.compile(r";cause=(302|404|408|480|486|487|503)(?![0-9])", re.IGNORECASE)
"""RFC 7544, 2.1: such a target was chosen because somebody diverted the call."""
_HIDDEN: Final = re.compile(r"\b(id|user|header)\b", re.IGNORECASE)


def capture(message: str) -> CapturedHeaders:
    """What of a request's headers is for those who answer it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, value in headers.header_fields(message):
        spelled = _kept(name)
        if spelled is None or (len(found) == MAX_NAMES and spelled.lower() not in found):
            continue
        _, values = found.setdefault(spelled.lower(), (spelled, []))
        if len(values) < MAX_VALUES and (text := headers.printable(value, MAX_VALUE_LENGTH)):
            values.append(text)
    return {spelled: tuple(values) for spelled, values in found.values() if values}


def _kept(name: str) -> str | None:
    """How the header's name is spelled; None when it is none of ours, or none that is to be stored."""
    low = name.lower()
    if low in _SPELLED:
        return _SPELLED[low]
    is_ours = low.startswith(PREFIXES) and len(name) <= MAX_NAME_LENGTH and _TOKEN.fullmatch(name)
    return name if is_ours and not is_secret_header(name) else None


def asserted_identity(given: CapturedHeaders) -> headers.NameAddr | None:
    """Who calls, as the trunk says (RFC 3325, 9.1; the older Remote-Party-ID where that is missing): the first that is
    a phone number, else the first. None when it says nothing."""
    named = [headers.parse_name_addr(each) for each in _entries(given, "P-Asserted-Identity")]
    remote = given.get("Remote-Party-ID", ())
    named += [headers.parse_name_addr(each) for each in remote if "party=called" not in each.lower()]
    named = [each for each in named if each.user]
    return next((each for each in named if is_phone_number(each.user)), named[0] if named else None)


def privacy_requested(given: CapturedHeaders) -> bool:
    """Who calls does not want to be shown to the one who is called (RFC 3323, 4.2; RFC 3325, 9.3)."""
    remote = any("privacy=full" in each.lower() for each in given.get("Remote-Party-ID", ()))
    return remote or any(_HIDDEN.search(each) for each in given.get("Privacy", ()))


def is_phone_number(user: str) -> bool:
    """Whether a user part is a phone number: digits, perhaps with `+`."""
    return _PHONE_NUMBER.fullmatch(user) is not None


def diverted_from(given: CapturedHeaders) -> str | None:
    """Whose call was diverted to us last: the first Diversion (RFC 5806, 4), else the entry of History-Info before the
    last target that a diversion chose (RFC 7044, 5; RFC 7544, 2.1), "" for one without a user; None when the call came
    to us directly."""
    if (latest := next(_entries(given, "Diversion"), None)) is not None:
        return headers.parse_name_addr(latest).user
    history = pairwise(_entries(given, "History-Info"))
    diverters = [headers.parse_name_addr(before).user for before, target in history if _DIVERTED.search(target)]
    return diverters[-1] if diverters else None


def _entries(given: CapturedHeaders, name: str) -> Iterator[str]:
    for line in given.get(name, ()):
        yield from headers.split_list(line)
