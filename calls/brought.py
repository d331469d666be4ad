"""What a call brings with it by SIP: who calls, and the headers that become metadata and context variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sipcore import carried
from sipcore.headers import Party
from sipcore.leg import LegFacts
from storage.calls import Call

ANONYMOUS: Final = "anonymous"
"""The customer's number when the caller does not tell it (RFC 3323)."""
METADATA: Final = "sip."
"""Metadata of this prefix are SIP headers: those that an inbound call brought, and those that an outbound one takes
along."""
_IDENTITIES: Final = frozenset(("P-Asserted-Identity", "P-Preferred-Identity", "Remote-Party-ID"))
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")


def customer_of(facts: LegFacts) -> str:
    """The number of who calls in: what the trunk asserts, when that is a phone number; else the user of From.
    `ANONYMOUS` when it is not told, or not to be shown."""
    if carried.is_private(facts.headers):
        return ANONYMOUS
    asserted = carried.asserted(facts.headers)
    if asserted is not None and carried.is_number(asserted.user):
        return asserted.user
    return facts.sender.user or ANONYMOUS


def metadata_of(facts: LegFacts) -> dict[str, str]:
    """The headers of an inbound call as its metadata: `sip.X-Customer-Id`. Several of a name are joined by commas (RFC
    3261, 7.3.1). Of a caller who does not want to be shown, no header tells the identity."""
    hidden = _IDENTITIES if carried.is_private(facts.headers) else frozenset()
    return {METADATA + name: ", ".join(values) for name, values in facts.headers.items() if name not in hidden}


def values_of(call: Call, number: str, facts: LegFacts) -> dict[str, str]:
    """Context variables: who calls whom, who diverted the call to us, and `sip_x_customer_id` for the metadata
    `sip.X-Customer-Id`. `number` is ours."""
    caller, called = call.customer_number, number
    if call.direction == "outbound":
        caller, called = called, caller
    return {
        **_headers_of(call.metadata),
        "caller_number": caller,
        "caller_name": _name_of(facts),
        "called_number": called,
        "diverted_from": carried.diverted_from(facts.headers),
    }


def _name_of(facts: LegFacts) -> str:
    """The display name of who calls."""
    if carried.is_private(facts.headers):
        return ""
    return (carried.asserted(facts.headers) or Party("", "")).name or facts.sender.name


def _headers_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    headers = {name: value for name, value in metadata.items() if name.startswith(METADATA) and isinstance(value, str)}
    return {_NO_NAME.sub("_", name.lower()).strip("_"): value for name, value in headers.items()}
