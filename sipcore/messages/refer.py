"""What a peer asks for with REFER (RFC 3515), and how it is told what became of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from sipcore.messages import contact, headers
from sipcore.messages.contact import Contact

_REPLACES: Final = re.compile(r"[?&]replaces=([^&>]*+)", re.IGNORECASE)
_DIALOG: Final = re.compile(r"[^\s;,\"<>]{1,128}(?:;(?:to-tag|from-tag)=[A-Za-z0-9.!%*_+`'~-]{1,128}|;early-only){2,3}")
_PHRASES: Final = {
    100: "Trying",
    200: "OK",
    404: "Not Found",
    408: "Request Timeout",
    480: "Temporarily Unavailable",
    486: "Busy Here",
    603: "Decline",
}
SUBSCRIPTION_S: Final = 60
"""RFC 3515, 2.4.4: how long the peer may expect notices."""


@dataclass(frozen=True)
class ReferRequest:
    """The peer wants us to go on with somebody else. `replaces`: in the place of another call of theirs (RFC 3891), as
    the header's value; "" for a plain transfer. `cseq` is the request's; `quiet`: the peer wants no notices (RFC
    4488). `refusal`: why nobody is called, whatever the rules are; "" when they decide."""

    contact: Contact
    replaces: str
    cseq: int
    no_subscription: bool
    refusal: str = ""

    def event_header(self, first: bool) -> str:
        """What the notices are about: all but the first REFER of a dialog have a number (RFC 3515, 2.4.6)."""
        return "refer" if first else f"refer;id={self.cseq}"


def parse_refer(text: str) -> ReferRequest:
    """From `cseq facts source Refer-To`: 1 and 2 add up to the facts, for a peer that wants notices and for a Refer-To
    that was cut. May be hostile."""
    cseq, facts, source, refer_to = (*text.split(" ", 3), "", "", "")[:4]
    refer_contact = contact.parse_contact(refer_to, headers.without_port(source))
    found = _REPLACES.search(headers.split_name_addr(refer_to)[0])
    replaces = unquote(found[1]) if found else ""
    refusal = "" if refer_contact.user else "it is no sip: URI with a user"
    if facts in ("2", "3"):
        refusal = "it is too long"
    elif found and _DIALOG.fullmatch(replaces) is None:
        replaces, refusal = "", "what it is to replace is no call"
    return ReferRequest(refer_contact, replaces, int(cseq), facts in ("0", "2"), refusal)


def subscription_state(code: int) -> str:
    """Subscription-State: a final status is the last notice (RFC 3515, 2.4.5)."""
    return f"active;expires={SUBSCRIPTION_S}" if code < 200 else "terminated;reason=noresource"


def sipfrag(code: int) -> str:
    """The body of a notice (RFC 3420)."""
    return f"SIP/2.0 {code} {_PHRASES.get(code, 'Failed')}\r\n"
