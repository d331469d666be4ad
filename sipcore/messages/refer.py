"""REFER (RFC 3515): reads the request of a peer, and formats the NOTIFYs about its result; formats our own request, and
reads the peer's NOTIFYs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from sipcore.messages import contact, headers
from sipcore.messages.contact import Contact
from sipcore.messages.headers import HeaderLines

_REPLACES: Final = re.compile(r"[?&]replaces=([^&>]*+)", re.IGNORECASE)
_DIALOG: Final = re.compile(r"[^\s;,\"<>]{1,128}(?:;(?:to-tag|from-tag)=[A-Za-z0-9.!%*_+`'~-]{1,128}|;early-only){2,3}")
_STATUS_LINE: Final = re.compile(rb"SIP/2\.0 ([1-6][0-9]{2})(?: [^\r\n\0]{0,256})?(?:\r?\n|\Z)", re.IGNORECASE)
_HOST_PORT: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:;transport=(?:tcp|tls))?")
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
"""RFC 3515, 2.4.4: how long the implicit subscription lasts."""


@dataclass(frozen=True)
class ReferRequest:
    """A REFER: the peer asks this endpoint to call `contact`. `replaces`: the value of the Replaces header (RFC 3891)
    of an attended transfer; "" for a blind one. `cseq` is the request's. `no_subscription`: the peer wants no NOTIFY
    (RFC 4488). `refusal`: why the target cannot be called at all; "" when the permissions decide."""

    contact: Contact
    replaces: str
    cseq: int
    no_subscription: bool
    refusal: str = ""

    def event_header(self, first: bool) -> str:
        """The Event header of its NOTIFYs: all but the first REFER of a dialog have an id (RFC 3515, 2.4.6)."""
        return "refer" if first else f"refer;id={self.cseq}"


def parse_refer(text: str) -> ReferRequest:
    """Read `cseq flags source Refer-To`: flag 1 is set when the peer wants NOTIFYs, flag 2 when Refer-To was cut. May
    be hostile."""
    cseq, flags, source, refer_to = (*text.split(" ", 3), "", "", "")[:4]
    refer_contact = contact.parse_contact(refer_to, headers.without_port(source))
    replaces_match = _REPLACES.search(headers.split_name_addr(refer_to)[0])
    replaces = unquote(replaces_match[1]) if replaces_match else ""
    refusal = "" if refer_contact.user else "it is no sip: or sips: URI with a user"
    if flags in ("2", "3"):
        refusal = "it is too long"
    elif replaces_match and _DIALOG.fullmatch(replaces) is None:
        replaces, refusal = "", "what it is to replace is no call"
    return ReferRequest(refer_contact, replaces, int(cseq), flags in ("0", "2"), refusal)


def subscription_state(code: int) -> str:
    """The Subscription-State of a NOTIFY: a final status ends the subscription (RFC 3515, 2.4.5)."""
    return f"active;expires={SUBSCRIPTION_S}" if code < 200 else "terminated;reason=noresource"


def sipfrag(code: int) -> str:
    """The message/sipfrag body of a NOTIFY (RFC 3420)."""
    return f"SIP/2.0 {code} {_PHRASES.get(code, 'Failed')}\r\n"


@dataclass(frozen=True)
class DialogId:
    """Identifies one of our dialogs (RFC 3261, 12); the bytes come from the network."""

    call_id: bytes
    local_tag: bytes
    remote_tag: bytes

    def replaces(self) -> str:
        """The value of Replaces (RFC 3891, 3), with all reserved characters escaped. Its recipient is the dialog's
        peer, so that to-tag is the peer's tag."""
        tags = f"{quote(';to-tag=', safe='')}{quote(self.remote_tag, safe='')}{quote(';from-tag=', safe='')}"
        return quote(self.call_id, safe="") + tags + quote(self.local_tag, safe="")


def format_refer_to(user: str, host_port: str, replaces: DialogId | None = None) -> str:
    """The value of Refer-To; `host_port` is `host[:port][;transport=tcp]`. Raises `ValueError` for a target that cannot
    be dialled."""
    if not user:
        raise ValueError("the target of a REFER has a user")
    if not _HOST_PORT.fullmatch(host_port):
        raise ValueError("the target of a REFER has a host, and perhaps a port")
    headers_part = f"?Replaces={replaces.replaces()}" if replaces else ""
    return f"<sip:{headers.escape_user(user)}@{host_port}{headers_part}>"


def format_referred_by(user: str, own_uri: str) -> HeaderLines:
    """Referred-By (RFC 3892) with this user, at the host of our URI in the dialog, which comes from the peer in an
    inbound call; no header without a user or with a malformed host."""
    host = headers.bracketed(headers.uri_host(own_uri))
    return (("Referred-By", f"<sip:{user}@{host}>"),) if user and _HOST_PORT.fullmatch(host) else ()


def parse_sipfrag(content_type: str, body: bytes) -> int | None:
    """The status in the body of a NOTIFY (RFC 3515, 2.4.5; RFC 3420); None for any other body. May be hostile."""
    match = _STATUS_LINE.match(body) if content_type.lower() == "message/sipfrag" else None
    return int(match[1]) if match else None
