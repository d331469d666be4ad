"""The few facts of a SIP message that admission needs, read from what the network sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_NAME_ADDR = re.compile(r'^\s*(?:"((?:[^"\\]|\\.)*)"|([^<"]*?))\s*<([^>]*)>')
_URI_USER = re.compile(r"^(?:sips?|tel):([^@;?>]*)(@?)", re.IGNORECASE)
_LONGEST = 128


@dataclass(frozen=True)
class Party:
    """Who: the user part of the URI ("" when it has none) and the display name."""

    user: str
    name: str


def uri_user(uri: str) -> str:
    """The user part of a `sip:`, `sips:` or `tel:` URI without parameters, unescaped (RFC 3261 19.1.1); else ""."""
    match = _URI_USER.match(uri.strip())
    if not match:
        return ""
    is_tel = uri.strip().lower().startswith("tel:")
    return unquote(match[1])[:_LONGEST] if match[2] or is_tel else ""


def party(name_addr: str) -> Party:
    """Read a From or To value: `"Ann" <sip:ann@host>;tag=1`, `Ann <sip:ann@host>` or a bare URI (RFC 3261 20.10)."""
    match = _NAME_ADDR.match(name_addr)
    if not match:
        return Party(uri_user(name_addr), "")
    quoted, plain, uri = match.groups()
    name = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip()
    return Party(uri_user(uri), name[:_LONGEST])


def request_user(message: str) -> str:
    """The user part of the request URI in a request's first line."""
    words = message.split("\r\n", 1)[0].split(" ")
    return uri_user(words[1]) if len(words) == 3 else ""


def host_of(address: str) -> str:
    """The host of PJSIP's `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    return (host if host and port.isdigit() else address).strip("[]")
