"""Where calls may go: the one rule for calls of the API, for redirects and for REFER, which nobody gets around."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from storage.organizations import Organization
from storage.phone_numbers import PhoneNumber

_DIALABLE: Final = re.compile(r"\+[1-9][0-9]{1,14}|[0-9]{2,15}")
"""E.164, or an internal extension."""


def permitted(number: PhoneNumber, organization: Organization, destination: str) -> str | None:
    """What may be dialled to reach `destination` from this number; None when it may not be called. A destination is
    E.164 or an internal extension of 2 to 15 digits, to the letter: nothing is made of `0049`, of separators or of a
    SIP user, so that what was checked is what is dialled. Both the organization's prefixes and the number's must let it
    through; without any, any destination is let through."""
    if _DIALABLE.fullmatch(destination) is None:
        return None
    allowed = all(_begins(destination, each.outbound_prefixes) for each in (organization, number))
    return destination if allowed else None


def _begins(destination: str, prefixes: Sequence[str] | None) -> bool:
    return prefixes is None or destination.startswith(tuple(prefixes))
