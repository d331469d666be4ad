"""Where a peer points a call to: the Contact of a redirect (RFC 3261 21.3), the Refer-To of a REFER (RFC 3515 2.1).

Everything here may be hostile: what is read is short and printable, and the time taken is linear.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sipcore.messages import headers

MAX_CONTACTS: Final = 5
"""Of one redirect."""
_Q: Final = re.compile(r";\s*+q\s*+=\s*+(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)(?![0-9.])", re.IGNORECASE)


@dataclass(frozen=True)
class Contact:
    """A `sip:` URI, as far as it counts: no other scheme does, and none of its parameters. `peer`: the address of who
    points there. Nobody can be called by anything else: then `user` and `host` are "", `written` is how it begins."""

    user: str
    host: str
    peer: str
    raw: str = ""


FollowContact = Callable[[Contact], Awaitable[str | None]]
"""Called on the event loop with whom a peer points to: the user to call there, None when nobody is to be called."""


def redirect_contacts(message: str, peer: str) -> list[Contact]:
    """The contacts of a 3xx, the peer's favourite first (RFC 3261 20.10: q is 1 where it is not said)."""
    contacts = (
        entry
        for name, value in headers.header_fields(message)
        if name.lower() in ("contact", "m")
        for entry in headers.split_list(value)
    )
    found = [(_preference(entry), parse_contact(entry, peer)) for entry in islice(contacts, MAX_CONTACTS)]
    return [there for _, there in sorted(found, key=lambda each: -each[0])]


def parse_contact(value: str, peer: str) -> Contact:
    """Whom a Contact or Refer-To names."""
    uri, _ = headers.split_name_addr(value)
    user = headers.uri_user(uri) if uri[:4].lower() == "sip:" else ""
    if not user:
        return Contact("", "", peer, headers.printable(uri))
    return Contact(user, headers.printable(headers.uri_host(uri).lower()), peer)


def _preference(contact: str) -> float:
    said = _Q.search(headers.split_name_addr(contact)[1])
    return float(said[1]) if said else 1.0
