"""Targets that a peer names: the Contact of a redirect (RFC 3261 21.3), the Refer-To of a REFER (RFC 3515 2.1).

The input may be hostile: results are short and printable, and the processing time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sipcore.messages import headers

MAX_CONTACTS: Final = 5
"""Contacts of one redirect that are read."""
_Q: Final = re.compile(r";\s*+q\s*+=\s*+(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)(?![0-9.])", re.IGNORECASE)


@dataclass(frozen=True)
class Contact:
    """A `sip:` or `sips:` URI, without its parameters, and the address of the `peer` that named it. Other schemes
    cannot be called: then `user` and `host` are "", and `raw` is the beginning of the URI."""

    user: str
    host: str
    peer: str
    raw: str = ""
    secure: bool = False
    """`sips:`, which takes no hop without TLS (RFC 3261 19.1)."""


FollowContact = Callable[[Contact], Awaitable[str | None]]
"""Decides on the event loop whether a contact is called: returns the user to call, or None."""


def redirect_contacts(message: str, peer: str) -> list[Contact]:
    """The contacts of a 3xx by descending q (RFC 3261 20.10: q is 1 by default)."""
    contacts = (
        entry
        for name, value in headers.header_fields(message)
        if name.lower() in ("contact", "m")
        for entry in headers.split_list(value)
    )
    contacts_by_q = [(_preference(entry), parse_contact(entry, peer)) for entry in islice(contacts, MAX_CONTACTS)]
    return [contact for _, contact in sorted(contacts_by_q, key=lambda each: -each[0])]


def parse_contact(value: str, peer: str) -> Contact:
    """The contact in a Contact or Refer-To value."""
    uri, _ = headers.split_name_addr(value)
    scheme = uri.partition(":")[0].lower()
    user = headers.uri_user(uri) if scheme in ("sip", "sips") else ""
    if not user:
        return Contact("", "", peer, headers.printable(uri))
    return Contact(user, headers.printable(headers.uri_host(uri).lower()), peer, secure=scheme == "sips")


def _preference(contact: str) -> float:
    q = _Q.search(headers.split_name_addr(contact)[1])
    return float(q[1]) if q else 1.0
